"""How often each rank of a drafter's candidates is right, and the tree that this makes worth its cycles."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from gemmule.sw.decoding.generation import loops
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.tree import Drafter, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["Ranks", "count_ranks"]

T = TypeVar("T")


@dataclass
class Ranks:
    """Of candidates behind accepted ones, by their place among their siblings, the drafter's likeliest first."""

    tried: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    texts: int = 0

    def add(self, tree: Tree, path: Sequence[int]) -> None:
        """What became of a tree."""
        for node in path:
            for rank, child in enumerate(tree.children(node)):
                self._count(rank, 1, int(child in path))

    def join(self, text: Ranks) -> None:
        """A text more."""
        self.texts += 1
        for rank, (tried, right) in enumerate(zip(text.tried, text.right)):
            self._count(rank, tried, right)

    def _count(self, rank: int, tried: int, right: int) -> None:
        for counts, more in ((self.tried, tried), (self.right, right)):
            counts += [0] * (rank + 1 - len(counts))
            counts[rank] += more

    def shares(self) -> list[float]:
        """How often each was right; no rank more often than the one before."""
        found: list[float] = []
        for right, tried in zip(self.right, self.tried):
            found.append(min([right / tried, *found[-1:]]))
        return found


class _Watched(Drafter):
    """A drafter whose trees are counted."""

    def __init__(self, inner: Drafter, ranks: Ranks) -> None:
        self.inner, self.ranks, self.launches = inner, ranks, inner.launches
        self.tree = Tree.chain(0, [])

    def want(self) -> Want | None:
        return self.inner.want()

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None] | None:
        return self.inner.begin(ids, dropped)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        found = self.inner.propose(ids, budget)
        self.tree = (yield from found) if isinstance(found, Generator) else found
        return self.tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.ranks.add(self.tree, path)
        self.inner.observe(out, path, new)


def count_ranks(session: Session, method: str, prompts: Sequence[list[int]], new_tokens: int, stop: frozenset[int],
                drafts: int | None = None, options: Mapping[str, Any] = NONE,
                progress: Callable[[int], None] | None = None) -> Ranks:
    """Of a method's trees behind prompts. Texts that loop, where every guess is right, do not count, unless all do."""
    counted, looping = Ranks(), Ranks()
    for number, ids in enumerate(prompts, 1):
        talk, ranks = session.converse(method, drafts, stop, options=options), Ranks()
        talk.drafter = _Watched(talk.drafter, ranks)
        run = talk.turn(ids, new_tokens)
        talk.close()
        (looping if loops(run.tokens) else counted).join(ranks)
        if progress is not None:
            progress(number)
    return counted if counted.texts else looping
