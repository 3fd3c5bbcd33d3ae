"""The trace of an RTL run shows what the model's shows: every command, in the same cycles."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from .test_cli import run


def commands(path: Path) -> list[dict[str, Any]]:
    """Slices of the units, without their names."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(text)["traceEvents"]
    return [{key: value for key, value in event.items() if key != "name"} for event in events
            if event["ph"] == "X" and event["pid"] == 1]


@pytest.mark.rtl
def test_an_rtl_run_has_the_trace_of_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    product = ("gemm", "--shape", "9x10x11", "--config", "tiny")
    assert run(monkeypatch, "cosim", *product, "--trace", "rtl.json.gz", "--json", "a.json") == 0
    assert run(monkeypatch, "run", *product, "--trace", "model.json") == 0
    seen = commands(Path("rtl.json.gz"))
    assert seen == commands(Path("model.json"))
    assert len({event["tid"] for event in seen}) >= 3, "load, matrix and store"
    record = json.loads(Path("a.json").read_text())
    assert (record["trace"], record["waveform"]) == ("rtl.json.gz", None)
