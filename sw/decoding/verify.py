"""Rules of acceptance: how a pass of the target decides which candidates stay, and how a draft model chooses its own.

Greedy: the largest logit. Match: the target samples each token by noise of its position, a candidate stays where it is
that token; the text is that of autoregressive sampling with the same seed, whatever is proposed. Rejection: a sampled
candidate stays with probability min(1, p / q), else a token is drawn of what p has more than q; the text has the law
of autoregressive sampling (Leviathan et al. 2023, theorem 3.1; Chen et al. 2023). All in integers, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from typing import Protocol, Self

import numpy as np

from gemmule.sw.decoding.noise import Noise, Purpose
from gemmule.sw.decoding.sampling import Sampling, draw, shared_draw
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.step import Forward, Want

__all__ = ["GREEDY", "Chosen", "Greedy", "Match", "Rejection", "Rule", "cut_at_stop", "greedy"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A draft's token, the weights that it was drawn by (None: there was no chance in it), the most likely's chance."""

    token: int
    weights: np.ndarray | None = None
    confidence: float = 1.0


class Rule(Protocol):
    """How candidates are chosen and accepted. ``position``: of the token behind the pending one, in the text."""

    same_text: bool
    """Whether the text is that of autoregressive decoding, token by token (else only its law is the same)."""

    def of_text(self, number: int) -> Rule:
        """The same rule for another text, with draws of its own."""

    def drafting(self) -> Rule:
        """The same rule for drafts that are verified among themselves before the target verifies them."""

    def want(self, last: int | None = None, confidence: bool = False) -> Want:
        """What a pass must give back of its last rows; ``confidence``: also how likely tokens are."""

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        """The accepted node path, from node 0, and the committed tokens: one behind each of its nodes.

        ``out`` has an answered row for each node, ``scale`` is that of its logits.
        """

    def propose(self, out: Forward, scale: float, position: int) -> Chosen:
        """What a draft model proposes for a position, by the last row of its pass."""


def _walk(tree: Tree, choice: Callable[[int, int], int]) -> tuple[list[int], list[int]]:
    """Down from the pending token while a child is what the target chose behind its parent: ``choice(node, depth)``."""
    path, new = [0], [choice(0, 0)]
    while True:
        node = next((c for c in tree.children(path[-1]) if tree.tokens[c] == new[-1]), None)
        if node is None:
            return path, new
        path.append(node)
        new.append(choice(node, len(new)))


def greedy(tree: Tree, argmax: list[int]) -> tuple[list[int], list[int]]:
    """Walk down from the pending token while a child equals the target's argmax.

    ``argmax[i]`` is the target's choice after node i. Returns the accepted node path (from node 0)
    and the committed tokens: the choices along the path, the last being the correction or bonus.
    (Leviathan et al. 2023, section 2.3 at temperature 0.)
    """
    return _walk(tree, lambda node, depth: argmax[node])


@dataclass(frozen=True)
class Greedy:
    """The token with the largest logit; of equal ones the lowest."""

    same_text = True

    def of_text(self, number: int) -> Rule:
        return self

    def drafting(self) -> Rule:
        return self

    def want(self, last: int | None = None, confidence: bool = False) -> Want:
        return Want(last=last, logits=confidence)

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        return greedy(tree, out.argmax)

    def propose(self, out: Forward, scale: float, position: int) -> Chosen:
        if out.logits is None:
            return Chosen(out.argmax[-1])
        logits = out.logits[-1].astype(np.float64)
        return Chosen(out.argmax[-1], confidence=1 / float(np.exp((logits - logits.max()) * scale).sum()))


GREEDY = Greedy()


@dataclass(frozen=True)
class _Sampled:
    sampling: Sampling
    noise: Noise

    def of_text(self, number: int) -> Self:
        return replace(self, noise=replace(self.noise, sequence=number))

    def drafting(self) -> Self:
        return self

    def want(self, last: int | None = None, confidence: bool = False) -> Want:
        return Want(last=last, logits=last != 0)

    def _weights(self, out: Forward, row: int, scale: float) -> np.ndarray:
        assert out.logits is not None
        return self.sampling.weights(out.logits[row], scale)


@dataclass(frozen=True)
class Match(_Sampled):
    """Target and draft draw by the same noise; a candidate stays where it is the target's token."""

    same_text = True

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        return _walk(tree, lambda node, depth: shared_draw(
            self._weights(out, node, scale), self.noise, position + depth))

    def propose(self, out: Forward, scale: float, position: int) -> Chosen:
        weights = self._weights(out, -1, scale)
        return Chosen(shared_draw(weights, self.noise, position), confidence=_largest(weights))


@dataclass(frozen=True)
class Rejection(_Sampled):
    """A candidate drawn by q stays with probability min(1, p / q); behind rejected ones by what is left of p.

    Several candidates for one position are tried in their order, each against what the ones before left (SpecInfer,
    Miao et al. 2024, algorithm 2); one without weights counts as drawn from a single token.
    """

    same_text = False

    def drafting(self) -> Self:
        return replace(self, noise=self.noise.drafting())

    def verify(self, tree: Tree, out: Forward, scale: float, position: int) -> tuple[list[int], list[int]]:
        path: list[int] = [0]
        new: list[int] = []
        while True:
            left, at = self._weights(out, path[-1], scale), position + len(new)
            for number, node in enumerate(tree.children(path[-1])):
                left, accepted = self._try(left, tree, node, at, number)
                if accepted:
                    path.append(node)
                    new.append(tree.tokens[node])
                    break
            else:
                new.append(draw(left, self.noise, at, Purpose.TOKEN))
                return path, new

    def _try(self, p: np.ndarray, tree: Tree, node: int, position: int, number: int) -> tuple[np.ndarray, bool]:
        """Whether the candidate stays; if not, what is left of ``p``: integer weights of any size."""
        token, q = tree.tokens[node], tree.weights.get(node)
        total = int(p.sum())
        if q is None:
            if self.noise.below(total, position, Purpose.ACCEPT, number) < int(p[token]):
                return p, True
            left = p.copy()
            left[token] = 0
            return left, False
        drawn = int(q.sum())
        most, share = int(q[token]) * total, int(p[token]) * drawn
        if share >= most or self.noise.below(most, position, Purpose.ACCEPT, number) < share:
            return p, True
        rest = np.maximum(p.astype(object) * drawn - q.astype(object) * total, 0)
        divisor = gcd(*(int(value) for value in rest if value))
        return rest // divisor, False

    def propose(self, out: Forward, scale: float, position: int) -> Chosen:
        weights = self._weights(out, -1, scale)
        return Chosen(draw(weights, self.noise, position, Purpose.DRAFT), weights, _largest(weights))


def _largest(weights: np.ndarray) -> float:
    return float(weights.max() / weights.sum())


def cut_at_stop(new: list[int], stop: frozenset[int]) -> tuple[list[int], bool]:
    """Cut after the first stop token, which is kept; True if there was one."""
    for i, token in enumerate(new):
        if token in stop:
            return new[:i + 1], True
    return new, False
