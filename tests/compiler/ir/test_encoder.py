"""Encoders in both interpreters: rows see their whole sequence, norms leave at two widths, token types choose rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gemmule import numerics
from gemmule.compiler import CompileError
from gemmule.compiler.ir import Cache, Graph, IntegerInterpreter, Network, Norm, Rows, layer_part

from ..integer_encoders import EncoderSizes, random_encoder


def drawn(seed: int, count: int, vocab: int = 61) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, count)]


def values(network: Network, rows: Rows) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    IntegerInterpreter(network).forward(rows, Cache(network.graph), found.__setitem__)
    return found


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)  # [heads, rows, head_dim]


def encoded(network: Network, i: int, narrow: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layer i of one sequence from the device's arithmetic alone: its int8 and int16 rows."""
    nodes, tensor = network.graph.by_name, network.tensor

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        weight, bias, mult, shift = (tensor(nodes[f"{i}.{name}"], role).astype(np.int64)
                                     for role in ("weight", "bias", "mult", "shift"))
        return numerics.requant((x @ weight.T + bias).astype(np.int32), mult, shift)

    def norm(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Twice from one statistic and one set of factors, with two shifts."""
        first, second = nodes[f"{i}.{name}"], nodes[f"{i}.{name}.wide"]
        assert all(first.tensors[role] == second.tensors[role] for role in ("gamma", "beta"))
        gamma, beta, (shift, mult, eps_shift) = (tensor(first, role).astype(np.int64)
                                                 for role in ("gamma", "beta", "scalars"))
        statistic = numerics.norm_statistic(x, int(mult), int(eps_shift), mean=True)
        shifts = (int(shift), 8), (int(tensor(second, "scalars")[0]), 16)
        a, b = (numerics.normalize(x, *statistic, gamma, by, beta=beta, bits=bits) for by, bits in shifts)
        return a, b

    attention = next(node for node in network.graph.attentions if node.layer == i)
    parts = [heads(numerics.requant_store(linear(name, narrow)), attention.heads) for name in ("query", "key", "value")]
    score, context = (tensor(attention, role).astype(np.int64) for role in ("score", "context"))
    seen, mixed = np.ones((len(narrow), len(narrow)), dtype=bool), []
    for h, (q, k, v) in enumerate(zip(*parts, strict=True)):
        t = numerics.scores(q @ k.T, *map(int, score[h]))
        probabilities, total = numerics.row_probabilities(t, numerics.row_max(t, seen), seen)
        reciprocal, length = numerics.softmax_reciprocal(total)
        mixed.append(numerics.saturate(numerics.requant_row(
            probabilities @ v, reciprocal, length, *map(int, context[h])), 8))
    y = linear("output", np.stack(mixed, 1).reshape(len(narrow), -1))
    narrow, wide = norm("attention_norm", numerics.requant_store(y, residual=wide))
    table = tensor(nodes[f"{i}.activation"], "table")
    inner = numerics.requant_store(linear("up", narrow), table=table)
    return norm("output_norm", numerics.requant_store(linear("down", inner), residual=wide))


def test_layers_by_the_arithmetic_alone() -> None:
    network = random_encoder(EncoderSizes(shared=True), 3)
    found = values(network, Rows.chain(drawn(1, 17)))
    narrow, wide = found["norm"], found["norm.wide"]
    assert narrow.std() > 20
    for i in range(network.graph.layers):
        narrow, wide = encoded(network, i, narrow, wide)
        assert np.array_equal(narrow, found[f"{i}.output_norm"])
        assert np.array_equal(wide, found[f"{i}.output_norm.wide"])
    assert network.graph.output == "1.output_norm.wide"


def test_factors_of_their_own() -> None:
    """Each width is its own norm of the same sum."""
    network = random_encoder(EncoderSizes(), 3)
    graph = network.graph
    assert graph.wide_norms == random_encoder(EncoderSizes(shared=True), 3).graph.wide_norms
    assert len(graph.wide_norms) == 5
    found = values(network, Rows.chain(drawn(1, 9)))
    for wide, narrow in graph.wide_norms.items():
        for name, bits in ((narrow, 8), (wide, 16)):
            node = graph.by_name[name]
            assert isinstance(node, Norm)
            gamma, beta, (shift, mult, eps_shift) = (
                network.tensor(node, role).astype(np.int64) for role in ("gamma", "beta", "scalars"))
            x = found[node.x]
            statistic = numerics.norm_statistic(x, int(mult), int(eps_shift), mean=True)
            wanted = numerics.normalize(x, *statistic, gamma, int(shift), beta=beta, bits=bits)
            assert np.array_equal(found[name], wanted)
        assert not np.array_equal(found[narrow], np.clip(found[wide] + 64 >> 7, -128, 127))  # other factors


def test_every_row_sees_its_whole_sequence_and_no_other() -> None:
    network, parts = random_encoder(EncoderSizes(), 4), [drawn(2, 9), drawn(3, 1), drawn(4, 14)]
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    together = interpreter.forward(Rows.ragged(parts, [0, 0, 0]), cache)
    again = interpreter.forward(Rows.ragged(parts, [0, 0, 0]), cache)
    assert np.array_equal(together, again)  # nothing is kept between passes
    alone = [interpreter.forward(Rows.chain(part), Cache(network.graph)) for part in parts]
    assert np.array_equal(together, np.concatenate(alone))
    other = interpreter.forward(Rows.chain([*parts[0][:-1], (parts[0][-1] + 1) % 61]), Cache(network.graph))
    assert (other[0] != alone[0][0]).any()  # the first row sees the last


def test_types_choose_parts_of_the_table() -> None:
    network = random_encoder(EncoderSizes(types=3, positions=20), 5)
    table = network.weights["positions.table"]
    assert network.graph.types == 3
    rows = Rows.chain(drawn(1, 5)).typed([0, 2, 1, 0, 2])
    assert np.array_equal(values(network, rows)["positions"], table[[0, 41, 22, 3, 44]])
    assert np.array_equal(values(network, Rows.chain(drawn(1, 5)))["positions"], table[:5])
    assert rows.take(np.array([1, 3])).table_rows(20).tolist() == [41, 3]
    with pytest.raises(CompileError, match="token types must be from 0 to 2, not 3"):
        values(network, Rows.chain([1]).typed([3]))


@pytest.mark.parametrize("types", [[0], [0, -1], [0, 0, 0]], ids=str)
def test_types_of_rows_refused(types: list[int]) -> None:
    with pytest.raises(CompileError, match="each of 2 rows must have a type of at least 0"):
        Rows.chain([1, 2]).typed(types)


def test_classifier() -> None:
    network = random_encoder(EncoderSizes(labels=3), 6)
    found = values(network, Rows.chain(drawn(1, 11)))
    assert found[network.graph.output].shape == (11, 3)
    assert np.array_equal(found["pooled"], numerics.lookup(found["pooler"], network.weights["pooled.table"]))


def changed(network: Network, name: str, **fields: Any) -> Graph:
    nodes = [node.model_dump() | (fields if node.name == name else {}) for node in network.graph.nodes]
    return Graph.model_validate(network.graph.model_dump() | {"nodes": nodes})


def test_refused() -> None:
    network = random_encoder(EncoderSizes(), 1)
    assert network.graph.encoder
    with pytest.raises(ValidationError, match="attentions must all be causal, or none"):
        changed(network, "1.attention", causal=True)
    with pytest.raises(ValidationError, match="'1.attention' must be causal to have a window, not 5"):
        changed(network, "1.attention", window=5)
    with pytest.raises(CompileError, match="layers of an encoder cannot be run apart"):
        layer_part(network, (0, 1))
