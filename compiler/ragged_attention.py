"""Attention of new rows over a cache of any length, in one program: blocks of the cache and sequences are bodies.

For each head the new rows see each other first, which sets maximum, sum and context; then blocks of the cache follow,
as many as there are, by online softmax (:mod:`gemmule.numerics.online`): scores of one block at a time stand in the
accumulator, so that no length needs more, and nothing is spilled or computed twice. A last piece, whose bitmaps let no
row see anything, makes the reciprocal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule import numerics
from gemmule.compiler.attention import check_scalings
from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import Regions
from gemmule.compiler.place import place_regions, round_up
from gemmule.compiler.program import Program, ReadDram, Registers
from gemmule.compiler.turns import place_turn_waits
from gemmule.config import Config
from gemmule.control import params, repeat, set_displacement, set_length
from gemmule.isa import (
    MAX_LENGTH,
    PARAMS_WORDS,
    Command,
    Dyn,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SoftmaxFlag,
    Source,
    Unit,
    VOp,
    encode_program,
)
from gemmule.numerics.online import online_softmax

__all__ = ["BLOCK", "RaggedProgram", "compile_ragged_attention", "ragged_attention"]

BLOCK = 64
"""Rows of the cache in a block. It changes results, so it belongs to what is computed."""
OPERANDS = ("q", "k_new", "v_new", "k", "v", "context")
"""DRAM regions by base register."""
_Q, _K_NEW, _V_NEW, _K, _V, _CONTEXT = range(len(OPERANDS))
_HEAD = 31
"""Base register whose displacement is that of the head's cache."""
NEW, CONTEXT, LEFT, SLOT, POINTER = range(1, 6)
"""Length registers: new rows and rows of the cache, which the host or the parameters give; rows of the cache that are
left, slot of their block, where the next sequence stands among the parameters."""
Sequences = Sequence[tuple[int, int]]
"""(new rows, rows of the cache) of each sequence of a batch."""


def ragged_attention(q: np.ndarray, k_new: np.ndarray, v_new: np.ndarray, k: np.ndarray, v: np.ndarray,
                     score: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The golden: int8 context, as int64 [heads, new, head_dim], of one sequence, all int8 [heads, rows, head_dim].

    Every new row sees the whole cache ``k``, ``v``, the new rows before it and itself.
    """
    found, (_, new, _) = [], q.shape
    pad = -new % BLOCK
    for h in range(len(q)):
        keys = np.concatenate([k_new[h], np.zeros((pad, q.shape[2]), np.int8), k[h]]).astype(np.int64)
        values = np.concatenate([v_new[h], np.zeros((pad, q.shape[2]), np.int8), v[h]])
        seen = np.ones((new, len(keys)), dtype=bool)
        seen[:, :new + pad] = np.arange(new + pad) <= np.arange(new)[:, None]
        t = numerics.scores(q[h].astype(np.int64) @ keys.T, int(score[h, 0]), int(score[h, 1]))
        context, reciprocal, length = online_softmax(t, values, seen, BLOCK)
        found.append(numerics.saturate(
            numerics.requant_row(context, reciprocal, length, int(scale[h, 0]), int(scale[h, 1])), 8))
    return np.stack(found)


@dataclass(frozen=True, kw_only=True)
class RaggedProgram(Program):
    """Regions by sequence and head: ``q``, ``k_new``, ``v_new``, ``context`` [rows, head_dim]; cache ``k``, ``v``."""

    heads: int
    rows: int
    """Most new rows."""
    head_dim: int
    capacity: int
    """Most rows of the cache."""
    sequences: tuple[tuple[int, int], ...]
    """Those of the batch; empty: one sequence, of which the registers tell."""

    def registers(self, new: int = 0, context: int = 0) -> Registers:
        """Registers of a launch, with the sizes of its sequence if the program does not hold them.

        Raises:
            CompileError: sizes out of range.
        """
        if not self.sequences:
            _check_sequence(new, context, self.rows, self.capacity)
        return self.place(lengths={NEW: new, CONTEXT: context}, windows={_HEAD: (0, 0)})

    def fill(self, **operands: np.ndarray) -> np.ndarray:
        """DRAM content with ``q``, ``k_new``, ``v_new``, ``k``, ``v``: int8 [sequence, head, rows, head_dim]."""
        dram = np.zeros(self.size, dtype=np.uint8)
        for name, values in operands.items():
            self.put(dram, name, np.ascontiguousarray(values, dtype=np.int8).view(np.uint8))
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        return dram

    def read_output(self, read_dram: ReadDram) -> np.ndarray:
        """int8 context [sequence, head, rows, head_dim]; rows beyond a sequence's new ones hold what stood there."""
        return self.read(read_dram, "context").view(np.int8).reshape(-1, self.heads, self.rows, self.head_dim)


def _check_sequence(new: int, context: int, rows: int, capacity: int) -> None:
    if not 1 <= new <= rows or not 0 <= context <= capacity:
        raise CompileError(f"a sequence must have 1 to {rows} new rows and 0 to {capacity} rows of cache, not {new} "
                           f"and {context}")


class _Builder:
    """Commands of the program, without waits."""

    def __init__(self, config: Config, heads: int, rows: int, head_dim: int, capacity: int, score: np.ndarray,
                 scale: np.ndarray) -> None:
        self.config, self.heads, self.rows, self.head_dim, self.capacity = config, heads, rows, head_dim, capacity
        self.score, self.scale = score, scale
        dim, groups = config.dim, head_dim // config.dim
        self.new_rows = round_up(rows, config.preload)
        slot = config.acc_rows // 2
        if max(rows * -(-BLOCK // dim), rows * groups) > slot or rows > min(config.stat_rows, BLOCK):
            raise CompileError(f"scores of {rows} rows and {BLOCK} keys, and their context, must each fit {slot} "
                               "accumulator rows: use fewer rows or a larger accumulator (acc_kib)")
        row = place_regions(config, [
            [("q", groups * rows)], [("probabilities", rows * -(-BLOCK // dim)), ("nobody", rows)],
            [("k_new", groups * self.new_rows), ("v_new", groups * self.new_rows),
             *((f"{name}{i}", groups * BLOCK) for name in "kv" for i in range(2))], [("context", groups * rows)]])
        if row is None:
            raise CompileError(f"two blocks of {BLOCK} keys and values of {head_dim} columns must fit "
                               f"{config.spm_rows} scratchpad rows: use a larger scratchpad (spm_kib)")
        self.row, self.scores, self.context = row, 0, slot
        self.apart = row["k1"] - row["k0"]
        """Rows from one slot of a block to the other."""
        self.m = Length(rows, NEW)

    def _move(self, unit: Unit, name: str, base: int, rows: Length, stride: int, **fields: Any) -> Command:
        return Command.make(unit, note=name, base=base, stride=self.head_dim, bytes=self.head_dim, rows=rows,
                            row=self.row[name], row_stride=1, block_stride=stride, **fields)

    def _softmax(self, op: VOp, n: Length, *flags: SoftmaxFlag, **fields: Any) -> Command:
        return Command.make(Unit.VECTOR, op=op, note=op.name.lower(), src0=self.scores, src0_stride=self.rows,
                            m=self.m, n=n, flags=flags, **fields)

    def _piece(self, k: str, v: str, n: Length, stride: int, score: tuple[int, int], flags: set[SoftmaxFlag], *,
               more: bool) -> list[Command]:
        """Scores of a block of keys, their softmax, their part of the context."""
        slot = (Dyn.SRC1, SLOT, self.apart) if more else (Dyn.NONE, 0, 0)
        scaling = {"mult": score[0], "shift": score[1]}
        rescale = [Command.make(
            Unit.VECTOR, op=VOp.RESCALE, note="rise", src0=self.context, src0_stride=self.rows, dst=self.context,
            dst_stride=self.rows, m=self.m, n=self.head_dim)] if more else []
        return [
            Command.make(Unit.MATRIX, note="scores", a_row=self.row["q"], a_stride=self.rows, b_row=self.row[k],
                         b_stride=stride, c_row=self.scores, c_stride=self.rows, m=self.m, n=n, k=self.head_dim,
                         flags=(MatrixFlag.B_TRANSPOSED,), dyn=slot),
            self._softmax(VOp.SOFTMAX_MAX, n, SoftmaxFlag.ONLINE, *flags, **scaling),
            self._softmax(VOp.SOFTMAX_EXP, n, SoftmaxFlag.ONLINE, SoftmaxFlag.MORE, *flags,
                          dst=self.row["probabilities"], dst_stride=self.rows, **scaling),
            *rescale,
            Command.make(Unit.MATRIX, note="context", a_row=self.row["probabilities"], a_stride=self.rows,
                         b_row=self.row[v], b_stride=stride, c_row=self.context, c_stride=self.rows, m=self.m,
                         n=self.head_dim, k=n, dyn=slot,
                         flags=(MatrixFlag.A_UNSIGNED, *([MatrixFlag.ACCUMULATE] if more else [])))]

    def _head(self, h: int) -> list[Command]:
        """Attention of one head."""
        score, scale = ((int(values[h, 0]), int(values[h, 1])) for values in (self.score, self.scale))
        left, slot = Length(BLOCK, LEFT), (Dyn.DST, SLOT, self.apart)
        block = [
            *(self._move(Unit.LOAD, name, base, left, BLOCK, dyn=slot) for name, base in (("k0", _K), ("v0", _V))),
            *self._piece("k0", "v0", left, BLOCK, score, {SoftmaxFlag.CONTINUE}, more=True),
            set_length(LEFT, Source.LENGTH, LEFT, amount=-BLOCK),
            set_length(SLOT, Source.LENGTH, SLOT, amount=1, modulus=2),
            *(set_displacement(base, Source.DISPLACEMENT, base, amount=BLOCK * self.head_dim) for base in (_K, _V))]
        size = self.rows * self.head_dim
        return [
            self._move(Unit.LOAD, "q", _Q, self.m, self.rows),
            *(self._move(Unit.LOAD, name, base, self.m, self.new_rows)
              for name, base in (("k_new", _K_NEW), ("v_new", _V_NEW))),
            *self._piece("k_new", "v_new", self.m, self.new_rows, score, {SoftmaxFlag.CAUSAL}, more=False),
            set_length(LEFT, Source.LENGTH, CONTEXT),
            *(set_displacement(base, Source.DISPLACEMENT, _HEAD) for base in (_K, _V)),
            repeat(len(block), Length(MAX_LENGTH, CONTEXT), shift=BLOCK.bit_length() - 1, note="blocks of the cache"),
            *block,
            self._softmax(VOp.SOFTMAX_EXP, self.m, SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE, src1=self.row["nobody"],
                          dst=self.row["probabilities"], dst_stride=self.rows, mult=score[0], shift=score[1]),
            Command.make(Unit.VECTOR, op=VOp.REQUANT, note="normalise", src0=self.context, src0_stride=self.rows,
                         dst=self.row["context"], dst_stride=self.rows, m=self.m, n=self.head_dim, mult=scale[0],
                         shift=scale[1], flags=(RequantFlag.ROW,)),
            self._move(Unit.STORE, "context", _CONTEXT, self.m, self.rows),
            *(set_displacement(base, Source.DISPLACEMENT, base, amount=size)
              for base in (_Q, _K_NEW, _V_NEW, _CONTEXT)),
            set_displacement(_HEAD, Source.DISPLACEMENT, _HEAD, amount=self.capacity * self.head_dim)]

    def build(self, sequences: Sequences) -> list[Command]:
        body = [command for h in range(self.heads) for command in self._head(h)]
        begin = [Command.make(Unit.LOAD, note="no row sees anything", bytes=self.config.dim, rows=self.rows,
                              row_stride=1, block_stride=1, row=self.row["nobody"], flags=(MoveFlag.ZERO,))]
        if not sequences:
            return [*begin, *body]
        words = [new | context << 16 for new, context in sequences]
        words = [word - (word >> 31 << 32) for word in words]
        begin += [params(at, *words[at:at + PARAMS_WORDS]) for at in range(0, len(words), PARAMS_WORDS)]
        body = [*(set_length(register, Source.HALF, POINTER, index=i) for i, register in enumerate((NEW, CONTEXT))),
                *body, set_length(POINTER, Source.LENGTH, POINTER, amount=2)]
        return [*begin, set_length(POINTER), repeat(len(body), len(sequences), note="sequences"), *body]


def compile_ragged_attention(config: Config, heads: int, rows: int, head_dim: int, capacity: int, *, score: np.ndarray,
                             scale: np.ndarray, sequences: Sequences = (), base_address: int = 0) -> RaggedProgram:
    """Compile :func:`ragged_attention` of up to ``rows`` new rows over a cache of up to ``capacity`` rows.

    ``score`` and ``scale`` are [heads, 2], as of :func:`gemmule.compiler.online_attention.compile_online_attention`.
    ``sequences``: a batch of them, one after another in every region; without, one sequence whose sizes are two
    registers of the launch.

    Raises:
        CompileError: the shape does not fit the configuration, or a sequence not the shape.
    """
    check_scalings(heads, score, scale)
    if head_dim < 1 or head_dim % config.dim or not 0 <= capacity <= MAX_LENGTH:
        raise CompileError(f"head_dim must be a multiple of dim = {config.dim} and capacity from 0 to {MAX_LENGTH}, "
                           f"not {head_dim} and {capacity}")
    room = config.parameter_words // PARAMS_WORDS * PARAMS_WORDS
    if len(sequences) > room:
        raise CompileError(f"a batch must fit {room} parameter words, a word a sequence, not {len(sequences)} "
                           "sequences: raise parameter_words")
    for new, context in sequences:
        _check_sequence(new, context, rows, capacity)
    builder = _Builder(config, heads, rows, head_dim, capacity, score, scale)
    commands = builder.build(sequences)
    regions = Regions(config)
    regions.put("program", np.frombuffer(encode_program(commands), dtype=np.uint8))
    count = max(1, len(sequences)) * heads * head_dim
    for name in OPERANDS:
        regions.reserve(name, max(count * (capacity if name in "kv" else rows), 1))

    def program(commands: Sequence[Command]) -> RaggedProgram:
        return RaggedProgram(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=regions.size, symbols=regions.symbols(base_address), bases=dict(enumerate(OPERANDS)), heads=heads,
            rows=rows, head_dim=head_dim, capacity=capacity, sequences=tuple(sequences))

    made = program(commands)
    launches = [made.registers()] if sequences else [
        made.registers(new, min(context, capacity)) for new in (1, rows) for context in (0, 1, BLOCK, 5 * BLOCK + 1)]
    return program(place_turn_waits(commands, config, launches)).verified(*launches)
