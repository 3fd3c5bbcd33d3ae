"""BERT directories: what goes where, names of two libraries, with a classifier and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import label_names, load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Linear, Network, Norm, Rows

from ..families import Checkpoint, make, write
from .cases import tokens, types

TEXT = tokens().tolist()


def output(network: Network, text: list[int]) -> np.ndarray:
    rows = Rows.chain(text).typed(types(len(text), network.graph.types))
    return FloatInterpreter(network).forward(rows, Cache(network.graph))


def renamed(made: Checkpoint, *changes: tuple[str, str]) -> Checkpoint:
    found = Checkpoint(made.config)
    for name, value in made.tensors.items():
        for old, new in changes:
            name = name.replace(old, new)
        found.tensors[name] = value
    return found


def test_names_of_labels(tmp_path: Path) -> None:
    """By number, whatever their order; none where there are none."""
    made = make("bert-classifier")
    made.config["id2label"] = {str(number): f"label {number}" for number in (4, 2, 0, 1, 3)}
    assert label_names(write(tmp_path / "named", made)) == tuple(f"label {number}" for number in range(5))
    assert label_names(write(tmp_path / "plain", make("bert"))) == ()
    for wrong in ({"1": "a", "2": "b"}, {"0": 5}, ["a"], {"LABEL": "0"}):
        made.config["id2label"] = wrong
        with pytest.raises(CompileError, match="id2label must name each label from '0' on, not"):
            label_names(write(tmp_path / "wrong", made))


def test_what_goes_where(tmp_path: Path) -> None:
    made = make("bert", type_vocab_size=3, layer_norm_eps=1e-6)
    network = load_network(write(tmp_path, made))
    graph, stored = network.graph, made.tensors
    assert (graph.family, graph.layers, graph.positions, graph.types, graph.output) == (
        "bert", 5, 64, 3, "4.output_norm.wide")
    assert graph.encoder
    assert not graph.heads
    assert np.array_equal(network.weights["positions.table"][2 * 64 + 7],
                          stored["embeddings.token_type_embeddings.weight"][2]
                          + stored["embeddings.position_embeddings.weight"][7])
    for name, at in (("3.query", "attention.self.query"), ("3.output", "attention.output.dense"),
                     ("3.up", "intermediate.dense"), ("3.down", "output.dense")):
        for role in ("weight", "bias"):
            assert np.array_equal(network.weights[f"{name}.{role}"], stored[f"encoder.layer.3.{at}.{role}"])
    for name, at in (("norm", "embeddings"), ("2.attention_norm", "encoder.layer.2.attention.output"),
                     ("2.output_norm", "encoder.layer.2.output")):
        for one in (name, f"{name}.wide"):
            node = graph.by_name[one]
            assert isinstance(node, Norm)
            assert node.eps == 1e-6
            assert np.array_equal(network.tensor(node, "gamma"), stored[f"{at}.LayerNorm.weight"])
            assert np.array_equal(network.tensor(node, "beta"), stored[f"{at}.LayerNorm.bias"])
    assert set(network.weights) == set(graph.tensors)
    assert {name: value.shape for name, value in network.weights.items()} == {
        name: tensor.shape for name, tensor in graph.tensors.items()}


def test_who_reads_which_norm(tmp_path: Path) -> None:
    graph = load_network(write(tmp_path, make("bert-classifier"))).graph
    for wide, narrow in graph.wide_norms.items():
        assert wide == f"{narrow}.wide"
        assert {reader.op for reader in graph.readers(wide)} <= {"add"}
        assert {reader.op for reader in graph.readers(narrow)} <= {"linear"}
    assert len(graph.wide_norms) == 11
    assert graph.heads == {"pooler", "pooled", "classifier"}
    classifier = graph.by_name["classifier"]
    assert isinstance(classifier, Linear)
    assert (graph.output, classifier.columns) == ("classifier", 5)


@pytest.mark.parametrize("family", ["bert", "bert-classifier"])
def test_names_of_old_files(family: str, tmp_path: Path) -> None:
    """Those of TensorFlow's variables, and what old versions wrote beside."""
    made = make(family)
    plain = output(load_network(write(tmp_path / "a", made)), TEXT)
    prefix = "bert." if family == "bert-classifier" else ""
    old = renamed(made, ("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    old.tensors[f"{prefix}embeddings.position_ids"] = np.arange(64, dtype=np.int32)[None]
    assert np.array_equal(output(load_network(write(tmp_path / "b", old)), TEXT), plain)


def test_with_prefix_and_without_pooler(tmp_path: Path) -> None:
    made = make("bert")
    plain = output(load_network(write(tmp_path / "a", made)), TEXT)
    bare = Checkpoint(made.config, {
        f"bert.{name}": value for name, value in made.tensors.items() if "pooler" not in name})
    del bare.config["architectures"]
    assert np.array_equal(output(load_network(write(tmp_path / "b", bare)), TEXT), plain)


@pytest.mark.parametrize(("keys", "labels"), [
    ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3), ({"num_labels": 4, "id2label": None}, 4),
    ({"id2label": None}, 2), ({"num_labels": 2, "id2label": {"0": "no", "1": "yes"}}, 2)], ids=str)
def test_labels(keys: dict[str, Any], labels: int, tmp_path: Path) -> None:
    made = make("bert-classifier", labels=labels, layers=1, **keys)
    assert load_network(write(tmp_path, made)).graph.by_name["classifier"].columns == labels


@pytest.mark.parametrize(("family", "name", "says"), [
    ("bert-classifier", "bert.pooler.dense.bias", "lacks the tensor 'bert.pooler.dense.bias'"),
    ("bert-classifier", "classifier.bias", "lacks the tensor 'classifier.bias'"),
    ("bert", "encoder.layer.2.output.LayerNorm.bias", "lacks the tensor 'encoder.layer.2.output.LayerNorm.bias'"),
    ("bert", "embeddings.token_type_embeddings.weight", "lacks the tensor 'embeddings.token_type_embeddings.weight'")])
def test_missing(family: str, name: str, says: str, tmp_path: Path) -> None:
    made = make(family)
    del made.tensors[name]
    with pytest.raises(CompileError, match=says):
        load_network(write(tmp_path, made))


def test_wrong(tmp_path: Path) -> None:
    made = make("bert", layers=1)
    types_of = made.tensors["embeddings.token_type_embeddings.weight"]
    for value, says in ((types_of[:1], "token_type_embeddings.weight must have shape .2, 72., not .1, 72."),
                        (np.full_like(types_of, np.nan), "token_type_embeddings.weight must hold finite numbers")):
        made.tensors["embeddings.token_type_embeddings.weight"] = value
        with pytest.raises(CompileError, match=says):
            list(load_network(write(tmp_path, made)).weights.values())
    made = make("bert", layers=1)
    made.tensors["cls.predictions.bias"] = np.zeros(4, np.float32)
    with pytest.raises(CompileError, match="must not hold the tensor 'cls.predictions.bias'"):
        load_network(write(tmp_path, made))
