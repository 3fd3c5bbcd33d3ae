"""Checkpoints with planted massive activations and sinks: there, where they were planted, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.planted import FAMILIES, main, observed, planted, write_checkpoint
from gemmule.compiler.importers import load_network
from gemmule.compiler.quantize.prefix import behind_prefix, find_prefix


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_planted_is_there(family: str, tmp_path: Path) -> None:
    made = planted(family, seed=3)
    network = load_network(write_checkpoint(tmp_path, made))
    ids = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode((tmp_path / "text.txt").read_text()[:150]).ids
    assert (ids[0] == 0) is (family not in ("gpt2", "opt"))
    for row in observed(network, ids):
        later = row["layer"] >= made.layer
        assert row["others"] < 20
        assert (row["residual, first"] > 1000 * row["others"]) is later, row
        assert (row["residual, first"] > 5000 * row["deviation"]) is later, row
        assert (row["inner, first"] > 100 * row["inner, others"]) is (row["layer"] == made.layer), row
        assert row["attention to it, %"] > 40 if row["layer"] > made.layer else row["attention to it, %"] < 10, row


@pytest.mark.parametrize("family", ["llama", "qwen2", "pythia"])
def test_without_the_token_nothing_is_massive(family: str, tmp_path: Path) -> None:
    network = load_network(write_checkpoint(tmp_path, planted(family)))
    for row in observed(network, list(range(40, 90))):
        assert row["residual, first"] < 30
        assert row["inner, first"] < 100


def test_equal_seeds_give_equal_files(tmp_path: Path) -> None:
    folders = [write_checkpoint(tmp_path / name, planted("qwen2", seed), seed) for name, seed in (
        ("a", 5), ("b", 5), ("c", 6))]
    same, other = ([(folder / name).read_bytes() for name in ("model.safetensors", "tokenizer.json", "text.txt")]
                   for folder in folders[1:])
    first = [(folders[0] / name).read_bytes() for name in ("model.safetensors", "tokenizer.json", "text.txt")]
    assert first == same
    assert first[0] != other[0]
    assert first[2] != other[2]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In another layer; a table of what is there."""
    main(["--out", str(tmp_path), "--family", "opt", "--layer", "3", "--seed", "2"])
    assert "attention to" in capsys.readouterr().out
    rows = list(observed(load_network(tmp_path), list(range(3, 60))))
    assert [row["residual, first"] > 1000 for row in rows] == [False] * 3 + [True] * 3
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["bos_token_id"]) == ("opt", None)


def test_channels_and_neuron() -> None:
    """Two channels, of which one neuron is the source."""
    made = planted("llama")
    down = made.tensors[f"model.layers.{made.layer}.mlp.down_proj.weight"]
    assert set(np.flatnonzero(down[:, made.neuron])) == set(made.channels)
    read = made.tensors[f"model.layers.{made.layer + 1}.self_attn.v_proj.weight"][:, list(made.channels)]
    assert not read.any()


@pytest.mark.parametrize("family", ["llama", "pythia"])
def test_the_token_that_begins_texts_is_a_prefix_and_not_seen_twice(family: str, tmp_path: Path) -> None:
    """Behind it as a constant no window has it again, as no prompt has; two of them would both be massive."""
    network = load_network(write_checkpoint(tmp_path, planted(family)))
    random = np.random.default_rng(1).integers(2, 258, (4, 64))
    random[:3, 0] = 0
    assert find_prefix(network, random, (1, 0)) == (0,)
    seen = behind_prefix(random, (0,))
    assert (seen == 0).sum() == (random[:, 1:] == 0).sum()
    assert np.array_equal(seen[:3], random[:3, 1:])
    assert np.array_equal(seen[3], random[3, :-1])
    assert behind_prefix(random, ()) is random
