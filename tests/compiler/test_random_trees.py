"""A thousand random trees: each row is that of a pass over its path alone, on the device bit for bit as interpreted.

Trees of every form: chains, stars, bushes whose paths differ in length, equal tokens under one parent, tokens 0, as
many rows as a pass has and fewer, so that the others are padding, and up to the last position. A path of each stays,
moved where it does not stand in place, and the next tree goes on behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.config import load_config
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench

SEED = 20261127
TREES, PARTS = 34, 5
"""Of a case, in each of its parts: 1,020 trees of all. The first parts are quick."""
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=4, kv_heads=2, head_dim=16, layers=2, vocab=61, positions=48)
CASES = {
    "shared heads": (LLAMA, "base", 16), "edge": (LLAMA, "edge", 8), "four rows": (replace(LLAMA, layers=1), "tiny", 4),
    "learned positions": (Sizes(family="gpt2", hidden=32, heads=4, kv_heads=4, positions=40), "edge", 8),
    "behind a prefix": (replace(LLAMA, prefix=3), "base", 8),
    "int4 by groups": (replace(LLAMA, hidden=64, bits=4, group=32), "edge", 6)}


@dataclass(frozen=True)
class Drawn:
    """A tree: tokens and parents by node, the first one's being -1."""

    tokens: list[int]
    parent: list[int]

    def path(self, node: int) -> list[int]:
        """From the first node to this one."""
        return [*(self.path(self.parent[node]) if node else ()), node]

    def kinds(self, most: int, left: int) -> set[str]:
        """What it has of what a test must see; ``left``: positions behind its first row."""
        pairs = list(zip(self.parent, self.tokens))
        depths = [len(self.path(node)) - 1 for node in range(len(self.tokens))]
        leaves = [depth for node, depth in enumerate(depths) if node not in self.parent]
        return {name for name, found in (
            ("siblings", len(set(self.parent)) < len(pairs)), ("equal siblings", len(set(pairs)) < len(pairs)),
            ("paths of different lengths", len(set(leaves)) > 1), ("token 0", 0 in self.tokens[1:]),
            ("padding rows", len(pairs) < most), ("all rows", len(pairs) == most),
            ("the last position", max(depths) == left)) if found}


def drawn(random: np.random.Generator, vocab: int, count: int, deepest: int) -> Drawn:
    """A random tree of so many nodes, none deeper than that."""
    reach = int(random.choice([1, 2, 4, 16]))  # how far back a parent may stand: 1 is a chain
    few = int(random.choice([1, 2, vocab]))  # tokens to draw from
    parent, depth = [-1], [0]
    for node in range(1, count):
        may = [other for other in range(max(0, node - reach), node) if depth[other] < deepest] or [0]
        parent.append(int(random.choice(may)))
        depth.append(depth[parent[-1]] + 1)
    return Drawn(random.integers(0, few, count).tolist(), parent)


def by_paths(interpreter: IntegerInterpreter, cache: Cache, tree: Drawn, names: Sequence[str],
             ) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Logits of each node, and its keys and values by attention node, from passes over one row behind its ancestors."""
    at, logits, rows = cache.length(), [], []
    found: dict[int, tuple[np.ndarray, list[np.ndarray]]] = {}
    waiting = [(0, 0)]
    while waiting:
        node, depth = waiting.pop()
        cache.truncate(at + depth)
        answer = interpreter.forward(Rows.chain([tree.tokens[node]], at + depth), cache)[0]
        found[node] = answer, [part[-1] for name in names for part in cache.contents(name)]
        waiting += [(child, depth + 1) for child, parent in enumerate(tree.parent) if parent == node]
    cache.truncate(at)
    for node in range(len(tree.tokens)):
        logits.append(found[node][0])
        rows.append(found[node][1])
    return np.array(logits), rows


def check(sizes: Sizes, config: str, most: int, count: int, seed: int) -> Counter[str]:
    """So many trees of a network on a device; what they had."""
    network = random_network(sizes, seed)
    program = compile_network(network, load_config(config), rows=most)
    bench, random, seen = Bench(program, network), np.random.default_rng(seed), Counter[str]()
    names, alone = [node.name for node in network.graph.attentions], IntegerInterpreter(network)
    for number in range(count):
        if (at := bench.cache.length()) == program.max_positions or random.random() < 0.1:
            at = min(at, sizes.prefix + int(random.integers(0, 4)))
            bench.cache.truncate(at)  # what is behind is overwritten
        left = program.max_positions - at
        if (near := int(random.integers(1, most + 1))) < left and random.random() < 0.2:
            bench.fill_cache(left - near, seed + number)
            at, left = program.max_positions - near, near
        rows = most if random.random() < 0.3 else int(random.integers(1, most + 1))
        tree = drawn(random, sizes.vocab, min(rows, left), left - 1)
        seen.update(tree.kinds(most, left - 1))
        expected, cached = by_paths(alone, bench.cache, tree, names)
        rows_of = Rows.tree(tree.tokens, tree.parent, at)
        np.testing.assert_array_equal(alone.forward(rows_of, bench.cache), expected)
        for node, parts in enumerate(cached):
            for part, own in zip((part for name in names for part in bench.cache.contents(name)), parts, strict=True):
                np.testing.assert_array_equal(part[at + node], own)
        bench.cache.truncate(at)
        bench.forward(rows_of)
        bench.keep(0, at, tree.path(int(random.integers(0, len(tree.tokens)))))
    return seen


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_tree_are_those_of_its_paths(name: str, part: int) -> None:
    print(f"seed {SEED + part}")
    sizes, config, most = CASES[name]
    seen = check(sizes, config, most, TREES, SEED + part)
    for kind in ("siblings", "equal siblings", "paths of different lengths", "token 0", "padding rows", "all rows",
                 "the last position"):
        assert seen[kind] > 1, f"only {seen[kind]} of {TREES} trees have {kind}"


def test_a_tree_whose_rows_see_all_before_them_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal mask in the place of a tree's is wrong wherever there are branches."""
    made = Rows.tree

    def wrong(tokens: list[int], parent: list[int], first: int) -> Rows:
        rows = made(tokens, parent, first)
        return replace(rows, mask=np.tril(np.ones_like(rows.mask)))

    monkeypatch.setattr(Rows, "tree", wrong)
    with pytest.raises(AssertionError):
        check(*CASES["four rows"], TREES, SEED)
