"""Jacobi decoding: the next tokens are guessed all at once, and every pass mends the guess (Santilli et al. 2023).

With greedy decoding the next n tokens solve n equations, token i = argmax of what stands before it. A pass over a guess
of all n gives what each equation says: one step of Jacobi's iteration. Tokens that agree with it from the front on are
those of autoregressive decoding and stay; the answers behind them are the next guess. No model but the target runs, and
nothing is learned or looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "Jacobi"]


class Jacobi(Paced):
    """Guesses by the target's own answers behind the last guess, and where there is none by tokens of the text."""

    def __init__(self, lengths: Lengths | int, host: Host | None = None) -> None:
        """``lengths``: tokens of a guess, as of :class:`Paced`."""
        super().__init__(lengths, host)
        self.guess: list[int] = []

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.guess = []

    def propose(self, ids: list[int], budget: int) -> Tree:
        count = min(self.lengths.most(), budget)
        while len(self.guess) < count:  # where the iteration begins does not change the text; these are as good as any
            self.guess.append(ids[-1 - len(self.guess) % len(ids)])
        self.drafted = count
        return Tree.chain(ids[-1], self.guess[:count])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        # Answer i is behind guess i: those behind the first wrong guess are the next ones.
        self.guess = out.argmax[len(path):self.drafted + 1]
        super().observe(out, path, new)


def _make(request: Request) -> Jacobi:
    return Jacobi(request.lengths, request.host)


METHOD = Method(
    name="jacobi", make=_make,
    says="Jacobi iteration, which guesses several tokens at once and improves the guess with every pass",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=7, help="Tokens drafted per step."))
