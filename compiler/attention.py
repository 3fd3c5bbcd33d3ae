"""Attention of all heads of a layer: scores, exact softmax and context, two blocks of queries in flight.

A block's products run in the order scores, scores, context, context, so the softmax of one block
hides behind the matrix work of its neighbour. Scores of a block fill one quarter of the accumulator,
contexts of two blocks the other half. Operands lie in DRAM as the device uses them,
[head][column group][row][DIM].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.hoist import hoist_loads
from gemmule.compiler.layout import Regions, pack_groups, unpack_groups
from gemmule.compiler.place import Plan, cut_evenly, place_regions, round_up
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, Command, MatrixFlag, RequantFlag, SoftmaxFlag, Unit, VOp, encode_program
from gemmule.timing import ceil_div

__all__ = [
    "OPERANDS", "SLOTS", "AttentionPlan", "AttentionProgram", "Block", "Head", "attend", "check_scalings",
    "check_sizes", "compile_attention", "move_groups", "place_operands", "plan_attention",
]

SLOTS = 4
"""Accumulator slots: two blocks of scores, two of contexts."""
OPERANDS = ("q", "k", "v", "context")
"""DRAM regions by base register."""


@dataclass(frozen=True, kw_only=True)
class AttentionPlan(Plan):
    """Blocks of queries; accumulator slots of scores and of contexts. Its user says where buffers stand (``row``)."""

    queries: int
    keys: int
    head_dim: int
    causal: bool
    flight: int
    """Blocks in flight together."""
    probability_rows: int
    """Scratchpad rows of one block's probabilities."""

    def seen(self, first: int, rows: int) -> int:
        """Keys that some row of a block of queries sees: the others are skipped."""
        return self.keys - self.queries + first + rows if self.causal else self.keys

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one head's two products, over the keys that blocks see."""
        return 2 * self.head_dim * sum(rows * self.seen(first, rows) for first, rows in self.blocks)


def check_sizes(sizes: Mapping[str, int], causal: bool) -> None:
    """Refuse sizes (by name, among them queries and keys) that no plan can have; raises CompileError."""
    for name, value in sizes.items():
        if not 1 <= value <= MAX_LENGTH:
            raise CompileError(f"{name} must be from 1 to {MAX_LENGTH}, not {value}")
    if causal and sizes["queries"] > sizes["keys"]:
        raise CompileError(
            f"causal attention takes at most as many queries as keys = {sizes['keys']}, not {sizes['queries']}")


def plan_attention(config: Config, queries: int, keys: int, head_dim: int, *, causal: bool = False) -> AttentionPlan:
    """Cut the queries so that a block's scores fit an accumulator slot and its sums the statistics.

    Raises:
        CompileError: a size is out of range, or not even one row of scores fits.
    """
    check_sizes({"queries": queries, "keys": keys, "head_dim": head_dim}, causal)
    slot = config.acc_rows // SLOTS
    wide = max(ceil_div(keys, config.dim), ceil_div(head_dim, config.dim))
    most = min(slot // wide, config.stat_rows, queries)
    if not most:
        raise CompileError(
            f"a row of scores or context must fit {slot} accumulator rows, not {wide}: use fewer keys or a larger "
            "accumulator (acc_kib)")
    flight = min(2, config.stat_contexts)
    count = min(round_up(ceil_div(queries, most), flight), queries)
    blocks = cut_evenly(queries, count)
    return AttentionPlan(
        queries=queries, keys=keys, head_dim=head_dim, causal=causal, blocks=blocks, flight=flight,
        accumulators=tuple(i * slot for i in range(SLOTS)),
        probability_rows=ceil_div(keys, config.dim) * max(rows for _, rows in blocks))


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head in the scratchpad: first row and column-group stride of each operand, its scalings.

    ``k`` and ``v`` share ``key_stride``; they and it are multiples of ``config.preload``. ``score`` and
    ``scale`` are (mult, shift) of the scores and of the context.
    """

    name: str
    q: int
    query_stride: int
    k: int
    v: int
    key_stride: int
    context: int
    context_stride: int
    score: tuple[int, int]
    scale: tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Query rows ``first .. first + rows - 1`` of a head."""

    head: Head
    first: int
    rows: int


def attend(plan: AttentionPlan, blocks: Sequence[Block]) -> list[Command]:
    """Commands of up to ``plan.flight`` blocks; their probabilities stand in slots of that name."""
    probabilities = plan.slots("probabilities")
    scores, softmax, contexts, results = [], [], [], []
    for i, block in enumerate(blocks):
        head, m, note = block.head, block.rows, f"{block.head.name} rows {block.first}+{block.rows}"
        keys = plan.seen(block.first, m)
        acc, out = plan.accumulators[i], plan.accumulators[plan.flight + i]
        scores.append(Command.make(
            Unit.MATRIX, note=f"scores {note}", a_row=head.q + block.first, a_stride=head.query_stride, b_row=head.k,
            b_stride=head.key_stride, c_row=acc, c_stride=m, m=m, n=keys, k=plan.head_dim,
            flags=(MatrixFlag.B_TRANSPOSED,)))
        flags = (SoftmaxFlag.CAUSAL,) if plan.causal else ()
        source: dict[str, Any] = {
            "src0": acc, "src0_stride": m, "m": m, "n": keys, "mult": head.score[0], "shift": head.score[1],
            "context": i}
        softmax += [
            Command.make(Unit.VECTOR, op=VOp.SOFTMAX_MAX, note=f"maximum {note}", flags=flags, **source),
            Command.make(Unit.VECTOR, op=VOp.SOFTMAX_EXP, note=f"probabilities {note}", dst=probabilities[i],
                         dst_stride=m, flags=flags, **source)]
        contexts.append(Command.make(
            Unit.MATRIX, note=f"context {note}", a_row=probabilities[i], a_stride=m, b_row=head.v,
            b_stride=head.key_stride, c_row=out, c_stride=m, m=m, n=plan.head_dim, k=keys,
            flags=(MatrixFlag.A_UNSIGNED,)))
        results.append(Command.make(
            Unit.VECTOR, op=VOp.REQUANT, note=f"normalise {note}", src0=out, src0_stride=m,
            dst=head.context + block.first, dst_stride=head.context_stride, m=m, n=plan.head_dim, mult=head.scale[0],
            shift=head.scale[1], context=i, flags=(RequantFlag.ROW,)))
    return [*scores, *softmax, *contexts, *results]


def move_groups(unit: Unit, note: str, *, base: int, offset: int, pitch: int, rows: int, groups: int, row: int,
                stride: int, dim: int) -> Command:
    """Move ``rows`` of each column group: [group][pitch rows][dim] in DRAM, ``stride`` rows apart in the scratchpad."""
    if pitch == rows == stride:
        return Command.make(unit, note=note, base=base, offset=offset, bytes=groups * rows * dim, row=row,
                            block_stride=1, rows=1)
    return Command.make(unit, note=note, base=base, offset=offset, stride=pitch * dim, bytes=rows * dim, row=row,
                        row_stride=stride, block_stride=1, rows=groups)


@dataclass(frozen=True, kw_only=True)
class AttentionProgram(FixedProgram):
    """Compiled attention; regions ``q``, ``k``, ``v``, ``context``."""

    heads: int
    plan: AttentionPlan

    @property
    def macs(self) -> int:
        return self.heads * self.plan.macs

    def fill(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """DRAM content (uint8, at ``base_address``) for int8 q [heads, queries, head_dim], k and v with keys rows."""
        dram, plan = np.zeros(self.size, dtype=np.uint8), self.plan
        for name, value, rows in (("q", q, plan.queries), ("k", k, plan.keys), ("v", v, plan.keys)):
            if value.shape != (self.heads, rows, plan.head_dim):
                raise CompileError(f"{name} must have shape {(self.heads, rows, plan.head_dim)}, not {value.shape}")
            self.put(dram, name, pack_groups(value, self.config.dim))
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        return dram

    def read_output(self, read_dram: ReadDram) -> np.ndarray:
        """int8 context [heads, queries, head_dim], read with ``read_dram(address, bytes)``."""
        grouped = self.read(read_dram, "context").reshape(self.heads, -1, self.plan.queries, self.config.dim)
        return unpack_groups(grouped, self.plan.head_dim).view(np.int8)


def check_scalings(heads: int, score: np.ndarray, scale: np.ndarray) -> None:
    """Refuse scalings that are not [heads, 2]; raises CompileError."""
    if heads < 1 or score.shape != (heads, 2) or scale.shape != (heads, 2):
        raise CompileError(f"score and scale must have shape {(max(heads, 1), 2)}, not {score.shape} and {scale.shape}")


def place_operands(config: Config, heads: int, plan: AttentionPlan, program_bytes: int) -> Regions:
    """The program and the four operands in DRAM."""
    regions = Regions(config)
    regions.reserve("program", program_bytes)
    for name in OPERANDS:
        rows = plan.keys if name in "kv" else plan.queries
        regions.reserve(name, heads * round_up(plan.head_dim, config.dim) * rows)
    return regions


def compile_attention(config: Config, heads: int, queries: int, keys: int, head_dim: int, *, score: np.ndarray,
                      scale: np.ndarray, causal: bool = False, base_address: int = 0) -> AttentionProgram:
    """Compile ``context = softmax(q k^T) v`` of every head, streamed from DRAM and back.

    ``score`` and ``scale`` are [heads, 2]: mult and shift that bring scores to base-2 exponents in Q13.10,
    and contexts to int8. ``causal``: the last query sees all keys, each one before it one less.

    Raises:
        CompileError: the shape does not fit the configuration.
    """
    plan, dim, step = plan_attention(config, queries, keys, head_dim, causal=causal), config.dim, config.preload
    groups, padded = ceil_div(head_dim, dim), round_up(keys, step)
    check_scalings(heads, score, scale)
    rows = {"q": groups * queries, "k": groups * padded, "v": groups * padded, "context": groups * queries}
    slot = place_regions(config, [
        [("q0", rows["q"]), ("q1", rows["q"]), *((f"probabilities{i}", plan.probability_rows) for i in range(2))],
        [(f"{name}{i}", rows[name]) for i in range(2) for name in ("k", "v")],
        [("context0", rows["context"]), ("context1", rows["context"])]])
    if slot is None:
        raise CompileError(
            f"two heads of {queries} queries, {keys} keys and {head_dim} columns must fit {config.spm_rows} scratchpad "
            "rows: use a shorter sequence")
    plan = replace(plan, row=slot)
    lengths = {"q": queries, "k": keys, "v": keys, "context": queries}
    commands: list[Command] = []

    def move(name: str, h: int) -> Command:
        return move_groups(
            Unit.STORE if name == "context" else Unit.LOAD, f"{name} {h}", base=OPERANDS.index(name),
            offset=h * groups * lengths[name] * dim, pitch=lengths[name], rows=lengths[name], groups=groups,
            row=slot[f"{name}{h % 2}"], stride=padded if name in "kv" else queries, dim=dim)

    work = [(h, Block(Head(
        name=f"head {h}", q=slot[f"q{h % 2}"], query_stride=queries, k=slot[f"k{h % 2}"], v=slot[f"v{h % 2}"],
        key_stride=padded, context=slot[f"context{h % 2}"], context_stride=queries,
        score=(int(score[h, 0]), int(score[h, 1])), scale=(int(scale[h, 0]), int(scale[h, 1]))), *block))
        for h in range(heads) for block in plan.blocks]
    for at in range(0, len(work), plan.flight):
        taken = work[at:at + plan.flight]
        commands += [move(name, h) for h, block in taken if block.first == 0 for name in ("q", "k", "v")]
        commands += attend(plan, [block for _, block in taken])
        commands += [move("context", h) for h, block in taken if block.first + block.rows == queries]
    commands = hoist_loads(commands, config)
    image = encode_program(commands)
    regions = place_operands(config, heads, plan, len(image))
    program = AttentionProgram(
        config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
        symbols=regions.symbols(base_address), bases=dict(enumerate(OPERANDS)), heads=heads, plan=plan)
    return program.verified(program.registers())
