"""A bench for proofs: one real component, free inputs, a view of its registers and memories, and properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Cover, Fragment, Module, Shape, ShapeLike, Signal, Value
from amaranth.hdl._ast import AnyConst, AnySeq
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import data
from amaranth.lib.wiring import Component
from amaranth.utils import ceil_log2

from gemmule.hw.flow.verilog import without_collection, without_folders

__all__ = ["Bench", "Kind", "Property"]

C = TypeVar("C", bound=Component)


class Kind(StrEnum):
    """What a property is for."""

    ASSERT = "assert"
    ASSUME = "assume"
    COVER = "cover"


@dataclass(frozen=True)
class Property:
    """A named sentence about every cycle. An assumption is trusted, a cover must be reachable."""

    kind: Kind
    name: str
    text: str
    lemma: bool = False
    """An assertion that serves to prove the others: it says something about registers inside."""
    bounded: bool = False
    """An assertion that is checked to a depth only."""


_STATEMENTS = {Kind.ASSERT: Assert, Kind.ASSUME: Assume, Kind.COVER: Cover}


class Bench:
    """Builds what a solver gets: the component as it is elaborated for the device, and properties around it.

    Every input of the component is free in every cycle but for the assumptions. The first cycle is the one after a
    reset; there is no other reset.

    Parameters
    ----------
    keep: which assertions count; all by default.

    Members
    -------
    m: Module
        For registers and gates that properties need.
    first: Signal
        High in the first cycle.
    properties: list[Property]
        In the order in which they were stated; the solver names them by their place here.
    """

    def __init__(self, keep: Callable[[Property], bool] = lambda property: True) -> None:
        self.keep = keep
        self.m = Module()
        self.m.domains.sync = domain = ClockDomain(reset_less=True)
        self.first = Signal(init=1)
        self.m.d.sync += self.first.eq(0)
        self.properties: list[Property] = []
        self._ports: list[Value] = [domain.clk]
        self._fragment = Fragment()
        self._names: dict[str, int] = {}
        self._cut: dict[str, Any] = {}

    def dut(self, component: C, *, cut: Iterable[str] = ()) -> C:
        """Put ``component`` under proof, once.

        Parameters
        ----------
        cut: paths of submodules (``resolve``) that are left out: what they drive is free, so that a proof holds
            whatever they do.
        """
        with without_collection():
            self._fragment = Fragment.get(component, None)
        self._free(component, "In")
        for path in cut:
            parent, _, name = path.rpartition(".")
            around = self._inside(parent)
            part = around.find_subfragment(name)
            around.subfragments = [each for each in around.subfragments if each[0] is not part]
            assert part.origins
            self._cut[path] = part.origins[0]
            self._free(part.origins[0], "Out")
        self.m.submodules.dut = self._fragment
        return component

    def _free(self, component: Component, flow: str) -> None:
        for _, member, value in component.signature.flatten(component):
            if member.flow.name == flow:
                self._ports.append(Value.cast(value))

    def _inside(self, path: str) -> Fragment:
        fragment = self._fragment
        for name in filter(None, path.split(".")):
            fragment = fragment.find_subfragment(name)
        return fragment

    def part(self, path: str) -> Any:
        """The component that stands at ``path`` in the one under proof: its ports can be read."""
        if path in self._cut:
            return self._cut[path]
        origins = self._inside(path).origins
        assert origins
        return origins[0]

    def register(self, path: str) -> Signal:
        """A signal inside, by the names of submodules and its own: ``reader.beat``.

        Raises:
            LookupError: there is no such signal, or more than one.
        """
        parent, _, name = path.rpartition(".")
        around = self._inside(parent)
        parts = [self._cut[cut] for cut in self._cut if cut.rpartition(".")[0] == parent]
        parts += [part.origins[0] for part, _, _ in around.subfragments if part.origins]
        ports = {id(Value.cast(value)) for part in parts if isinstance(part, Component)
                 for _, _, value in part.signature.flatten(part)}
        found = {id(signal): signal for signal in _driven(around) if signal.name == name and id(signal) not in ports}
        if len(found) != 1:
            raise LookupError(f"{path} must be one signal of the component, not {len(found)}")
        return next(iter(found.values()))

    def written(self, path: str) -> Value:
        """Data at the write port of a memory inside."""
        return self._memory(path)._write_ports[0]._data

    def _memory(self, path: str) -> MemoryInstance:
        memory = self._inside(path)
        if not isinstance(memory, MemoryInstance):
            raise LookupError(f"{path} must be a memory of the component, not a {type(memory).__name__}")
        return memory

    def word(self, path: str, address: Value | int) -> Signal:
        """What a memory inside holds at ``address`` in this cycle: by a read port of the bench's own."""
        memory = self._memory(path)
        number = self._names[path] = self._names.get(path, 0) + 1
        name = f"{path.replace('.', '_')}_{number}"
        at = Signal(ceil_log2(memory._data.depth), name=f"{name}_at")
        data = Signal(Shape.cast(memory._data.shape).width, name=f"{name}_word")
        self.m.d.comb += at.eq(address)
        memory.read_port(domain="comb", addr=at, data=data, en=Value.cast(1), transparent_for=())
        return data

    def constant(self, shape: ShapeLike, name: str) -> Signal:
        """A value that is the same in every cycle, and any."""
        return self.wire(AnyConst(shape), name)

    def choice(self, shape: ShapeLike, name: str) -> Signal:
        """A value that is any in every cycle."""
        return self.wire(AnySeq(shape), name)

    def wire(self, value: Any, name: str) -> Signal:
        """``value`` under a name, which traces show."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=name)
        self.m.d.comb += signal.eq(value)
        return signal

    @staticmethod
    def fields(value: Value, layout: Any, name: str) -> Value:
        """A field of the raw bits of a struct."""
        return Value.cast(data.View(layout, value)[name])

    def before(self, value: Any, name: str, init: int = 0) -> Signal:
        """``value`` of the cycle before; ``init`` in the first."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=f"{name}_before", init=init)
        self.m.d.sync += signal.eq(value)
        return signal

    def _state(self, property: Property, conditions: Iterable[Any]) -> None:
        """Yosys and the solver name a property by the "line" of its statement: its number."""
        if any(property.name == other.name and property.kind == other.kind for other in self.properties):
            raise ValueError(f"names of properties must differ, not {property.name} twice")
        if property.kind != Kind.ASSERT or self.keep(property):
            statement = _STATEMENTS[property.kind](_all(conditions))
            statement.src_loc = ("property", len(self.properties))
            self.m.d.comb += statement
        self.properties.append(property)

    def always(self, name: str, text: str, *conditions: Any, bounded: bool = False) -> None:
        """In every cycle all of ``conditions`` hold; ``bounded``: no induction is tried."""
        self._state(Property(Kind.ASSERT, name, text, bounded=bounded), conditions)

    def lemma(self, name: str, text: str, *conditions: Any) -> None:
        """What holds of the registers inside, so that induction finds a proof of the rest."""
        self._state(Property(Kind.ASSERT, name, text, lemma=True), conditions)

    def assume(self, name: str, text: str, *conditions: Any) -> None:
        """What is around the component keeps ``conditions``: trusted here."""
        self._state(Property(Kind.ASSUME, name, text), conditions)

    def cover(self, name: str, text: str, condition: Any) -> None:
        """There is a way to ``condition``."""
        self._state(Property(Kind.COVER, name, text), (condition,))

    def rtlil(self) -> str:
        """The bench with its component, as RTLIL of module ``top``."""
        with without_collection():
            return without_folders(rtlil.convert(self.m, name="top", ports=self._ports))


def _all(conditions: Iterable[Any]) -> Value:
    result: Value | None = None
    for condition in conditions:
        value = Value.cast(condition).bool()
        result = value if result is None else result & value
    if result is None:
        raise ValueError("a property must have a condition")
    return result


def _driven(fragment: Fragment) -> Iterator[Signal]:
    """Signals that a module assigns, but not those of its submodules."""
    for statements in fragment.statements.values():
        for statement in statements:
            yield from statement._lhs_signals()
