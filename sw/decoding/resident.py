"""What a session keeps in DRAM: target, draft and KV caches, and the longest context and largest batch that fit it."""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from typing import Any

from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.head.ids import HALF_BYTES, region_bytes
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.place import round_up
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.session import ALIGN, Session
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.limits import BATCH

__all__ = ["resident"]

BATCHES = (1, 2, 4, 8, 16)
"""Whose caches are told, beside the session's own."""
BESIDE = 1 << 20
"""Bytes of DRAM left for what programs, lists and masks of another batch may take more."""


def resident(session: Session) -> dict[str, Any]:
    """Bytes of DRAM by model and cache, caches by context and batch, and what fits the configuration's addresses.

    Of the session's own batch to the byte (where a pass takes two launches, up to 128 KiB more), as the compiler would
    place other contexts; of other batches with as many rows a text and ``BESIDE`` left for their programs.
    """
    trained = [(f"{kind} drafter" if len(session.trained) > 1 else DRAFT, one.model)
               for kind, one in session.trained.items()]
    models = [_Model(model, name) for name, model in (
        (session.target.name, session.target), (DRAFT, session.draft), ("int4 copy", session.int4), *trained) if model]
    step = session.draft.step if session.draft else None
    dram, batch = 1 << session.config.address_bits, models[0].own
    context = session.target.program.max_positions
    positions = min(model.positions for model in models if model.keeps)

    def needed(length: int, texts: int) -> int:
        sizes = [model.size(length, texts) for model in models]
        sizes += [step.size] if step else []
        return sum(round_up(size, ALIGN) for size in sizes[:-1]) + sizes[-1] + (BESIDE if texts != batch else 0)

    def longest(texts: int) -> int:
        """Positions: DRAM's limit, whatever the networks take; no cache has more of them than DRAM has bytes."""
        return bisect_right(range(1, dram), dram, key=lambda length: needed(length, texts))

    def row(texts: int) -> dict[str, Any]:
        room = longest(texts)
        return {"batch": texts, "kv_bytes": {
            str(length): sum(model.cache(length, texts) for model in models)
            for length in sorted({max(1, context // 4), max(1, context // 2), context})},
            "dram_context": room, "largest_context": min(room, positions)}

    largest = bisect_right(range(1, BATCH.high + 1), dram, key=lambda texts: needed(context, texts))
    return {
        "dram_bytes": dram, "batch": batch, "context": context, "bytes": needed(context, batch),
        "models": {model.name: {"bytes": model.size(context, batch) - model.cache(context, batch),
                                "kv_bytes": model.cache(context, batch), "prefill_rows": model.prefill_rows}
                   for model in models}
                  | ({"step": {"bytes": step.size, "kv_bytes": 0, "prefill_rows": 0}} if step else {}),
        "kv_bytes": sum(model.cache(context, batch) for model in models),
        "by_batch": [row(texts) for texts in sorted({*BATCHES, batch})],
        "largest_context": min(longest(batch), positions),
        "context_limit": "DRAM" if longest(batch) < positions else "the networks' positions",
        "largest_batch": largest,
        "batch_limit": "DRAM" if largest < BATCH.high else f"texts of a pass, at most {BATCH.high}"}


class _Model:
    """A model's bytes of DRAM by context and batch; all but its caches, and a loop's answers, is the same for all.

    Programs for prompts and for fewer rows are beside those of the model's own batch.
    """

    def __init__(self, model: LoadedModel, name: str = "") -> None:
        self.name, self.program, self.loop, self.prefill = name or model.name, model.program, model.loop, model.prefill
        self.prefill_rows = self.prefill.max_rows if self.prefill else 0
        self.own = self.program.batch * len(model.further)
        self.beside = [program.size for program in (model.prefill, *model.narrow, model.sampled) if program]
        self.config = self.program.config
        self.align = max(self.config.burst_bytes, 64)
        self.positions, self.keeps = self.program.graph.whole_positions, bool(self.program.graph.attentions)
        """Positions of its network, and whether anything of a text is kept."""
        self.fixed = self.program.size - (round_up(self.program.symbols[CACHE][1], self.align)
                                          if self.program.own_cache else 0)

    def cache(self, context: int, batch: int) -> int:
        """Bytes of the caches of ``batch`` texts; several take theirs in blocks, which have a run for each head."""
        program = self.program
        if not program.own_cache:
            return 0
        context = context if self.keeps else program.max_positions
        joined = program.layout.joined if batch in (program.batch, self.own) else 0
        return batch * KvLayout.of(program.graph, self.config, context, batch, program.max_rows, joined).size

    def size(self, context: int, batch: int) -> int:
        """Of all that it has; the programs beside it stand behind, then caches of texts beyond those of a launch."""
        if batch != self.own:
            return self._decoding(context, batch)
        size, period = self._decoding(context, self.program.batch), self.config.dram.banks * self.config.dram.row_bytes
        size = reduce(lambda size, more: round_up(size, period) + more, self.beside, size)
        launches = self.own // self.program.batch
        return size + (launches - 1) * (ALIGN + round_up(self.cache(context, self.program.batch), ALIGN))

    def _decoding(self, context: int, batch: int) -> int:
        """Without a prefill; a loop's program stands behind, and a token of each position that it may answer."""
        single = self.fixed + round_up(self.cache(context, batch), self.align)
        if self.loop is None:
            return single
        period, program = self.config.dram.banks * self.config.dram.row_bytes, self.program
        behind = self.loop.size - round_up(program.size, period) - round_up(self.loop.symbols[ANSWERS][1], self.align)
        answers = region_bytes(program.graph.vocab, HALF_BYTES * context)
        return round_up(single, period) + behind + round_up(answers, self.align)
