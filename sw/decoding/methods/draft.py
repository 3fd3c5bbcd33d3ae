"""A smaller model drafts (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.methods.method import Method, Request
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.runtime import Forward, LoadedModel

__all__ = ["METHOD", "DraftModel"]


class DraftModel:
    """A smaller model drafts a chain greedily.

    Its KV cache holds ``kv`` rows. When every draft of a step is accepted, the last one was never fed
    to the draft model, so the next step's first pass feeds two rows: that draft and the pending token.
    """

    def __init__(self, model: LoadedModel, num_tokens: int) -> None:
        self.model = model
        self.num_tokens = num_tokens
        self.kv = 0
        self.catch_up_rows = 0
        self._committed = 0

    def begin(self, ids: list[int]) -> None:
        self._committed = len(ids)
        if len(ids) > 1:
            self._forward(ids[:-1], 0)

    def propose(self, ids: list[int], budget: int) -> Tree:
        self._committed = len(ids)
        drafted: list[int] = []
        rows = ids[self.kv:]
        for _ in range(min(self.num_tokens, budget)):
            self.catch_up_rows += len(rows) - 1
            drafted.append(self._forward(rows, 1).argmax[-1])
            rows = drafted[-1:]
        return Tree.chain(ids[-1], drafted)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        # rows of rejected drafts are forgotten by length; the pending token is never in the cache
        self.kv = min(self.kv, self._committed + len(new) - 1)

    def _forward(self, rows: list[int], logit_rows: int) -> Forward:
        out = self.model.forward(Rows.chain(rows, self.kv), logit_rows)
        self.kv += len(rows)
        return out


def _make(request: Request) -> DraftModel:
    if request.draft is None:
        raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
    return DraftModel(request.draft, request.num_tokens)


METHOD = Method(name="draft", make=_make, option="--num-speculative-tokens", num_tokens=3)
