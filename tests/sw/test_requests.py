"""Requests of ``gemmule bench`` for chat models: twenty of a kind, none twice, as their hash says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmule.sw.limits import REQUESTS
from gemmule.sw.prompts import requests
from gemmule.sw.prompts.choose import digest
from gemmule.sw.prompts.requests import first_requests, load_requests

OLDER = "26b941862de6ef391b0483c7f479fbb791787723744e7a68a13fc9afd60ec433"


def test_twenty_of_a_kind() -> None:
    found = load_requests()
    assert tuple(found) == REQUESTS
    assert [len(prompts) for prompts in found.values()] == [20] * 7
    every = [prompt for prompts in found.values() for prompt in prompts]
    assert len({prompt.name for prompt in every}) == len({prompt.text for prompt in every}) == 140
    for name, prompts in found.items():
        for prompt in prompts:
            assert (prompt.kind, prompt.name.split("/")[0]) == (name, name)
            assert prompt.text == prompt.text.strip()
    for prompt in (*found["grounded"], *found["summary"]):
        asked, given = prompt.text.split("\n\n")
        assert 4 <= len(asked.split()) <= 50
        assert 60 <= len(given.split()) <= 150


def test_the_older_ones_stay_as_they_are() -> None:
    """What results of before refer to, and what trained drafters were judged by."""
    found = first_requests()
    assert [(name, len(prompts)) for name, prompts in found.items()] == [
        ("code", 10), ("chat", 10), ("grounded", 10), ("rewrite", 10)]
    assert digest([prompt for prompts in found.values() for prompt in prompts]) == OLDER


def test_changed_texts_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "requests.json"
    changed.write_text(requests.FILE.read_text().replace("Norway", "Sweden", 1))
    monkeypatch.setattr(requests, "FILE", changed)
    with pytest.raises(ValueError, match="sha256 must be"):
        load_requests()
