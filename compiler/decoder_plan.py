"""Where everything of a decoder lives on the device: whole banks per purpose, then rows inside them.

Port rules behind the split: a matrix command's A and B, and a vector command's r0 and r1, lie in
different banks; loads that run far ahead (the weight ring) share no bank with vector results.

    ring         weight chunks, streamed                                    matrix.B
    kv           keys and values of one layer  [block][position]            matrix.B
    activations  normed rows, q, P, context, MLP rows, every norm's gamma   matrix.A, vector.w, r1
    state        residual planes, column parameters, angles, logits         vector.r0, r1
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.checkpoint import DecoderShape
from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import MOST_DEPTH
from gemmule.compiler.place import Cursor, Plan, number, round_up
from gemmule.config import Config
from gemmule.numerics import BYTE_TABLE_ENTRIES
from gemmule.operands import COLUMN_ROWS, GAMMA_ROWS
from gemmule.timing import ceil_div

__all__ = ["MAX_ROWS", "DecoderPlan", "plan_decoder"]

MAX_ROWS = 16
"""Most rows of one launch: one base register each."""
CHUNK_BYTES = 16 * 1024
"""Wanted size of a weight chunk: long loads, few commands."""


@dataclass(frozen=True, kw_only=True)
class DecoderPlan(Plan):
    """Buffers of a decoder; ``rows`` (R) new tokens fit one launch, in one block. Groups are columns over DIM."""

    rows: int
    accumulator_rows: int
    """Rows of an accumulator slot."""
    ring_rows: int
    """Rows of a slot of the weight ring."""
    flight: int
    """Heads in flight together."""
    logit_groups: int
    """Column groups of a logit buffer."""
    table_rows: int
    """Rows of the activation table at the head of a layer's parameters."""

    def chunk_groups(self, depth_rows: int, *, staged: bool) -> int:
        """Column groups of a chunk with ``depth_rows`` weight rows a group; logits are staged as int16."""
        groups = min(self.ring_rows // depth_rows, self.accumulator_rows // self.rows)
        return min(groups, self.logit_groups) if staged else groups


def _ring(banks: int, depth: int, config: Config) -> tuple[list[int], int]:
    """(first rows, rows) of the ring's slots, consecutive ones in different banks; no slot when no group fits."""
    bank = config.spm_bank_rows
    if depth > bank:
        span = ceil_div(depth, bank)
        return [i * span * bank for i in range(banks // span)], span * bank
    parts = 1
    while (bank // (2 * parts) >= depth and bank // (2 * parts) * config.dim >= CHUNK_BYTES
           or banks * parts < 4 and bank // (2 * parts) >= depth):
        parts *= 2
    size = bank // parts // config.preload * config.preload
    return [i % banks * bank + i // banks * size for i in range(parts * banks)], size


def _accumulators(need: int, config: Config) -> tuple[tuple[int, ...], int]:
    """(first rows, rows) of the accumulator's slots, each of whole banks."""
    size = round_up(need, config.acc_bank_rows)
    return tuple(range(0, config.acc_rows - size + 1, size)), size


def _check(shape: DecoderShape, config: Config) -> int:
    """Rows of angles per token group; the rules that no number of rows can mend."""
    dim = config.dim
    ratio = shape.head_dim // dim
    if shape.head_dim % dim or ratio & (ratio - 1) or ratio > 128:
        raise CompileError(
            f"head_dim must be dim = {dim} times a power of two up to 128, not {shape.head_dim}: "
            "choose a config with a smaller dim")
    if shape.max_positions % config.preload:
        raise CompileError(
            f"max_position_embeddings must be a multiple of preload = {config.preload}, "
            f"not {shape.max_positions}: round it up")
    depth = max(shape.hidden, shape.width, shape.inner)
    if depth >= MOST_DEPTH:
        raise CompileError(
            f"a product's depth must stay below {MOST_DEPTH} for int32 sums, not {depth}: split the layer")
    return ratio


def _plan(shape: DecoderShape, config: Config, rows: int) -> DecoderPlan | str:
    """The plan for ``rows`` tokens a launch, or what does not fit."""
    dim, bank = config.dim, config.spm_bank_rows
    hidden, width, inner, vocab, context = (ceil_div(n, dim) for n in (
        shape.hidden, shape.width, shape.inner, shape.vocab, shape.max_positions))
    head = shape.head_dim // dim
    need = rows * max(context, head)
    accumulators, accumulator_rows = _accumulators(need, config)
    if not accumulators:
        return f"scores of {rows} x {shape.max_positions} need {need} accumulator rows of {config.acc_rows}"
    flight = min(2, len(accumulators), config.stat_contexts, shape.heads)
    table_rows = ceil_div(BYTE_TABLE_ENTRIES, dim)

    mlp = inner * rows * (1 if not shape.gated else 2)
    attention = rows * (2 * width + flight * context)
    active = rows * hidden + max(mlp, attention) + (2 * shape.layers + 1) * GAMMA_ROWS * hidden
    layer = table_rows + COLUMN_ROWS * (3 * width + hidden + inner * (2 if shape.gated else 1) + hidden)
    parameter = max(layer, COLUMN_ROWS * vocab)
    copies = 2  # the next layer's (or the head's) arrive while these are in use
    fixed = rows * (2 * hidden + 4 * head) + parameter * copies

    kv_banks = ceil_div(2 * width * shape.max_positions, bank)
    active_banks = ceil_div(active, bank)
    depth = round_up(max(shape.hidden, shape.width, shape.inner), config.preload)

    def state(groups: int) -> int:
        """Banks with two logit buffers of so many column groups."""
        return ceil_div(fixed + max(4 * groups * rows, inner * rows if shape.gated else 0), bank)

    groups = min(vocab, accumulator_rows // rows)
    while groups > 1 and state(groups) > state(1):
        groups -= 1
    state_banks = state(groups)
    ring_banks = config.spm_banks - kv_banks - active_banks - state_banks
    ring, ring_rows = _ring(ring_banks, depth, config) if ring_banks >= 1 else ([], 0)
    if not ring:
        need = kv_banks + active_banks + state_banks + ceil_div(depth, bank)
        return (f"of {config.spm_banks} scratchpad banks of {bank} rows it needs {need}: keys and values "
                f"{kv_banks}, activations {active_banks}, residual and parameters {state_banks}, a weight chunk "
                f"{ceil_div(depth, bank)}")
    kv = ring_banks * bank
    at = Cursor(kv + kv_banks * bank)
    row = {"kv": kv, "normed": at.take(rows * hidden), "gamma": at.take((2 * shape.layers + 1) * GAMMA_ROWS * hidden)}
    row["inner"] = at.next  # of the MLP, which begins when attention is done
    row |= {"q": at.take(rows * width), "context": at.take(rows * width)}
    row |= number("probabilities", [at.take(rows * context) for _ in range(flight)])
    at = Cursor(kv + (kv_banks + active_banks) * bank)
    row |= {"residual": at.take(2 * rows * hidden), "angles": at.take(4 * head * rows)}
    row |= number("parameters", [at.take(parameter) for _ in range(copies)])
    row["up"] = at.next  # done with when logits begin
    row |= number("logits", [at.take(groups * 2 * rows) for _ in range(2)])
    return DecoderPlan(
        blocks=((0, rows),), row=row | number("ring", ring), accumulators=accumulators, rows=rows,
        accumulator_rows=accumulator_rows, ring_rows=ring_rows, flight=flight, logit_groups=groups,
        table_rows=table_rows)


def plan_decoder(shape: DecoderShape, config: Config, max_rows: int | None = None) -> DecoderPlan:
    """A plan for ``max_rows`` tokens a launch, or by default for the most that fit, up to 16.

    Raises:
        CompileError: not even one row fits, or not the wanted number.
    """
    _check(shape, config)
    if max_rows is not None and not 1 <= max_rows <= min(MAX_ROWS, config.stat_rows):
        raise CompileError(
            f"max_rows must be from 1 to {min(MAX_ROWS, config.stat_rows)}, not {max_rows}: "
            "launch several times")
    reason = ""
    choices = [max_rows] if max_rows else [n for n in (16, 8, 4, 2, 1) if n <= config.stat_rows]
    for rows in choices:
        plan = _plan(shape, config, min(rows, shape.max_positions))
        if isinstance(plan, DecoderPlan):
            return plan
        reason = plan
    raise CompileError(
        f"the model does not fit config {config.name!r} at {choices[-1]} row(s) a launch: {reason}; use "
        "more banks (spm_banks, four at least) or larger memories (spm_kib, acc_kib)")
