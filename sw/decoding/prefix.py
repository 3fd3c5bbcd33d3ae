"""The part of a text that a model has in its cache, and the passes that go behind it."""

from __future__ import annotations

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.asking import Ask, Asking, Keep
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.device.runtime import Forward, LoadedModel
from gemmule.sw.device.step import Want

__all__ = ["Prefix"]


class Prefix:
    """Tokens whose rows a model's cache holds, in their order. What a text shares with them is not passed again.

    A rollback is a shorter prefix: the next pass overwrites the rows behind it.
    """

    def __init__(self, model: LoadedModel, kept: bool = True) -> None:
        """``kept``: whether rows stay between passes; if not, each pass goes over the whole text anew."""
        self.model, self.kept = model, kept
        self.ids: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def truncate(self, length: int) -> None:
        """Forget all rows behind the first ``length``."""
        del self.ids[length:]

    def fit(self, ids: list[int]) -> int:
        """Forget what a text does not share; how many of its tokens are cached."""
        self._missing(ids)
        return len(self)

    def lacking(self, ids: list[int]) -> list[int]:
        """Of a text but its last token, what is not cached."""
        return self._missing(ids)[:-1]

    def begin(self, ids: list[int]) -> Asking[int]:
        """Cache all of a text but its last token; how many rows were passed for it."""
        rows = self.lacking(ids)
        if rows:
            yield Ask(self.model, Rows.chain(rows, len(self)), Want(last=0))
            self.ids += rows
        return len(rows)

    def chain(self, ids: list[int], want: Want) -> Asking[tuple[Forward, int]]:
        """Answers behind a text, and how many rows were passed for them: its last token and what is not cached."""
        rows = self._missing(ids)
        out = yield Ask(self.model, Rows.chain(rows, len(self)), want)
        self.ids = [*ids] if self.kept else []
        return out, len(rows)

    def tree(self, ids: list[int], tree: Tree, want: Want) -> Asking[Forward]:
        """Answers behind each node of candidates, whose first one is the text's last token; see :meth:`commit`."""
        if tree.verified is not None:
            return tree.verified
        out: Forward = yield Ask(self.model, tree.rows(len(ids) - 1), want)
        return out

    def commit(self, tree: Tree, path: list[int]) -> Asking[None]:
        """Keep the rows of the accepted path of the last tree."""
        yield Keep(self.model, len(self), path)
        self.ids = [*self.ids, *(tree.tokens[node] for node in path)] if self.kept else []

    def _missing(self, ids: list[int]) -> list[int]:
        """Behind what the text and the cache share; the last token always is."""
        most = min(len(self.ids), len(ids) - 1)
        self.truncate(next((i for i in range(most) if self.ids[i] != ids[i]), most))
        return ids[len(self):]
