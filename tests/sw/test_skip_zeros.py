"""Weights that meet only zeros, on the command line: the same text, fewer bytes and cycles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .test_cli import run

OPTIONS = ("--model", "default", "--prompt", "def mean(values):", "--max-new-tokens", "12", "--prefill-rows", "0")


def generated(monkeypatch: pytest.MonkeyPatch, path: Path, *options: str) -> dict[str, Any]:
    assert run(monkeypatch, "generate", *OPTIONS, *options, "--json", str(path)) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_same_text_in_fewer_cycles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By autoregressive decoding and by drafts, whose passes have several rows."""
    plain, skipping, drafted = (generated(monkeypatch, tmp_path / "told.json", *options) for options in (
        ("--method", "ar"), ("--method", "ar", "--skip-zeros"), ("--method", "draft", "--skip-zeros")))
    assert [plain["skip_zeros"], skipping["skip_zeros"], drafted["skip_zeros"]] == [False, True, True]
    assert plain["tokens"] == skipping["tokens"] == drafted["tokens"]
    assert drafted["same_tokens_as_ar"]
    assert skipping["cycles"] < 0.9 * plain["cycles"]
    assert skipping["compute"] == "device"


@pytest.mark.parametrize(("options", "message"), [
    (("--model", "default", "--compute", "interpreter"), "no --prune and no --skip-zeros"),
    (("--model", "default", "--weights", "int4"), "--skip-zeros: weights are skipped where int8 rows behind an act")])
def test_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...],
                 message: str) -> None:
    assert run(monkeypatch, "generate", *options, "--skip-zeros", "--max-new-tokens", "2") == 2
    error = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(error) == 1
    assert message in error[0]
