"""Requests of ``gemmule bench`` for chat models: ten of a kind, none twice, as their hash says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmule.sw.limits import REQUESTS
from gemmule.sw.prompts import requests
from gemmule.sw.prompts.requests import load_requests


def test_ten_of_a_kind() -> None:
    found = load_requests()
    assert tuple(found) == REQUESTS
    assert [len(prompts) for prompts in found.values()] == [10] * 4
    every = [prompt for prompts in found.values() for prompt in prompts]
    assert len({prompt.name for prompt in every}) == len({prompt.text for prompt in every}) == 40
    for name, prompts in found.items():
        for prompt in prompts:
            assert (prompt.kind, prompt.name.split("/")[0]) == (name, name)
            assert prompt.text == prompt.text.strip()
    for prompt in found["grounded"]:
        asked, given = prompt.text.split("\n\n")
        assert 4 <= len(asked.split()) <= 50
        assert 60 <= len(given.split()) <= 150


def test_changed_texts_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "requests.json"
    changed.write_text(requests.FILE.read_text().replace("Norway", "Sweden", 1))
    monkeypatch.setattr(requests, "FILE", changed)
    with pytest.raises(ValueError, match="sha256 must be"):
        load_requests()
