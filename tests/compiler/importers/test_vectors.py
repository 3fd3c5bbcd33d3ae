"""Logits of every family against those of transformers, committed: no torch needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.importers import FAMILIES, load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Rows

from ..families import make, write
from .cases import CASES, MOST_ERROR, Case, error, ours, tokens
from .vectors import digest, sample, vectors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_logits(case: Case, tmp_path: Path) -> None:
    folder = case.write(tmp_path)
    known, wanted = vectors()[case.label]
    assert digest(folder) == known, "the checkpoint is another one: run tests/compiler/importers/vectors.py"
    found = error(sample(ours(folder)), wanted)
    assert found <= MOST_ERROR, f"{case.label}: {found:.2g}"


def test_every_family_of_theirs_has_vectors() -> None:
    there = {make(case.family, layers=1, vocab=5).config["model_type"] for case in CASES}
    assert there == {name for family in FAMILIES for name in family.model_types} - {"gemmule"}
    assert set(vectors()) == {case.label for case in CASES}


@pytest.mark.parametrize(("family", "name", "change"), [
    ("gpt2", "transformer.wpe.weight", lambda value: np.roll(value, 1, 0)),
    ("gpt2", "transformer.h.2.attn.c_attn.weight", lambda value: np.roll(value, 24, 1)),
    ("opt", "model.decoder.embed_positions.weight", lambda value: np.roll(value, 2, 0)),
    ("llama", "model.layers.4.self_attn.k_proj.weight", lambda value: np.roll(value, 1, 0)),
    ("qwen2", "model.layers.1.self_attn.k_proj.bias", lambda value: np.roll(value, 1, 0)),
    ("qwen3", "model.layers.3.self_attn.k_norm.weight", lambda value: np.roll(value, 1, 0)),
    ("gpt_neox", "gpt_neox.layers.2.attention.query_key_value.weight", lambda value: np.roll(value, 24, 0)),
    ("gpt_neox", "gpt_neox.layers.0.post_attention_layernorm.bias", lambda value: np.roll(value, 1, 0)),
    ("llama", "model.layers.0.mlp.gate_proj.weight", lambda value: value * 1.001),
])
def test_a_small_mistake_shows(family: str, name: str, change, tmp_path: Path) -> None:
    """What an importer could do wrong changes the kept logits by more than is allowed."""
    made = make(family, 3)
    made.tensors[name] = np.ascontiguousarray(change(made.tensors[name]))
    _, wanted = vectors()[{"gpt_neox": "pythia"}.get(family, family)]
    assert error(sample(ours(write(tmp_path, made))), wanted) > MOST_ERROR


def test_scaled_angles_matter(tmp_path: Path) -> None:
    """Another factor, other bands and none at all are far from the committed logits."""
    _, wanted = vectors()["llama 3"]
    plain = make("llama3").config["rope_scaling"]
    for scaling in (None, {"type": "linear", "factor": 8.0}, plain | {"factor": 7.5}, plain | {"low_freq_factor": 0.8},
                    plain | {"high_freq_factor": 5.0}, plain | {"original_max_position_embeddings": 40}):
        assert error(sample(ours(write(tmp_path, make("llama3", 3, rope_scaling=scaling)))), wanted) > 1e-3, scaling


def test_the_window_matters(tmp_path: Path) -> None:
    """A window of 8 instead of 7, and none, are far from the committed logits."""
    _, wanted = vectors()["mistral"]
    for window in (6, 8, None):
        assert error(sample(ours(write(tmp_path, make("mistral", 3, sliding_window=window)))), wanted) > 1e-3


def test_token_by_token(tmp_path: Path) -> None:
    """The committed logits again, in decode."""
    network = load_network(write(tmp_path, make("mistral", 3)))
    cache, interpreter = Cache(network.graph), FloatInterpreter(network)
    rows = [interpreter.forward(Rows.chain([int(token)], at), cache)[0] for at, token in enumerate(tokens())]
    assert error(sample(np.array(rows)), vectors()["mistral"][1]) <= MOST_ERROR
