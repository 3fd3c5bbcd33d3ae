"""Training of the shapes that `benchmarks.small_targets` compares, which needs torch: a killed run's bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import small_targets
from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.stages import small

SHAPE = ModelShape(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=1)


def test_a_killed_run_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut behind its fifth step, of which four are kept; then gone on with. Once whole, nothing is trained."""
    monkeypatch.setattr(small_targets, "SAVE_STEPS", 2)
    monkeypatch.setattr(small, "CONTEXT", 16)
    stream = np.random.default_rng(0).integers(2, 1000, 4000)
    small_targets.trained(SHAPE, stream, tmp_path / "whole", 8)
    real, calls = small.text_loss, 0

    def cut(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(small, "text_loss", cut)
        with pytest.raises(KeyboardInterrupt):
            small_targets.trained(SHAPE, stream, tmp_path / "cut", 8)
    small_targets.trained(SHAPE, stream, tmp_path / "cut", 8)
    whole, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == again
    with monkeypatch.context() as patch:
        patch.setattr(small, "text_loss", lambda *args: pytest.fail("trained again"))
        small_targets.trained(SHAPE, stream, tmp_path / "cut", 8)
    with pytest.raises(ValueError, match="another recipe"):
        small_targets.trained(SHAPE, stream, tmp_path / "cut", 9)
