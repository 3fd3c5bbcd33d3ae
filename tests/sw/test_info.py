"""`gemmule info`: sizes and bandwidths of a device, and what fits it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmule.compiler.importers.architectures import architecture
from gemmule.config import load_config
from gemmule.sw.workloads import capacity
from gemmule.sw.workloads.capacity import fits, memories, peaks

from .test_cli import run

BASE = load_config("base")


def test_sizes_and_peaks() -> None:
    """Hand-computed for `base`: 16 x 16, 16 bytes a cycle, 140 of 3,900 cycles refresh."""
    scratchpad, accumulator, dram = memories(BASE)
    assert (scratchpad["bytes"], accumulator["bytes"], dram["bytes"]) == (262144, 65536, 2 ** 32)
    assert (scratchpad["read_bytes_per_cycle"], scratchpad["write_bytes_per_cycle"]) == (8 * 16 * 2, 8 * 16)
    assert accumulator["read_bytes_per_cycle"] == 4 * 64
    found = peaks(BASE)
    assert found["macs_per_cycle"] == 256
    assert found["dram_bytes_per_cycle"] == pytest.approx(16 * (1 - 140 / 3900))
    assert found["ridge_macs_per_byte"] == pytest.approx(256 / 15.4256, rel=1e-4)


def test_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest context is what the address space leaves, and no more than the network's positions."""
    small = architecture("llama-68m").resized("hidden", 128)
    small = replace(small, config=small.config | {"vocab_size": 97})
    other = replace(small, name="other", config={"model_type": "other"})
    monkeypatch.setattr(capacity, "architectures", lambda: {"small": small, "other": other})
    whole, refused = fits(BASE)
    assert (whole["context"], whole["limit"]) == (2048, "the network's positions")
    assert whole["kv_bytes_per_position"] == 2 * 2 * 128
    assert refused["context"] == 0
    assert "model_type is 'other'" in refused["limit"]
    (narrow, _), (none, _) = (fits(BASE.model_copy(update={"address_bits": bits})) for bits in (23, 22))
    assert 0 < narrow["context"] < 2 ** 23 // 512
    assert none["limit"] == "address_bits = 22: weights and embeddings take more"


def test_command(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "info", "--config", "edge", "--no-networks", "--json", "a.json") == 0
    record = json.loads(Path("a.json").read_text())
    assert (record["macs_per_cycle"], record["networks"]) == (64, None)
    assert "peak: 64 MACs a cycle" in capsys.readouterr().out
