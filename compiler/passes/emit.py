"""Emit: commands with rows and base registers, bodies behind their REPEAT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.shared import CACHE, NEW, NEW_SUMS, OLD, PACKED, SUMS
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Buffer, Item, Loop, SetDisplacement, Value, VirtualCommand, leaves
from gemmule.compiler.passes.roll import LAYER_REGION
from gemmule.control import repeat, set_displacement
from gemmule.isa import NUM_BASES, Command, Length, Source

__all__ = ["base_registers", "command_count", "emit", "fixed_bases"]


def base_registers(items: Iterable[Item]) -> dict[str, int]:
    """A base register for each DRAM region, in the order of use.

    Raises:
        CompileError: more regions than registers.
    """
    found: dict[str, int] = {}
    for item in leaves(items):
        if isinstance(item, VirtualCommand | SetDisplacement) and item.region is not None:
            found.setdefault(item.region, len(found))
    if len(found) > NUM_BASES:
        raise CompileError(f"a program must use at most {NUM_BASES} DRAM regions, not {len(found)}")
    return found


def fixed_bases(bases: Mapping[str, int]) -> dict[int, str]:
    """The DRAM region of each base register that a launch does not move by itself, whatever part of it is meant."""
    parts = {NEW_SUMS: SUMS}
    return {register: CACHE if region.startswith((NEW, OLD, PACKED))
            else parts.get(region, region.removesuffix(stored("")))
            for region, register in bases.items() if not region.endswith(LAYER_REGION)}


def emit(items: Sequence[Item], rows: Mapping[Buffer, int], bases: Mapping[str, int]) -> list[Command]:
    """All commands, without waits."""
    found: list[Command] = []
    for item in items:
        match item:
            case Loop():
                body = emit(item.body, rows, bases)
                found += [repeat(len(body), item.times, shift=item.shift, note=item.note), *body]
            case VirtualCommand():
                found.append(_command(item, rows, bases))
            case SetDisplacement():
                if item.word is not None:
                    found.append(set_displacement(bases[item.region], Source.WORD, index=item.word, note=item.region))
                    continue
                origin = item.origin or (item.region if item.further else None)
                source = Source.ZERO if origin is None else Source.DISPLACEMENT
                found.append(set_displacement(bases[item.region], source, bases[origin] if origin else 0,
                                              amount=item.amount, note=item.region))
            case Command():
                found.append(item)
    return found


def command_count(items: Iterable[Item]) -> int:
    """Of these items: each one, and a REPEAT before every body."""
    return sum(1 + command_count(item.body) if isinstance(item, Loop) else 1 for item in items)


def _command(step: VirtualCommand, rows: Mapping[Buffer, int], bases: Mapping[str, int]) -> Command:
    def number(value: Value) -> int | Length:
        return rows[value.buffer] + value.row if isinstance(value, At) else value

    fields: dict[str, Any] = {name: number(value) for name, value in step.fields.items()}
    if step.region is not None:
        fields["base"] = bases[step.region]
    return Command.make(step.unit, op=step.op, flags=step.flags, dyn=step.dyn, note=step.note,
                        predicate=step.predicate, **fields)
