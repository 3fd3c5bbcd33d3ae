"""Attention by online softmax: keys in blocks, so that a row of scores need not fit the accumulator.

A piece is one block of keys for one block of queries. Its scores, the running maximum in whole octaves, the
shift of the context by the maximum's rise, its probabilities and its part of the context follow FlashAttention (Dao
et al., 2022) with Softermax's rule (:mod:`gemmule.numerics.online`). The products of neighbouring pieces
alternate (scores of a piece, context of the one before), so a piece's vector work hides behind two products.
Nothing but DRAM grows with the sequence: queries, keys and values stream through two slots each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule import numerics
from gemmule.compiler.attention_program import (
    OPERANDS,
    SLOTS,
    AttentionPlan,
    AttentionProgram,
    check_scalings,
    check_sizes,
    move_groups,
    place_operands,
)
from gemmule.compiler.errors import CompileError
from gemmule.compiler.hoist import hoist_loads
from gemmule.compiler.place import cut_evenly, place_regions, round_up
from gemmule.compiler.program import Registers
from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, RequantFlag, SoftmaxFlag, Unit, VOp, encode_program
from gemmule.numerics.online import online_softmax
from gemmule.timing import ceil_div

__all__ = ["OnlinePlan", "OnlineProgram", "compile_online_attention", "online_attention", "plan_online_attention"]

BEHIND = 1
"""Length register that causal pieces count the columns behind them from."""
MOST_BEHIND = 256
"""Its value: more than the rows of a block, and what an offset can take away again."""


@dataclass(frozen=True, kw_only=True)
class OnlinePlan(AttentionPlan):
    """As :class:`AttentionPlan`; the accumulator slots are two of scores and two of contexts."""

    block: int
    """Keys of a block. It changes results, so it belongs to what is computed."""
    key_rows: int
    """Scratchpad rows from one column group of a block of keys or values to the next."""


def plan_online_attention(config: Config, queries: int, keys: int, head_dim: int, *, causal: bool = False,
                          block: int | None = None) -> OnlinePlan:
    """Cut the queries so that a block's context fits an accumulator slot, and the keys so that its scores do.

    ``block``: keys of a block; None for the most that fit, evenly cut.

    Raises:
        CompileError: a size is out of range, or does not fit the configuration.
    """
    sizes = {"queries": queries, "keys": keys, "head_dim": head_dim}
    check_sizes(sizes if block is None else sizes | {"block": block}, causal)
    dim, slot = config.dim, config.acc_rows // SLOTS
    groups = ceil_div(head_dim, dim)
    wide = max(groups, ceil_div(min(block or 1, keys), dim))
    most = min(slot // wide, config.stat_rows, queries)
    if not most:
        raise CompileError(
            f"a row of a block's scores or of context must fit {slot} accumulator rows, not {wide}: use a smaller "
            "block or a larger accumulator (acc_kib)")
    count = ceil_div(queries, most)
    blocks = cut_evenly(queries, count)
    rows = max(size for _, size in blocks)
    plans = []
    for room in (block,) if block else range(slot // rows * dim, 0, -dim):
        even = round_up(ceil_div(keys, ceil_div(keys, room)), dim)
        taken = min(block or even, keys)
        key_rows, probability_rows = round_up(taken, config.preload), rows * ceil_div(taken, dim)
        row = place_regions(config, [
            [("q0", groups * rows), ("q1", groups * rows)],
            [("probabilities0", probability_rows), ("probabilities1", probability_rows)],
            [(f"{name}{i}", groups * key_rows) for i in range(2) for name in ("k", "v")],
            [("context0", groups * rows), ("context1", groups * rows)]])
        if row is not None:
            plans.append(OnlinePlan(
                queries=queries, keys=keys, head_dim=head_dim, causal=causal,
                blocks=blocks, row=row,
                accumulators=tuple(i * slot for i in range(SLOTS)), flight=min(2, config.stat_contexts),
                probability_rows=probability_rows, block=block or even, key_rows=key_rows))
    if not plans:
        raise CompileError(
            f"two blocks of {rows} queries and of {taken} keys, {head_dim} columns wide, must fit {config.spm_rows} "
            "scratchpad rows: use a smaller block or a larger scratchpad (spm_kib)")
    # Operands in banks of their own are worth a smaller block.
    return next((plan for plan in plans if plan.row["k0"] % config.spm_bank_rows == 0), plans[0])


def online_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, score: np.ndarray, scale: np.ndarray, *,
                     block: int, causal: bool = False) -> np.ndarray:
    """The golden: int8 context, as int64 [heads, queries, head_dim], of int8 q, k, v [heads, rows, head_dim].

    ``score`` and ``scale`` are [heads, 2]: mult and shift of scores and of contexts; ``block``: keys of a block.
    """
    found = []
    for h in range(len(q)):
        t = numerics.scores(q[h].astype(np.int64) @ k[h].T.astype(np.int64), int(score[h, 0]), int(score[h, 1]))
        seen = np.arange(t.shape[1]) < numerics.visible(len(q[h]), len(k[h]), causal)[:, None]
        context, reciprocal, length = online_softmax(t, v[h], seen, block)
        found.append(numerics.saturate(
            numerics.requant_row(context, reciprocal, length, int(scale[h, 0]), int(scale[h, 1])), 8))
    return np.stack(found)


@dataclass(frozen=True, kw_only=True)
class OnlineProgram(AttentionProgram):
    """Compiled online attention; regions ``q``, ``k``, ``v``, ``context``."""

    plan: OnlinePlan

    def registers(self) -> Registers:
        return self.place(lengths={BEHIND: MOST_BEHIND}, windows={})


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Keys ``start .. start + count - 1`` for queries ``first .. first + rows - 1`` of a head."""

    head: int
    number: int
    """Of the block of queries, over all heads."""
    first: int
    rows: int
    start: int
    count: int
    after: int
    """Keys behind these that the block's last row sees."""
    slot: int
    """Of these keys in the scratchpad."""
    turn: int
    """Number of the piece; neighbours have different slots for scores and probabilities."""

    @property
    def note(self) -> str:
        return f"head {self.head} rows {self.first}+{self.rows} keys {self.start}+{self.count}"


class _Builder:
    """Commands of all pieces, in an order that is right when they run one after another."""

    def __init__(self, config: Config, plan: OnlinePlan, score: np.ndarray, scale: np.ndarray) -> None:
        self.config, self.plan, self.score, self.scale = config, plan, score, scale
        self.commands: list[Command] = []
        self.turn = 0
        self.last: _Piece | None = None
        """The piece whose part of the context is still to come."""

    def build(self, heads: int) -> list[Command]:
        plan, number, slot = self.plan, 0, 0
        for head in range(heads):
            for at in range(0, len(plan.blocks), plan.flight):
                taken = plan.blocks[at:at + plan.flight]
                reach = plan.seen(*taken[-1])
                for start in range(0, reach, plan.block):
                    loaded = min(plan.block, reach - start)
                    self._move("k", head, slot, start, loaded, plan.key_rows)
                    for i, (first, rows) in enumerate(taken):
                        seen = plan.seen(first, rows)
                        count = min(plan.block, seen - start)
                        piece = _Piece(head=head, number=number + i, first=first, rows=rows, start=start, count=count,
                                       after=seen - start - count, slot=slot, turn=self.turn)
                        if count > 0:
                            self._begin(piece)
                        if i == 0:
                            self._move("v", head, slot, start, loaded, plan.key_rows)
                    slot = 1 - slot
                number += len(taken)
        self._finish()
        return self.commands

    def _move(self, name: str, head: int, slot: int, first: int, rows: int, stride: int) -> None:
        dim, groups = self.config.dim, ceil_div(self.plan.head_dim, self.config.dim)
        length = self.plan.keys if name in "kv" else self.plan.queries
        self.commands.append(move_groups(
            Unit.STORE if name == "context" else Unit.LOAD, f"{name} {head} rows {first}+{rows}",
            base=OPERANDS.index(name), offset=(head * groups * length + first) * dim, pitch=length, rows=rows,
            groups=groups, row=self.plan.row[f"{name}{slot}"], stride=stride, dim=dim))

    def _begin(self, piece: _Piece) -> None:
        """Scores and softmax of a piece; between them and the shift by the rise the context of the piece before."""
        plan, m = self.plan, piece.rows
        statistics = piece.number % plan.flight
        if piece.start == 0:
            if self.last and self.last.number % plan.flight == statistics:
                self._finish()  # the only statistics context must be free
            self._move("q", piece.head, piece.number % 2, piece.first, m, m)
        scores, context = plan.accumulators[piece.turn % 2], plan.accumulators[2 + statistics]
        self.commands.append(Command.make(
            Unit.MATRIX, note=f"scores {piece.note}", a_row=plan.row[f"q{piece.number % 2}"], a_stride=m,
            b_row=plan.row[f"k{piece.slot}"], b_stride=plan.key_rows, c_row=scores, c_stride=m, m=m, n=piece.count,
            k=plan.head_dim, flags=(MatrixFlag.B_TRANSPOSED,)))
        # The block's first row sees m - 1 keys fewer than its last one.
        masked = plan.causal and piece.after < m - 1
        flags = {SoftmaxFlag.ONLINE} | ({SoftmaxFlag.CONTINUE} if piece.start else set())
        flags |= {SoftmaxFlag.CAUSAL} if masked else set()
        more = {SoftmaxFlag.MORE} if piece.after else set()
        source: dict[str, Any] = {
            "src0": scores, "src0_stride": m, "m": m, "n": piece.count, "mult": int(self.score[piece.head, 0]),
            "shift": int(self.score[piece.head, 1]), "context": statistics,
            "aux": (MOST_BEHIND - piece.after) << 4 | BEHIND if masked else 0}
        self.commands += [
            Command.make(Unit.VECTOR, op=VOp.SOFTMAX_MAX, note=f"maximum {piece.note}", flags=flags, **source),
            Command.make(Unit.VECTOR, op=VOp.SOFTMAX_EXP, note=f"probabilities {piece.note}", flags=flags | more,
                         dst=plan.row[f"probabilities{piece.turn % 2}"], dst_stride=m, **source)]
        self._finish()
        if piece.start:
            self.commands.append(Command.make(
                Unit.VECTOR, op=VOp.RESCALE, note=f"rise {piece.note}", src0=context, src0_stride=m, dst=context,
                dst_stride=m, m=m, n=plan.head_dim, context=statistics))
        self.last = piece
        self.turn += 1

    def _finish(self) -> None:
        """The context of the piece begun last; with a block's last piece its result too."""
        piece, self.last = self.last, None
        if piece is None:
            return
        plan, m, slot = self.plan, piece.rows, piece.number % 2
        statistics = piece.number % plan.flight
        context = plan.accumulators[2 + statistics]
        flags = {MatrixFlag.A_UNSIGNED} | ({MatrixFlag.ACCUMULATE} if piece.start else set())
        self.commands.append(Command.make(
            Unit.MATRIX, note=f"context {piece.note}", a_row=plan.row[f"probabilities{piece.turn % 2}"], a_stride=m,
            b_row=plan.row[f"v{piece.slot}"], b_stride=plan.key_rows, c_row=context, c_stride=m, m=m,
            n=plan.head_dim, k=piece.count, flags=flags))
        if piece.after:
            return
        self.commands.append(Command.make(
            Unit.VECTOR, op=VOp.REQUANT, note=f"normalise {piece.note}", src0=context, src0_stride=m,
            dst=plan.row[f"context{slot}"], dst_stride=m, m=m, n=plan.head_dim, mult=int(self.scale[piece.head, 0]),
            shift=int(self.scale[piece.head, 1]), context=statistics, flags=(RequantFlag.ROW,)))
        self._move("context", piece.head, slot, piece.first, m, m)


def compile_online_attention(config: Config, heads: int, queries: int, keys: int, head_dim: int, *, score: np.ndarray,
                             scale: np.ndarray, causal: bool = False, block: int | None = None,
                             base_address: int = 0) -> OnlineProgram:
    """Compile ``context = softmax(q k^T) v`` of every head by online softmax; see :func:`online_attention`.

    ``score`` and ``scale`` are [heads, 2]: mult and shift that bring scores to base-2 exponents in Q13.10,
    and contexts to int8. ``causal``: the last query sees all keys, each one before it one less. ``block``: keys of
    a block, chosen by the plan when None.

    Raises:
        CompileError: the shape does not fit the configuration.
    """
    check_scalings(heads, score, scale)
    plan = plan_online_attention(config, queries, keys, head_dim, causal=causal, block=block)
    commands = hoist_loads(_Builder(config, plan, score, scale).build(heads), config)
    image = encode_program(commands)
    regions = place_operands(config, heads, plan, len(image))
    program = OnlineProgram(
        config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
        symbols=regions.symbols(base_address), bases=dict(enumerate(OPERANDS)), heads=heads, plan=plan)
    return program.verified(program.registers())
