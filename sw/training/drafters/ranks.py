"""How much of what a drafter proposes the target accepts, on texts that it wrote greedily.

All follows from *ranks*: at an anchor, how high a drafter has the text's own next tokens, position by position. A chain
takes what has rank 0 up to the first that has not; a tree takes the longest of its paths that the ranks follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmule.sw.training.drafters.packed import save_arrays

__all__ = ["TOP", "TREES", "Ranks", "accepted_by", "grow", "judged", "load_ranks", "path_shares", "save_ranks",
           "summary", "tokens_a_step", "trees"]

TOP = 8
"""Proposals of a position that are ranked; a token that is none of them has this rank."""
TREES = (7, 15, 31)
"""Nodes of the trees that are told of."""
Path = tuple[int, ...]
"""A node of a tree: the rank taken at each position down to it."""


@dataclass(frozen=True)
class Ranks:
    """Of the anchors inside answers, text by text.

    Attributes:
        values: [anchors, positions].
        counts: anchors of each text.
        names: category of each text.
    """

    values: NDArray[np.int8]
    counts: NDArray[np.int64]
    names: tuple[str, ...]

    def where(self, names: Iterable[str]) -> Ranks:
        """Of the texts of some categories."""
        wanted = np.isin(self.names, list(names))
        return Ranks(self.values[np.repeat(wanted, self.counts)], self.counts[wanted],
                     tuple(name for name in self.names if name in set(names)))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Categories by what is told: each, all requests, all held-out texts."""
        names = sorted(set(self.names))
        held_out = tuple(name for name in names if name.startswith("held out"))
        requests = tuple(name for name in names if name not in held_out)
        found = {name: (name,) for name in names} | {"requests": requests, "held out": held_out}
        return {group: parts for group, parts in found.items() if parts}


def save_ranks(found: Mapping[str, Ranks], path: File) -> None:
    """Write several drafters' ranks of the same texts."""
    first = next(iter(found.values()))
    save_arrays(path, {"counts": first.counts, "names": np.array(first.names)}
                | {f"{kind}.ranks": one.values for kind, one in found.items()})


def load_ranks(path: File) -> dict[str, Ranks]:
    """Read what :func:`save_ranks` wrote."""
    with np.load(path) as arrays:
        names = tuple(str(name) for name in arrays["names"])
        return {name.removesuffix(".ranks"): Ranks(arrays[name], arrays["counts"], names)
                for name in arrays.files if name.endswith(".ranks")}


def tokens_a_step(accepted: Sequence[int]) -> tuple[int, int]:
    """(tokens, steps) of decoding an answer, from what each of its anchors would have accepted.

    The answer's first token comes from the prompt's own pass. A step commits what is accepted and one token more.
    """
    at = steps = 0
    while at < len(accepted):
        at, steps = min(at + accepted[at] + 1, len(accepted)), steps + 1
    return at, steps


def accepted_by(ranks: NDArray[np.int8], paths: Iterable[Path]) -> NDArray[np.int64]:
    """How many tokens of a tree with these nodes are accepted at each anchor."""
    accepted = np.zeros(len(ranks), np.int64)
    for path in paths:
        follows = (ranks[:, :len(path)] == np.array(path, np.int8)).all(1)
        accepted[follows] = np.maximum(accepted[follows], len(path))
    return accepted


def path_shares(ranks: NDArray[np.int8], most: int = 63) -> list[tuple[Path, float]]:
    """Paths of ranks with the share of anchors at which every token of the path is right, the largest first.

    The first n of them are the tree of n candidates with the most tokens a step (Cai et al. 2024, section 2.3.3, which
    takes products of the heads' accuracies for the shares); a path comes behind those that it goes on from.
    """
    found: list[tuple[int, Path]] = []
    for depth in range(1, ranks.shape[1] + 1):
        inside = ranks[(ranks[:, :depth] < TOP).all(1), :depth]
        rows, counts = np.unique(inside, axis=0, return_counts=True)
        found += [(-int(count), tuple(row.tolist())) for row, count in zip(rows, counts, strict=True)]
    best = sorted(found, key=lambda one: (one[0], len(one[1]), one[1]))[:most]
    return [(path, -count / len(ranks)) for count, path in best]


def grow(ranks: NDArray[np.int8], nodes: int) -> list[Path]:
    """The tree of so many nodes that accepts most on these anchors: the prefixes of ranks that occur most often."""
    return [path for path, _ in path_shares(ranks, nodes)]


def summary(ranks: Ranks, tree: Sequence[Path] | None = None) -> dict[str, Any]:
    """Acceptance of chains of 1, 2, … proposals: ``reached``, the share of anchors whose first ones are all right, and
    ``tokens_a_step``; the latter for a tree too where one is given.
    """
    positions = ranks.values.shape[1]
    right = np.cumprod(ranks.values == 0, 1)
    found: dict[str, Any] = {
        "texts": len(ranks.counts), "anchors": len(ranks.values),
        "reached": [round(float(one), 4) for one in right.mean(0)],
        "tokens_a_step": [_rate(right[:, :most].sum(1), ranks.counts) for most in range(1, positions + 1)]}
    if tree is not None:
        found["tokens_a_step_of_tree"] = _rate(accepted_by(ranks.values, tree), ranks.counts)
    return found


def judged(ranks: Ranks) -> dict[str, Any]:
    """A summary of each category, of all requests and of all held-out texts."""
    return {group: summary(ranks.where(names)) for group, names in ranks.groups().items()}


def trees(ranks: Ranks) -> dict[str, Any]:
    """Trees grown on held-out texts, measured on the requests and on each of their categories."""
    groups = ranks.groups()
    if "held out" not in groups or "requests" not in groups:
        return {}
    found = {}
    for nodes in TREES:
        tree = grow(ranks.where(groups["held out"]).values, nodes)
        found[str(nodes)] = {"paths": tree, "tokens_a_step": {
            group: summary(ranks.where(names), tree)["tokens_a_step_of_tree"]
            for group, names in groups.items() if not group.startswith("held out")}}
    return found


def _rate(accepted: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
    tokens = steps = 0
    for part in np.split(accepted, np.cumsum(counts)[:-1]):
        more, taken = tokens_a_step(part.tolist())
        tokens, steps = tokens + more, steps + taken
    return round(tokens / max(1, steps), 4)
