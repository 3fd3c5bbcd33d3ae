"""Training of heads, which needs torch: resumed it gives the same bytes; what is counted is what stands there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from gemmule.sw.models.trained.read import read_trained
from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.running import open_place
from gemmule.sw.training.stages.heads import HeadsRecipe, export, looping, path_shares, train_heads

SHAPE = ModelShape(hidden_size=32, intermediate_size=48, num_layers=2, num_heads=1, vocab_size=60, max_positions=32)
PLAN = HeadsRecipe(kinds={"medusa": (2, 0), "blockwise": (2, 8), "hydra": (3, 8)}, prompt=6, length=20, chunk=8,
                   chunks=2, judged=4, windows=6, rows=4, window_rows=2, steps=6, warm_up=1)
PLACE = open_place(1, compiled=False)


def prepared(folder: Path) -> Path:
    """A corpus of random tokens."""
    draws, corpus = np.random.default_rng(1), folder / "corpus"
    corpus.mkdir(parents=True)
    for name in ("library", "packages", "calibration", "copies"):
        np.save(corpus / f"{name}.npy", draws.integers(2, 60, 900).astype(np.uint16))
    np.save(corpus / "starts.npy", np.array([0, 900]))
    return folder


def target() -> LanguageModel:
    torch.manual_seed(3)
    return LanguageModel(SHAPE).eval().requires_grad_(False)


def test_a_resumed_run_gives_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name, parts in (("whole", [None]), ("parts", [2, 1, None])):
        out, record = prepared(tmp_path / name), None
        for most in parts:
            record = train_heads(PLAN, 1, out, target(), "x" * 64, PLACE, most)
            assert (record is None) == (most is not None)
        assert record is not None
        (tmp_path / name / "made").mkdir()
        export(PLAN, out, tmp_path / name / "made", SHAPE)
        files.append({kind: (tmp_path / name / "made" / f"{kind}.safetensors").read_bytes() for kind in PLAN.kinds})
    assert files[0] == files[1]
    assert record["kinds"]["medusa"]["parameters"] == 2 * (32 * 32 + 32) + 32
    for kind in PLAN.kinds:
        found = read_trained(tmp_path / "whole" / "made" / f"{kind}.safetensors", kind)
        assert found.depths == (2,)
        with safe_open(tmp_path / "whole" / "made" / f"{kind}.safetensors", "numpy") as file:
            assert len(file.get_tensor("vocabulary")) == 60


def test_the_best_paths() -> None:
    """Of ranks by anchor and head; a path stands behind those that it goes on from."""
    ranks = np.array([[0, 0], [0, 1], [0, 0], [1, 0], [8, 0]])
    assert path_shares(ranks) == [((0,), 0.6), ((0, 0), 0.4), ((1,), 0.2), ((0, 1), 0.2), ((1, 0), 0.2)]


def test_texts_that_loop() -> None:
    assert looping(np.array([1, 2, 3, 4] * 6))
    assert not looping(np.arange(24))
