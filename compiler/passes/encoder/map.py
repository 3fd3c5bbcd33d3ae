"""Map of an encoder: rows of a block and ring of each phase, blocks of queries, in the order of preference.

A layer is cut into phases between which values stand in DRAM: queries, keys and values; attention; its output with the
norm behind it; the MLP with its norm. Each phase has the scratchpad for itself. The larger a block of rows, the less
often weights stream; two blocks in a turn let the norm of one hide behind the products of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Graph, Linear
from gemmule.compiler.kernels.attention.sequence import SequenceMapping
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = [
    "PhaseMapping", "EncoderMapping", "attention_axes", "attention_mapping", "attention_mappings", "block_axes",
    "block_mapping", "block_mappings", "check_sequence"]

MOST_TURN = 128
"""Rows of a turn at most: offsets of length registers reach no further than 255."""
QUARTERS = 4
"""Of the accumulator: two blocks of scores and two of contexts; tiles of a product in flight."""


@dataclass(frozen=True, kw_only=True)
class PhaseMapping:
    """How the rows and weights of a phase are cut."""

    rows: int
    """Of a block, a power of two where there are several turns."""
    together: int
    """Blocks of a turn."""
    ring_slots: int
    ring_rows: int
    """Scratchpad rows of a slot of the weight ring."""
    norm_rows: int
    """Rows that a norm takes at a time."""
    acc_rows: int
    """Accumulator rows of a product's tile."""
    parameter_rows: int
    """Rows of column parameters that are loaded together, about."""


@dataclass(frozen=True, kw_only=True)
class EncoderMapping:
    """How an encoder is cut for a device."""

    sequence: int
    """Most rows of a sequence."""
    heads: PhaseMapping
    """Of queries, keys and values."""
    attention: SequenceMapping
    output: PhaseMapping
    mlp: PhaseMapping
    fused: bool = True
    """Values stay on the device between operators of a phase; else each goes through DRAM."""


def check_sequence(graph: Graph, config: Config, sequence: int) -> None:
    """Refuse lengths that the network or the device does not take; raises CompileError."""
    most = min(graph.positions, config.list_entries // 2)
    if not 1 <= sequence <= most:
        raise CompileError(f"rows of a sequence must be from 1 to {most}, not {sequence}: use a shorter one")


def attention_mappings(node: Attention, config: Config, sequence: int,
                       standard: bool = False) -> Iterator[SequenceMapping]:
    """Blocks of queries whose scores take a quarter of the accumulator, two in flight, heads loaded ahead.

    Raises:
        CompileError: not even one row of scores fits, or heads share keys.
    """
    if node.heads != node.kv_heads:
        raise CompileError(f"{node.name} must have as many KV heads as heads = {node.heads} in an encoder, not "
                           f"{node.kv_heads}")
    if node.block and (standard or node.block % config.dim or node.block & (node.block - 1)):
        raise CompileError(f"online attention must have a block that is a power of two and a multiple of {config.dim}, "
                           f"and no standard way, not {node.block}")
    for values in product(*attention_axes(node, config, sequence).values()):
        yield replace(attention_mapping(sequence, *values), standard=standard)


def attention_axes(node: Attention, config: Config, sequence: int) -> dict[str, tuple[int, ...]]:
    """What may be chosen of attention, by name, the best first as a rule: a block of queries, heads loaded ahead.

    Raises:
        CompileError: not even one row of scores fits.
    """
    flight = min(2, config.stat_contexts)
    wide = max(ceil_div(min(node.block or sequence, sequence), config.dim), ceil_div(node.head_dim, config.dim))
    most = min(config.acc_rows // QUARTERS // wide, config.stat_rows, MOST_TURN // flight)
    if not most:
        raise CompileError(f"a row of scores must fit {config.acc_rows // QUARTERS} accumulator rows, not {wide}: use "
                           "a shorter sequence or a larger accumulator (acc_kib)")
    return {"queries": tuple(1 << shift for shift in reversed(range(most.bit_length()))), "flight": (flight,),
            "ahead": (1, 0)}


def attention_mapping(sequence: int, queries: int, flight: int, ahead: int) -> SequenceMapping:
    """Of these values: blocks are no longer than the sequence needs."""
    rows = min(queries, ceil_div(sequence, flight)) if queries * flight >= sequence else queries
    return SequenceMapping(queries=rows, flight=flight, ahead=ahead)


def block_mappings(linears: list[Linear], config: Config, sequence: int) -> Iterator[PhaseMapping]:
    """Larger blocks first, then two in a turn, then longer rings."""
    for size, count, ring in product(*block_axes(linears, config, sequence).values()):
        found = block_mapping(config, sequence, size, count, ring)
        if found:
            yield found


def block_axes(linears: list[Linear], config: Config, sequence: int) -> dict[str, tuple[Any, ...]]:
    """What may be chosen of a phase, by name: rows of a block, blocks of a turn, and (slots, rows of one) of the ring.

    The best first as a rule.
    """
    dim = config.dim
    most = min(config.stat_rows, config.acc_rows // QUARTERS, 2 * dim * dim // config.bus_bytes)
    depth = min(ceil_div(node.depth, dim) * dim * node.bits // 8 for node in linears)
    sizes = (min(1 << shift, sequence) for shift in reversed(range(most.bit_length())))
    rings = [(slots, depth * tiles) for slots, tiles in ((4, 2), (4, 1), (3, 1))]
    rings += [(slots, ceil_div(depth // dim, parts) * dim) for slots, parts in (
        (5, 2), (4, 2), (4, 3), (3, 3), (4, 6), (3, 12), (2, 12))]
    align = config.preload
    return {"rows": tuple(dict.fromkeys(sizes)), "together": (2, 1),
            "ring": tuple(dict.fromkeys((slots, max(ceil_div(rows, align) * align, dim)) for slots, rows in rings))}


def block_mapping(config: Config, sequence: int, rows: int, together: int,
                  ring: tuple[int, int]) -> PhaseMapping | None:
    """Of these values; None where there is only one block."""
    if together > 1 and rows >= sequence:
        return None
    return PhaseMapping(
        rows=rows, together=together, ring_slots=ring[0], ring_rows=ring[1], norm_rows=min(rows, 32),
        acc_rows=max(rows, config.acc_rows // 8), parameter_rows=min(512, config.spm_rows // 64))
