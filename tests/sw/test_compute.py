"""``generate --compute``: the interpreter's numbers, texts, traces and pages are the device's, whatever the options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemmule.sw.device import interpreted
from gemmule.sw.device.interpreted import LARGE, interprets
from gemmule.sw.errors import InputError

from .test_cli import run

TURNS = "import os\n---\nimport sys\n---\nclass A:\n"
CASES = {
    "ar": ("--method", "ar"),
    "draft": ("--method", "draft", "--num-speculative-tokens", "3"),
    "pld": ("--method", "pld", "--prompt-lookup-num-tokens", "9"),
    "sampled": ("--method", "draft", "--temperature", "0.9", "--verify", "rejection", "--seed", "5"),
    "by cost": ("--method", "draft", "--draft-lengths", "cost"),
    "by confidence": ("--method", "draft", "--draft-lengths", "confidence"),
    "adaptive": ("--method", "draft", "--adaptive"),
    "no cache": ("--method", "pld", "--kv-cache", "none"),
    "turns": ("--method", "pld", "--turns", "FILE"),
    "batch": ("--method", "draft", "--batch", "2", "--prompt-file", "FILE"),
    "crop": ("--method", "pld", "--context-overflow", "crop", "--prompt-file", "LONG"),
    "sinks": ("--method", "draft", "--context-overflow", "sinks", "--prompt-file", "LONG"),
    "no prefill": ("--method", "pld", "--prefill-rows", "0"),
}
OWN = ("compute", "simulation_seconds")
"""What differs."""


def _ran(monkeypatch: pytest.MonkeyPatch, folder: Path, compute: str, options: tuple[str, ...]) -> dict[str, Any]:
    words = [str(folder / {"FILE": "turns.txt", "LONG": "long.txt"}[word]) if word in ("FILE", "LONG") else word
             for word in options]
    out = folder / f"{compute}.json"
    assert run(monkeypatch, "generate", "--model", "small", "--max-new-tokens", "8", "--compute", compute, "--json",
               str(out), *words) == 0
    return dict(json.loads(out.read_text()))


@pytest.mark.parametrize("case", CASES)
def test_the_same_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str) -> None:
    (tmp_path / "turns.txt").write_text(TURNS)
    (tmp_path / "long.txt").write_text("def read(path):\n    return open(path)\n" * 16)
    device, quick = (_ran(monkeypatch, tmp_path, compute, CASES[case]) for compute in ("device", "interpreter"))
    assert (device["compute"], quick["compute"]) == ("device", "interpreter")
    assert {name: value for name, value in quick.items() if name not in OWN} == {
        name: value for name, value in device.items() if name not in OWN}


def test_the_same_trace_and_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ran(compute: str) -> tuple[str, str]:
        files = tmp_path / f"{compute}.trace.json", tmp_path / f"{compute}.html"
        assert run(monkeypatch, "generate", "--model", "small", "--method", "pld", "--max-new-tokens", "4",
                   "--compute", compute, "--trace", str(files[0]), "--html", str(files[1])) == 0
        return files[0].read_text(), files[1].read_text()
    assert ran("interpreter") == ran("device")


def test_large_models_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not interprets("auto", LARGE - 1)
    assert interprets("auto", LARGE)
    assert not interprets("device", LARGE)
    assert interprets("interpreter", 1)
    needs = "needs --backend model, --launch pass, no --prune and no --skip-zeros"
    for options in ({"backend": "rtl"}, {"launch": "step"}, {"chosen": True}):
        assert not interprets("auto", LARGE, **options)
        with pytest.raises(InputError, match=f"--compute interpreter {needs}"):
            interprets("interpreter", LARGE, **options)
    monkeypatch.setattr(interpreted, "LARGE", 1000)
    assert _ran(monkeypatch, tmp_path, "auto", ("--method", "pld"))["compute"] == "interpreter"
