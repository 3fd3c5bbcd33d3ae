"""Jacobi decoding: the next tokens are guessed all at once, and every pass mends the guess (Santilli et al. 2023).

With greedy decoding the next n tokens solve n equations, token i = argmax of what stands before it. A pass over a guess
of all n gives what each equation says: one step of Jacobi's iteration. Tokens that agree with it from the front on are
those of autoregressive decoding and stay; the answers behind them are the next guess. No model but the target runs, and
nothing is learned or looked up.

The rows of a guess see one another in order, so one chain of n + 1 rows holds all its prefixes. With ``--jacobi-form
forks`` each prefix is a row of its own behind the text, as in a batch of forked sequences, one for each equation: the
same answers from (n + 1) (n + 2) / 2 rows, of which a pass takes fewer equations. It is there to show what that costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Extra, Tree
from gemmule.sw.limits import DRAFTS

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "Jacobi"]


class Jacobi(Paced):
    """Guesses by the target's own answers behind the last guess, and where there is none by tokens of the text."""

    def __init__(self, lengths: Lengths | int, host: Host | None = None, *, forks: bool = False) -> None:
        """``lengths``: tokens of a guess, as of :class:`Paced`; ``forks``: each prefix of it is a chain of its own."""
        super().__init__(lengths, host)
        self.forks = forks
        self.guess: list[int] = []

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.guess = []

    def propose(self, ids: list[int], budget: int) -> Tree:
        count = min(self.lengths.most(), budget)
        while self.forks and count * (count + 3) // 2 > budget:
            count -= 1
        while len(self.guess) < count:  # where the iteration begins does not change the text; these are as good as any
            self.guess.append(ids[-1 - len(self.guess) % len(ids)])
        self.drafted = count
        chain = Tree.chain(ids[-1], self.guess[:count])
        return replace(chain, extra=_forks(chain.tokens)) if self.forks else chain

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        # Answer i is behind guess i: those behind the first wrong guess are the next ones.
        answers = out.argmax[:self.drafted + 1]
        if self.forks:
            answers[:-1] = [out.argmax[self.drafted + (size + 1) * (size + 2) // 2] for size in range(self.drafted)]
        self.guess = answers[len(path):]
        super().observe(out, path, new)


def _forks(tokens: list[int]) -> list[Extra]:
    """Every shorter prefix of a chain as a chain of its own, the shortest first."""
    found: list[Extra] = []
    for size in range(1, len(tokens)):
        first = len(tokens) + len(found)
        found += [Extra(token, depth, tuple(range(first, first + depth))) for depth, token in enumerate(tokens[:size])]
    return found


def _make(request: Request) -> Jacobi:
    return Jacobi(request.lengths, request.host, forks=request.options["jacobi_form"] == "forks")


METHOD = Method(
    name="jacobi",
    cuts="length: a pass answers several positions ahead; no pass drafts",
    source="Santilli et al. 2023 (arXiv 2305.10427)",
    make=_make,
    says="Jacobi iteration, which guesses several tokens at once and improves the guess with every pass",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=7, help="Tokens drafted per step."),
    options=(Option(name="--jacobi-form", limits=("chain", "forks"), default="chain",
                    help="Whether one chain has all prefixes of a guess, or each is a row of a batch."),))
