"""What a compilation tried and what each pass made, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from gemmule.compiler.ir import Graph
from gemmule.compiler.ir import listing as graph_listing
from gemmule.compiler.kernels.virtual import At, Buffer, Item, Loop, SetDisplacement, Value, VirtualCommand
from gemmule.compiler.listing import listing
from gemmule.compiler.passes.entry import Entry, Part
from gemmule.compiler.passes.fuse import Operator, nodes_of
from gemmule.compiler.passes.map import DecoderMapping
from gemmule.isa import OPERATIONS, Command, Length, disassemble, flag_name
from gemmule.operands import Memory

__all__ = ["Notes", "Tried", "described"]


@dataclass(frozen=True)
class Tried:
    """A mapping that was not taken, and why; ``apart``: with bank classes in banks of their own."""

    mapping: DecoderMapping
    apart: bool
    why: str
    cycles: int | None = None
    """Of one that fits, where mappings are compared by cycles."""


@dataclass
class Notes:
    """Filled by :func:`gemmule.compiler.compile.compile_network`; ``passes`` are listings by name, in order."""

    tried: list[Tried] = field(default_factory=list)
    mapping: DecoderMapping | None = None
    apart: bool = True
    rows: dict[Buffer, int] = field(default_factory=dict)
    """First row of every buffer."""
    passes: dict[str, str] = field(default_factory=dict)

    def begin(self, graph: Graph, operators: Sequence[Operator]) -> None:
        """The graph, and what fuse made of it."""
        self.passes["graph"] = graph_listing(graph)
        self.passes["fuse"] = "".join(
            f"{type(operator).__name__.lower():<10} {', '.join(node.name for node in nodes_of(operator))}\n"
            for operator in operators)

    def chosen(self, entry: Entry[Any]) -> None:
        """What map, lower, schedule and allocate made."""
        mapping, lowered = entry.mapping, entry.lowered
        self.mapping, self.apart, self.rows = mapping, entry.apart, dict(entry.placed)
        self.passes["map"] = "".join(f"{name} = {value}\n" for name, value in described(mapping).items())
        parts = [("before the layers", _joined(lowered.before)), *((f"layer {i}", _joined(layer)) for i, layer in
                 enumerate(lowered.layers)),
                 *((f"rows lent at depth {i}", part) for i, part in enumerate(lowered.lent)),
                 ("behind the layers", _joined(lowered.behind))]
        self.passes["lower"] = "".join(
            f"{name}: {len(items)} items\n" + ("".join(_lines(items, 1)) if name in (
                "before the layers", "layer 0", "behind the layers") else "") for name, items in parts)
        self.passes["schedule"] = "".join(_lines(entry.scheduled.items, 0))
        self.passes["allocate"] = "".join(_placed(entry.placed))

    def emitted(self, name: str, commands: Sequence[Command]) -> None:
        """Commands behind a pass."""
        self.passes[name] = listing(commands)


def described(mapping: DecoderMapping) -> dict[str, object]:
    """Its numbers by name, attention's among them."""
    found: dict[str, object] = {}
    for part in fields(mapping):
        value = getattr(mapping, part.name)
        if part.name == "attention":
            found |= {f"attention.{inner.name}": getattr(value, inner.name) for inner in fields(value)}
        else:
            found[part.name] = value
    return found


def _value(value: Value) -> str:
    if isinstance(value, At):
        return f"{value.buffer.name}+{value.row}" if value.row else value.buffer.name
    if isinstance(value, Length):
        return f"{value.cap}" if not value.reg else f"len{value.reg}-{value.offset}<={value.cap}"
    return str(value)


def _joined(parts: Sequence[Part]) -> Part:
    return [item for part in parts for item in part]


def _lines(items: Sequence[Item], depth: int) -> Iterator[str]:
    """One line an item; bodies of loops further in."""
    indent = "  " * depth
    for item in items:
        if isinstance(item, Loop):
            yield f"{indent}repeat {_value(item.times)} >> {item.shift}  # {item.note}\n"
            yield from _lines(item.body, depth + 1)
        elif isinstance(item, SetDisplacement):
            origin = f"{item.origin} + " if item.origin else f"{item.region} + " if item.further else ""
            yield f"{indent}displace {item.region} = {origin}{item.amount}\n"
        elif isinstance(item, VirtualCommand):
            known = OPERATIONS.get((item.unit, item.op))
            given = " ".join([*(f"{name}={_value(value)}" for name, value in item.fields.items() if value != 0),
                              *(flag_name(item.unit, item.op, item.flags, bit) for bit in sorted(item.flags))])
            region = f" of {item.region}" if item.region else ""
            yield f"{indent}{known.label if known else item.unit.label}{region} {given}  # {item.note}\n"
        else:
            yield f"{indent}{disassemble(item)}\n"


def _placed(rows: Mapping[Buffer, int]) -> Iterator[str]:
    for memory in Memory:
        for buffer in sorted((b for b in rows if b.memory is memory), key=lambda b: (rows[b], b.rows, b.name)):
            first = rows[buffer]
            yield f"{memory.name.lower()} {first:6d} .. {first + buffer.rows - 1:6d}  {buffer.bank.value:<12}" \
                  f" {buffer.name}\n"
