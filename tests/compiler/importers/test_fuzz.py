"""Configs, headers and indices drawn at random: a network whose every tensor can be had, or one CompileError."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmule.compiler import CompileError
from gemmule.compiler.importers import FAMILIES as IMPORTERS
from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.config import HARMLESS

from ..families import ENCODERS, FAMILIES, make, write

FEW = settings(max_examples=120, deadline=None, derandomize=True,
               suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.one_of(
    st.integers(-3, 200), st.sampled_from([1 << 16, (1 << 16) + 1, 1 << 17, 8192, 1023, 1024, 10**30, -10**30]),
    st.floats(allow_nan=False), st.sampled_from([0.0, 1.0, 1e-6, 5e-324, 1e308]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8),
              st.sampled_from(["gelu", "silu", "default", "llama", "opt"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.one_of(st.text(max_size=4), st.sampled_from(["rope_type", "rope_theta"])), inner, max_size=3)), max_leaves=6)
ALL = sorted(FAMILIES | ENCODERS)
KEYS = sorted({key for family in ALL for key in make(family, layers=1, vocab=4).config} | {
    "sliding_window", "rope_parameters", "attention_bias", "mlp_bias", "rope_interleaved", "pruned_heads", "auto_map",
    "scale_attn_weights", "enable_bias", "quantization_config", "num_labels", "is_decoder", "partial_rotary_factor",
    *sorted(HARMLESS)[:3]})


def outcome(folder: Path) -> bool:
    """Whether a directory loads; what is wrong with a refusal fails the test."""
    try:
        network = load_network(folder)
        for name, tensor in network.graph.tensors.items():
            assert network.weights[name].shape == tensor.shape
    except CompileError as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) < 700, text
        assert str(folder) in text, text
        return False
    return True


@FEW
@given(family=st.sampled_from(ALL), keys=st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), VALUES, min_size=1, max_size=4),
    gone=st.lists(st.sampled_from(KEYS), max_size=2))
def test_configs(family: str, keys: dict[str, Any], gone: list[str], tmp_path: Path) -> None:
    folder = write(tmp_path, make(family, layers=1, vocab=8))
    config = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps({key: at for key, at in config.items() if key not in gone}))
    outcome(folder)


@FEW
@given(family=st.sampled_from(ALL), size=st.integers(1, 8), data=st.data())
def test_sizes(family: str, size: int, data: st.DataObject, tmp_path: Path) -> None:
    """Only integers, so that sizes are what is wrong: what the graph refuses must have been refused by name."""
    folder = write(tmp_path, make(family, layers=1, vocab=8))
    config = json.loads((folder / "config.json").read_text())
    names = [key for key, at in config.items() if isinstance(at, int) and not isinstance(at, bool)]
    for key in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=size)):
        config[key] = data.draw(st.one_of(st.integers(1, 3), st.integers(1, 300), st.sampled_from(
            [1 << 13, 1 << 14, 3 << 13, 1 << 16, 65537, 131071, 1 << 17, 1024, 1 << 40])))
    (folder / "config.json").write_text(json.dumps(config))
    outcome(folder)


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "bert"])
def test_pairs_of_sizes(family: str) -> None:
    """Every two sizes at once, at every bound: the config is refused by name before the graph could refuse it."""
    config = make(family, layers=1, vocab=8).config
    (importer,) = (one for one in IMPORTERS if config["model_type"] in one.model_types)
    plain = {key: at for key, at in config.items() if key not in ("model_type", "architectures", "n_ctx")} | (
        {} if family in ("opt", "bert") else {"n_inner": None} if family == "gpt2" else {"head_dim": None})
    names = [key for key, at in plain.items() if isinstance(at, int) and not isinstance(at, bool)]
    made = refused = 0
    for first, second in itertools.combinations(names, 2):
        for a, b in itertools.product((1, 2, 1 << 14, 1 << 16, (1 << 17) - 1, 1 << 17), repeat=2):
            sizes = {"num_key_value_heads": 1} if family == "llama" else {}
            try:
                importer.describe(family, plain | sizes | {first: a, second: b}, frozenset())
                made += 1
            except CompileError:
                refused += 1
    assert made > 20
    assert refused > 100


def _entry(draw: st.DataObject, header: dict[str, Any]) -> None:
    """One change of a header."""
    name = draw.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    kind = draw.draw(st.sampled_from(["shape", "dtype", "data_offsets", "name", "drop", "add", "entry", "twin"]))
    if kind == "drop":
        del header[name]
    elif kind == "name":
        header[draw.draw(st.text(max_size=10))] = header.pop(name)
    elif kind == "add":
        header[draw.draw(st.text(max_size=10))] = draw.draw(VALUES)
    elif kind == "entry":
        header[name] = draw.draw(VALUES)
    elif kind == "twin":
        header[draw.draw(st.text(max_size=10))] = copy.deepcopy(header[name])
    elif isinstance(header[name], dict):
        header[name][kind] = draw.draw(st.one_of(VALUES, st.lists(st.one_of(st.integers(0, 400), NUMBERS), max_size=3),
                                                 st.sampled_from(["F16", "BF16", "F8_E4M3", "I64", "F4", "BOOL"])))


@FEW
@given(family=st.sampled_from(ALL), count=st.integers(1, 3), data=st.data())
def test_headers(family: str, count: int, data: st.DataObject, tmp_path: Path) -> None:
    folder = write(tmp_path, make(family, layers=1, vocab=8))
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    for _ in range(count):
        if set(header) - {"__metadata__"}:
            _entry(data, header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size:])
    outcome(folder)


@FEW
@given(at=st.integers(0, 6000), change=st.binary(max_size=12), drop=st.integers(0, 40))
def test_bytes(at: int, change: bytes, drop: int, tmp_path: Path) -> None:
    """Pieces of the file put in, overwritten or cut out."""
    folder = write(tmp_path, make("opt", layers=1, vocab=8))
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:at] + change + content[at + drop:])
    outcome(folder)


@FEW
@given(data=st.data())
def test_indices(data: st.DataObject, tmp_path: Path) -> None:
    folder = write(tmp_path, make("llama", layers=1, vocab=8), shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    places = index["weight_map"]
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.one_of(st.sampled_from(sorted(places)), st.text(max_size=5)))
        places[key] = data.draw(st.one_of(VALUES, st.sampled_from(
            ["model-00001-of-00002.safetensors", "..", "./x.safetensors", "x\0.safetensors", "config.json"])))
    if data.draw(st.booleans()):
        index[data.draw(st.sampled_from(["weight_map", "metadata", "x"]))] = data.draw(VALUES)
    path.write_text(json.dumps(index))
    outcome(folder)


@pytest.mark.parametrize("family", ALL)
def test_outcome_sees_what_loads_and_what_does_not(family: str, tmp_path: Path) -> None:
    made = make(family, layers=1, vocab=8)
    assert outcome(write(tmp_path, made))
    made.tensors[next(iter(made.tensors))][0] = np.nan
    assert not outcome(write(tmp_path, made))
