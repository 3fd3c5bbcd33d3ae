"""Rows that choose pages of the cache: the interpreter beside a plain rewrite, and what must not change anything."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Pages, Rows
from gemmule.compiler.ir.pages import page_means, page_scores
from tests.compiler.integer_networks import Sizes, random_network

SIZES = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61, positions=200)
HALF = Pages(page=4, keep=0.5, first=3, last=8, whole=20)
KINDS = {"plain": SIZES, "prefix": replace(SIZES, prefix=2), "gpt2": replace(SIZES, family="gpt2", kv_heads=6)}


def _network(kind: str) -> Network:
    return random_network(KINDS[kind], 5)


def _tokens(count: int) -> list[int]:
    return np.random.default_rng(7).integers(0, SIZES.vocab, count).tolist()


def _logits(network: Network, pages: Pages | None, tokens: list[int], cuts: list[int]) -> np.ndarray:
    """Of all rows, passed in pieces that end at ``cuts``."""
    interpreter, cache, found, at = IntegerInterpreter(network, pages), Cache(network.graph), [], 0
    for end in [*cuts, len(tokens)]:
        rows = Rows.chain(tokens[at:end], at).behind(network.graph.prefix)
        found.append(interpreter.forward(rows, cache))
        at = end
    return np.concatenate(found)


@pytest.mark.parametrize("kind", KINDS)
def test_keeping_everything_is_dense(kind: str) -> None:
    network, tokens = _network(kind), _tokens(70)
    dense = _logits(network, None, tokens, [])
    for pages in (replace(HALF, keep=1.0), replace(HALF, whole=70), replace(HALF, keep=70)):
        np.testing.assert_array_equal(_logits(network, pages, tokens, []), dense)
    assert (_logits(network, HALF, tokens, []) != dense).any()


@pytest.mark.parametrize("kind", KINDS)
def test_passes_may_be_cut_anywhere(kind: str) -> None:
    """What a row sees depends on no other row of its pass."""
    network, tokens = _network(kind), _tokens(70)
    whole = _logits(network, HALF, tokens, [])
    for cuts in ([33], [8, 16, 17, 40, 41, 48, 63], list(range(1, 70))):
        np.testing.assert_array_equal(_logits(network, HALF, tokens, cuts), whole)


def test_a_branch_of_a_tree_sees_what_it_sees_as_a_chain() -> None:
    """And one that is deeper than the newest rows is refused."""
    network, tokens = _network("plain"), _tokens(50)
    branch = _tokens(54)[50:]
    rows = Rows.chain([branch[0], 3, *branch[1:]], 50)
    positions, mask = rows.positions.copy(), rows.mask.copy()
    positions[2:] = [51, 52, 53]  # row 1 is a sibling of row 2
    mask[2:, 1] = False
    tree = replace(rows, positions=positions, mask=mask)
    interpreter, cache = IntegerInterpreter(network, HALF), Cache(network.graph)
    interpreter.forward(Rows.chain(tokens, 0), cache)
    found = interpreter.forward(tree, cache)[[0, 2, 3, 4]]
    np.testing.assert_array_equal(found, _logits(network, HALF, tokens + branch, [])[50:])
    cache = Cache(network.graph)
    interpreter = IntegerInterpreter(network, replace(HALF, page=2, last=2))
    interpreter.forward(Rows.chain(tokens, 0), cache)
    with pytest.raises(CompileError, match="at most 2 rows deep"):
        interpreter.forward(tree, cache)


def _plain(node_scores: tuple[int, int], node_context: tuple[int, int], query: np.ndarray, keys: np.ndarray,
           values: np.ndarray, pages: Pages, shift: int) -> np.ndarray:
    """Contexts of the heads of one KV head, of the last of the rows  # query [heads, size], keys and values [rows,
    size]."""
    seen, page = len(keys), pages.page
    sinks, settled = -(-pages.first // page), max(0, seen - pages.last) // page
    candidates = list(range(sinks, settled))
    wanted = seen if seen <= pages.whole else ceil(pages.keep * seen)
    count = (wanted - (seen - len(candidates) * page)) // page
    scores = {}
    for number in candidates:
        mean = np.floor(keys[number * page:(number + 1) * page].sum(axis=0) / page + 0.5).astype(np.int64)
        scores[number] = (int((query @ mean).sum()) + (1 << shift - 1 if shift else 0)) >> shift
    kept = sorted(sorted(candidates, key=lambda number: (-scores[number], number))[:max(0, count)])
    rows = [*range(min(sinks, settled) * page), *(row for number in kept for row in range(number * page, (
        number + 1) * page)), *range(settled * page if candidates else min(sinks, settled) * page, seen)]
    rows = sorted(set(rows))
    t = numerics.scores(query @ keys[rows].T, *node_scores)
    every = np.full(len(t), len(rows))
    p, total = numerics.row_probabilities(t, numerics.row_max(t, every), every)
    reciprocal, length = numerics.softmax_reciprocal(total)
    return numerics.saturate(numerics.requant_row(p @ values[rows], reciprocal, length, *(
        np.full(len(t), value) for value in node_context)), 8)


def test_a_plain_rewrite_gives_the_same_contexts() -> None:
    network, tokens = _network("plain"), _tokens(60)
    node = network.graph.attentions[0]
    interpreter, cache, found = IntegerInterpreter(network, HALF), Cache(network.graph), {}
    interpreter.forward(Rows.chain(tokens, 0), cache, lambda name, value: found.setdefault(name, value))
    query, key, value = (found[name].reshape(60, -1, node.head_dim) for name in node.inputs)
    score, context = (network.tensor(node, role).astype(np.int64) for role in ("score", "context"))
    share = node.heads // node.kv_heads
    for row in range(60):
        for kv in range(node.kv_heads):
            heads = slice(kv * share, (kv + 1) * share)
            expected = _plain(tuple(score[kv * share]), tuple(context[kv * share]), query[row, heads],
                              key[:row + 1, kv], value[:row + 1, kv], HALF, 5)
            np.testing.assert_array_equal(
                found[node.name][row].reshape(node.heads, -1)[heads], expected, err_msg=f"row {row}, head {kv}")


def test_scores_of_the_largest_numbers_are_16_bits() -> None:
    node = _network("plain").graph.attentions[0]
    low = np.full((6, 1, 16), -128)
    scores = page_scores(node, low, page_means(np.full((2, 4, 16), -128), HALF))
    assert scores.max() <= (1 << 15) - 1
    assert scores.min() == 3 * 16 * 128 * 128 >> 5


@pytest.mark.parametrize("pages", [HALF, replace(HALF, keep=24), replace(HALF, keep=0.1), replace(HALF, first=0)])
def test_rows_that_are_seen(pages: Pages) -> None:
    """As many as wanted, up to a page less; or those that always are."""
    for seen in range(1, 200):
        rows, least = pages.rows(seen), seen - pages.candidates(seen) * pages.page
        wanted = seen if seen <= pages.whole else ceil(pages.keep * seen) if pages.keep < 1 else int(pages.keep)
        assert rows == least or wanted - pages.page < rows <= min(seen, wanted)
