"""One encoder layer (post-norm, as BERT's) as one program: weights stream, activations stay near.

Three phases. Heads: q, k, v of a head for the whole sequence, then the attention of the head before it,
so that each weight of q, k, v streams once. Output: projection, residual and LayerNorm by row blocks.
Feed-forward: both products by row blocks, with the inner activations of a block on chip. Vector work
that nothing waits for at once (LayerNorm of the block before) and loads for the next block stand in a
queue of their own and are emitted one a product, so the mesh need not wait for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmule.compiler.attention import (
    AttentionPlan,
    Block,
    Head,
    attend,
    move_groups,
    plan_attention,
)
from gemmule.compiler.encoder_reference import BiasedLinear, EncoderLayer, EncoderShape, LayerNorm
from gemmule.compiler.errors import CompileError
from gemmule.compiler.hoist import hoist_loads
from gemmule.compiler.layout import Regions, pack_columns, pack_groups, pack_planes, pack_weights, unpack_groups
from gemmule.compiler.place import Plan, cut_off, number, place_regions, round_up
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, NormFlag, RequantFlag, Unit, VOp, encode_program
from gemmule.numerics import BYTE_TABLE_ENTRIES, join_planes, split_planes
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS
from gemmule.timing import ceil_div

__all__ = ["EncoderPlan", "EncoderProgram", "compile_encoder", "emit_layer", "pack_static", "plan_encoder"]

LOADED = ("static", "x8", "x16", "context", "middle8", "middle16")
STORED = ("context", "middle8", "middle16", "y8", "y16")
BASES = {**{(Unit.LOAD, name): i for i, name in enumerate(LOADED)},
         **{(Unit.STORE, name): len(LOADED) + i for i, name in enumerate(STORED)}}
"""Base register of every DRAM region, apart for loads and stores."""
SPILLED = {BASES[Unit.LOAD, name]: BASES[Unit.STORE, name] for name in LOADED if name in STORED}
NORM_ROWS = 16
"""Rows of one LayerNorm command: short enough to pass between two requantisations."""
STORE_PRODUCTS = 5
"""Products in whose time the stores of such rows are done; until then they hold the port that LayerNorm reads from."""
RING_SLOTS = 5
LINEAR_ROWS, NORM_PARAMETERS = COLUMN_ROWS + BIAS_ROWS, GAMMA_ROWS + BIAS_ROWS
"""Parameter rows of a column group: mult, shift and bias; gamma and beta."""


@dataclass(frozen=True, kw_only=True)
class EncoderPlan(Plan):
    """Row blocks of the last two phases, and the plan of the first one."""

    rows: int
    """Rows of the largest block, and the stride of its column groups."""
    depth: int
    """A weight chunk is one column group wide and so many rows deep."""
    attention: AttentionPlan


def _place(config: Config, shape: EncoderShape, attention: AttentionPlan, rows: int,
           align: int) -> EncoderPlan | None:
    """Lay everything out for blocks of ``rows`` rows, purposes apart by ``align``; None if it does not fit."""
    dim, step, S = config.dim, config.preload, shape.sequence
    groups, head, inner = shape.hidden // dim, shape.head_dim // dim, ceil_div(shape.inner, dim)
    row, at = {}, 0
    for name, size in (("wide", LINEAR_ROWS * max(3 * groups, inner)), ("table", BYTE_TABLE_ENTRIES // dim),
                       ("narrow", LINEAR_ROWS * groups), ("norm", NORM_PARAMETERS * groups)):
        row[name] = at
        at += size
    start = (config.spm_rows - at) // align * align
    row = {name: start + place for name, place in row.items()}
    pieces = ceil_div(shape.hidden, max(dim, config.spm_bank_rows // RING_SLOTS // dim * dim))
    depth = ceil_div(groups, pieces) * dim
    end = (start - RING_SLOTS * depth) // align * align
    key, block, stage = head * round_up(S, step), groups * rows, groups * min(rows, NORM_ROWS)
    heads = place_regions(config, [
        [("input", groups * S)],
        [("q0", head * S), ("q1", head * S), *((f"probabilities{i}", attention.probability_rows) for i in range(2))],
        [("k0", key), ("v0", key), ("k1", key), ("v1", key)], [("context0", head * S), ("context1", head * S)]], 0, end)

    # The last block's residual outlives its phase; what stands below is free for the inner activations then.
    row |= {"inner": 0, "residual other": 0, "stage other": 2 * block}
    row["operand last"] = round_up(2 * block + stage, align)
    row["residual last"] = round_up(max(inner * rows, row["operand last"] + block), align)
    row["stage last"] = row["residual last"] + 2 * block
    row["operand other"] = round_up(row["stage last"] + stage, align)
    if start < 0 or end < 0 or heads is None or row["operand other"] + block > end:
        return None
    return EncoderPlan(
        blocks=cut_off(S, rows), row=row | heads | number("ring", range(end, end + RING_SLOTS * depth, depth)),
        accumulators=attention.accumulators, rows=rows, depth=depth, attention=replace(attention, row=heads))


def plan_encoder(config: Config, shape: EncoderShape) -> EncoderPlan:
    """The largest row blocks that fit, purposes in banks of their own where there are enough.

    Raises:
        CompileError: the layer does not fit the configuration.
    """
    if min(shape.sequence, shape.heads, shape.inner) < 1 or shape.head_dim < 1 or shape.head_dim % config.dim:
        raise CompileError(f"head_dim must be a multiple of dim = {config.dim} and all sizes positive, not {shape}")
    attention = plan_attention(config, shape.sequence, shape.sequence, shape.head_dim)
    slot = attention.accumulators[1]
    if shape.sequence > slot:
        raise CompileError(
            f"a sequence must fit {slot} accumulator rows, a quarter of them all, not {shape.sequence}: raise acc_kib")
    for align in (config.spm_bank_rows, config.preload):
        for count in range(1, shape.sequence + 1):
            plan = _place(config, shape, attention, ceil_div(shape.sequence, count), align)
            if plan:
                return plan
    raise CompileError(
        f"{shape} must fit {config.spm_rows} scratchpad rows: use a shorter sequence or a larger scratchpad (spm_kib)")


class _Emitter:
    """Commands of one layer, in an order that is right when they run one after another."""

    def __init__(self, config: Config, layer: EncoderLayer, plan: EncoderPlan,
                 static: dict[str, tuple[int, int]]) -> None:
        self.config, self.layer, self.shape, self.plan, self.static = config, layer, layer.shape, plan, static
        self.dim, self.row, self.ring = config.dim, plan.row, plan.slots("ring")
        self.groups, self.head = self.shape.hidden // self.dim, self.shape.head_dim // self.dim
        self.commands: list[Command] = []
        self.later: deque[Command | None] = deque()
        """Background work, emitted one entry a product; None lets a product pass."""
        self.inputs: deque[Command] = deque()
        """Pieces of the layer's input, emitted one a weight chunk."""
        self.products = self.chunks = 0

    def _flush(self) -> None:
        self.commands += [command for command in self.later if command]
        self.later.clear()

    def _constant(self, name: str, row: str) -> Command:
        offset, size = self.static[name]
        return Command.make(Unit.LOAD, note=name, base=BASES[Unit.LOAD, "static"], offset=offset, bytes=size,
                            row=self.row[row], block_stride=1, rows=1)

    def _product(self, name: str, depth: int, group: int, columns: int, m: int, operand: int, pitch: int) -> int:
        """One column group of a product, chunk by chunk; returns its accumulator row."""
        plan, slots = self.plan, self.plan.accumulators
        acc = slots[self.products % len(slots)]
        self.products += 1
        padded = round_up(depth, self.config.preload)
        for k0 in range(0, depth, plan.depth):
            if self.inputs:
                self.commands.append(self.inputs.popleft())
            slot, note = self.ring[self.chunks % len(self.ring)], f"{name} columns {group * self.dim} depth {k0}"
            self.chunks += 1
            self.commands += [
                Command.make(
                    Unit.LOAD, note=note, base=BASES[Unit.LOAD, "static"],
                    offset=self.static[name][0] + (group * padded + k0) * self.dim,
                    bytes=min(plan.depth, padded - k0) * self.dim, row=slot, block_stride=1, rows=1),
                Command.make(
                    Unit.MATRIX, note=note, a_row=operand + k0 // self.dim * pitch, a_stride=pitch, b_row=slot,
                    c_row=acc, c_stride=m, m=m, n=columns, k=min(plan.depth, depth - k0),
                    flags=(MatrixFlag.ACCUMULATE,) if k0 else ())]
        return acc

    def _linear(self, name: str, linear: BiasedLinear, groups: Iterable[int], *, m: int, operand: int, pitch: int,
                parameters: int, dst: int, stride: int, flags: Iterable[RequantFlag] = ()) -> None:
        """Column groups of a linear; a group's result stands ``stride`` rows behind the one before."""
        out, depth = linear.weight.shape
        for i, group in enumerate(groups):
            columns = min(self.dim, out - group * self.dim)
            acc = self._product(name, depth, group, columns, m, operand, pitch)
            self.commands.append(Command.make(
                Unit.VECTOR, op=VOp.REQUANT, note=f"{name} columns {group * self.dim}", src0=acc, src0_stride=m,
                src1=parameters + LINEAR_ROWS * group, dst=dst + i * stride, dst_stride=stride, m=m, n=columns,
                flags=(RequantFlag.COLUMN, RequantFlag.BIAS, *flags)))
            if self.later and (command := self.later.popleft()):
                self.commands.append(command)

    def _rows(self, unit: Unit, name: str, block: tuple[int, int], row: int, stride: int, first: int = 0,
              count: int | None = None) -> list[Command]:
        """Move rows ``first .. + count`` of a row block.

        Loads come in pieces as deep as a weight chunk (int16: half as deep), between which weights pass.
        """
        start, rows = block
        lines = self.groups * (2 if name.endswith("16") else 1)
        # What the layer keeps for itself is stored block by block.
        offset, pitch = (start * lines, rows) if name.startswith("middle") else (start, self.shape.sequence)
        count = rows if count is None else count
        size = lines if unit is Unit.STORE else self.plan.depth // self.dim
        return [move_groups(
            unit, f"{name} rows {start + first}+{count}", base=BASES[unit, name],
            offset=(offset + first + line * pitch) * self.dim, pitch=pitch, rows=count, groups=min(size, lines - line),
            row=row + line * stride, stride=stride, dim=self.dim) for line in range(0, lines, size)]

    def _norm(self, norm: LayerNorm, block: tuple[int, int], slot: str, narrow: str, wide: str) -> list[Command | None]:
        """LayerNorm of a row block, to int8 through the stage and to int16 in place, and both to DRAM."""
        residual, stage, R = self.row[f"residual {slot}"], self.row[f"stage {slot}"], self.plan.rows
        step = min(R, NORM_ROWS)
        found: list[Command | None] = []
        for i in range(0, block[1], step):
            m, note = min(step, block[1] - i), f"{narrow} rows {block[0] + i}"
            source: dict[str, Any] = {"src0": residual + i, "src0_stride": 2 * R, "m": m, "n": self.shape.hidden}
            apply = source | {"op": VOp.NORM_APPLY, "src1": self.row["norm"]}
            flags = (NormFlag.MEAN, NormFlag.BIAS)
            found += [
                Command.make(Unit.VECTOR, op=VOp.NORM_STAT, note=f"statistics of {note}", mult=norm.eps_mult,
                             shift=norm.eps_shift, flags=(NormFlag.MEAN,), **source),
                Command.make(Unit.VECTOR, note=f"normalise {note}", dst=stage, dst_stride=step, shift=norm.shift,
                             flags=flags, **apply),
                Command.make(Unit.VECTOR, note=f"normalise {note}, int16", dst=residual + i, dst_stride=2 * R,
                             shift=norm.wide_shift, flags=(*flags, NormFlag.WIDE), **apply),
                *self._rows(Unit.STORE, narrow, block, stage, step, i, m),
                *self._rows(Unit.STORE, wide, block, residual + i, R, i, m), *[None] * STORE_PRODUCTS]
        return found

    def _attention(self, h: int) -> None:
        plan, S, row, layer = self.plan.attention, self.shape.sequence, self.row, self.layer
        head = Head(
            name=f"head {h}", q=row[f"q{h % 2}"], query_stride=S, k=row[f"k{h % 2}"], v=row[f"v{h % 2}"],
            key_stride=round_up(S, self.config.preload), context=row[f"context{h % 2}"],
            context_stride=S, score=(int(layer.score[h, 0]), int(layer.score[h, 1])),
            scale=(int(layer.context[h, 0]), int(layer.context[h, 1])))
        for at in range(0, len(plan.blocks), plan.flight):
            blocks = [Block(head, *block) for block in plan.blocks[at:at + plan.flight]]
            self.commands += attend(plan, blocks)
        self.commands.append(move_groups(
            Unit.STORE, f"context {h}", base=BASES[Unit.STORE, "context"], offset=h * self.head * S * self.dim, pitch=S,
            rows=S, groups=self.head, row=head.context, stride=S, dim=self.dim))

    def _heads(self) -> None:
        """q, k, v of one head after the other, each head's attention after the products of the next one."""
        S, row, layer = self.shape.sequence, self.row, self.layer
        self.commands.append(self._constant("parameters qkv", "wide"))
        self.inputs += self._rows(Unit.LOAD, "x8", (0, S), row["input"], S)
        padded = round_up(S, self.config.preload)
        for h in range(self.shape.heads):
            groups = range(h * self.head, (h + 1) * self.head)
            for i, (name, linear) in enumerate((("q", layer.q), ("k", layer.k), ("v", layer.v))):
                self._linear(name, linear, groups, m=S, operand=row["input"], pitch=S,
                             parameters=row["wide"] + LINEAR_ROWS * i * self.groups, dst=row[f"{name}{h % 2}"],
                             stride=S if name == "q" else padded)
            if h:
                self._attention(h - 1)
        self._attention(self.shape.heads - 1)

    def _slot(self, b: int) -> str:
        return "other" if (len(self.plan.blocks) - 1 - b) % 2 else "last"

    def _output(self) -> None:
        """Projection of the context, residual; LayerNorm of a block behind the products of the next one."""
        plan, row, blocks = self.plan, self.row, self.plan.blocks

        def inputs(b: int) -> list[Command]:
            operand, residual = (row[f"{name} {self._slot(b)}"] for name in ("operand", "residual"))
            return [*self._rows(Unit.LOAD, "x16", blocks[b], residual, plan.rows),
                    *self._rows(Unit.LOAD, "context", blocks[b], operand, plan.rows)]

        self.commands += [
            self._constant("parameters o", "narrow"), self._constant("attention norm", "norm"), *inputs(0)]
        self.later += [self._constant("parameters up", "wide"), self._constant("table", "table"),
                       Command.make(Unit.VECTOR, op=VOp.TABLE, note="activation", src0=row["table"])]
        for b, block in enumerate(blocks):
            if b:
                self._flush()
                self.later += self._norm(self.layer.attention_norm, blocks[b - 1], self._slot(b - 1), *STORED[1:3])
            if b + 1 < len(blocks):
                self.later += inputs(b + 1)
            elif b:
                self.later += self._rows(Unit.LOAD, "middle8", blocks[0], row["operand other"], plan.rows)
            slot = self._slot(b)
            self._linear("o", self.layer.o, range(self.groups), m=block[1], operand=row[f"operand {slot}"],
                         pitch=plan.rows, parameters=row["narrow"], dst=row[f"residual {slot}"], stride=2 * plan.rows,
                         flags=(RequantFlag.RESIDUAL,))
        self._flush()

    def _feed_forward(self) -> None:
        """Both products of a block, with its LayerNorm behind the first product of the next block."""
        plan, row, blocks, layer = self.plan, self.row, self.plan.blocks, self.layer
        operand, residual, R = row["operand other"], row["residual last"], plan.rows
        inner = range(ceil_div(self.shape.inner, self.dim))
        norm = self._norm(layer.attention_norm, blocks[-1], "last", *STORED[1:3])
        for b, block in enumerate(blocks):
            self._flush()
            self.later += norm
            if b == 0:
                self.later += [self._constant("parameters down", "narrow"), self._constant("output norm", "norm")]
                if len(blocks) == 1:  # nothing to hide the only LayerNorm behind
                    self.later += self._rows(Unit.LOAD, "middle8", block, operand, R)
                    self._flush()
            self.later += [*[None] * STORE_PRODUCTS, *self._rows(Unit.LOAD, "middle16", block, residual, R)]
            self._linear("up", layer.up, inner, m=block[1], operand=operand, pitch=R, parameters=row["wide"],
                         dst=row["inner"], stride=R, flags=(RequantFlag.LOOKUP,))
            self._flush()
            if b + 1 < len(blocks):
                self.later += self._rows(Unit.LOAD, "middle8", blocks[b + 1], operand, R)
            self._linear("down", layer.down, range(self.groups), m=block[1], operand=row["inner"], pitch=R,
                         parameters=row["narrow"], dst=residual, stride=2 * R, flags=(RequantFlag.RESIDUAL,))
            norm = self._norm(layer.output_norm, block, "last", *STORED[3:5])
        self._flush()
        self.later += norm
        self._flush()

    def emit(self) -> list[Command]:
        self._heads()
        self._output()
        self._feed_forward()
        return self.commands


def emit_layer(config: Config, layer: EncoderLayer, plan: EncoderPlan,
               static: dict[str, tuple[int, int]]) -> list[Command]:
    """Commands of one layer, in an order that is right when they run one after another; ``static`` as packed."""
    return _Emitter(config, layer, plan, static).emit()


def _words(values: np.ndarray, dim: int) -> np.ndarray:
    """int32 [n] as byte planes, lowest first  # uint8 [group, 4, dim]."""
    planes = np.asarray(values).astype("<i4").view(np.uint8).reshape(-1, 4).T  # [4, n]
    return pack_groups(planes.view(np.int8), dim)


def pack_static(layer: EncoderLayer, config: Config) -> Regions:
    """Weights as they stream, column parameters, norms, the activation table."""
    regions, dim = Regions(config), config.dim

    def columns(linear: BiasedLinear) -> np.ndarray:
        return np.concatenate([pack_columns(linear.mult, linear.shift, dim), _words(linear.bias, dim)], axis=1)

    for name, linears in (("qkv", (layer.q, layer.k, layer.v)), ("o", (layer.o,)), ("up", (layer.up,)),
                          ("down", (layer.down,))):
        regions.put(f"parameters {name}", np.concatenate([columns(linear) for linear in linears]))
    for name, norm in (("attention norm", layer.attention_norm), ("output norm", layer.output_norm)):
        regions.put(name, np.concatenate([pack_planes(norm.gamma, dim), _words(norm.beta, dim)], axis=1))
    regions.put("table", layer.table)
    for name, linear in (("q", layer.q), ("k", layer.k), ("v", layer.v), ("o", layer.o), ("up", layer.up),
                         ("down", layer.down)):
        depth = round_up(linear.weight.shape[1], config.preload)
        regions.put(name, pack_weights(linear.weight, dim, depth))
    return regions


@dataclass(frozen=True, kw_only=True)
class EncoderProgram(FixedProgram):
    """A compiled layer with its DRAM content (``dram``, uint8, at ``base_address``).

    Regions: ``static`` (weights and parameters), inputs ``x8``, ``x16``, outputs ``y8``, ``y16``, and what the layer
    keeps there for itself: ``context``, ``middle8``, ``middle16``.
    """

    shape: EncoderShape
    plan: EncoderPlan
    dram: np.ndarray

    def fill(self, x8: np.ndarray, x16: np.ndarray) -> np.ndarray:
        """DRAM content (uint8, at ``base_address``) with the layer's input [sequence, hidden], int8 and int16."""
        for name, value in (("x8", x8), ("x16", x16)):
            if value.shape != (self.shape.sequence, self.shape.hidden):
                raise CompileError(
                    f"{name} must have shape {(self.shape.sequence, self.shape.hidden)}, not {value.shape}")
        dram, dim = self.dram.copy(), self.config.dim
        planes = [pack_groups(plane.view(np.int8), dim) for plane in split_planes(x16)]
        self.put(dram, "x8", pack_groups(x8, dim))
        self.put(dram, "x16", np.stack(planes, axis=1))  # [group, plane, row, dim]
        return dram

    def read_output(self, read_dram: ReadDram) -> tuple[np.ndarray, np.ndarray]:
        """(int8, int16) output [sequence, hidden] as int64, read with ``read_dram(address, bytes)``."""
        S, dim, hidden = self.shape.sequence, self.config.dim, self.shape.hidden
        narrow, wide = (self.read(read_dram, name) for name in ("y8", "y16"))
        y8 = unpack_groups(narrow.reshape(-1, S, dim).view(np.int8), hidden).astype(np.int64)
        planes = wide.reshape(-1, 2, S, dim)
        return y8, join_planes(*(unpack_groups(planes[:, i], hidden) for i in range(2)))


def compile_encoder(layer: EncoderLayer, config: Config, base_address: int = 0) -> EncoderProgram:
    """Compile one quantised encoder layer.

    Raises:
        CompileError: the layer does not fit the configuration; the message says what to change.
    """
    shape = layer.shape
    plan, static = plan_encoder(config, shape), pack_static(layer, config)
    commands = hoist_loads(emit_layer(config, layer, plan, static.table), config, SPILLED)
    image = encode_program(commands)
    regions = Regions(config)
    regions.put("program", np.frombuffer(image, dtype=np.uint8))
    regions.put("static", static.image())
    for name in dict.fromkeys((*LOADED[1:], *STORED)):
        regions.reserve(name, shape.sequence * shape.hidden * (2 if name.endswith("16") else 1))
    program = EncoderProgram(
        config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
        symbols=regions.symbols(base_address), bases=dict(enumerate((*LOADED, *STORED))), shape=shape, plan=plan,
        dram=regions.image())
    return program.verified(program.registers())
