"""An entry program on its way through the passes: what each of them leaves for those behind it.

A kind of program (a decoder's pass, a greedy loop, an encoder, a product ...) is a subclass that says how it is
written, in which order and where its buffers go. All kinds share one representation and the passes of
:mod:`gemmule.compiler.passes.pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.kernels.virtual import Buffer, Item
from gemmule.compiler.layout import RegionTable
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import base_registers
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import Operator
from gemmule.compiler.passes.map import Choice, DecoderMapping
from gemmule.compiler.program import Program, Standing
from gemmule.config import Config
from gemmule.isa import Command, encode_program

__all__ = ["Constants", "Entry", "Lowered", "Part", "Scheduled", "straight"]

P = TypeVar("P", bound=Program)
Constants = Mapping[str, Sequence[tuple[int, Constant]]]
"""Contents by DRAM region: (offset, content)."""
Part = list[Item]
"""What is put in order by itself: a layer of a decoder, a phase of an encoder's layer."""


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """What the kernels write for one program: before the layers, layer by layer, behind them."""

    before: list[Part]
    layers: list[list[Part]] = field(default_factory=list)
    behind: list[Part] = field(default_factory=list)
    once: Part = field(default_factory=list)
    """Of a greedy loop, before the first turn."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes by DRAM region."""
    constants: Constants = field(default_factory=dict)
    """What the network fixes in DRAM."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """By region: bytes by which a turn of a loop displaces it."""
    batch: int = 1
    """Sequences of a pass."""
    launch: tuple[Command, ...] = ()
    """PARAMS at the end of the parameter memory in front of all else, whose numbers each launch says itself."""
    rolled: bool = False
    """Equal layers become one body."""
    lent: list[Part] = field(default_factory=list)
    """Stores of rows for another network, each behind ``every`` more layers."""
    every: int = 0
    copies: int = 0
    """Further layers like the last one, which are not written: they only make the body's turns."""
    turns: int = 1
    """How often all but ``once`` runs at most: of a greedy loop its turns."""


def straight(items: Iterable[Item]) -> Lowered:
    """What one kernel writes whole."""
    return Lowered(before=[list(items)])


@dataclass(frozen=True)
class Scheduled:
    """Items in the order in which they are dispatched."""

    items: Sequence[Item]
    phases: Sequence[Sequence[Item]]
    """The same by phases, each of which has the scratchpad to itself; of layers that are one body, one layer's."""
    again: int = 0
    """So many phases behind the first come again and again."""
    silent: int | None = None
    """Items of a launch without answers, where those behind them are a head."""


class Entry(Generic[P]):
    """One program from operators to its last wait. Passes set the attributes, each reads those of the passes before."""

    name = "a program"
    """For messages."""
    image = "program"
    """Its image's region in DRAM."""
    turns: Sequence[int | None] = (None,)
    """Of each body, how many turns are followed to find waits, one run after the other; None: all."""

    network: Network
    """Of those that have one."""
    operators: Sequence[Operator]
    candidates: Sequence[Choice]
    mapping: DecoderMapping
    """The one of the candidates that is tried, at last the one that fits."""
    apart: bool
    """With it every class of buffers has banks of its own."""
    lowered: Lowered
    scheduled: Scheduled
    placed: Mapping[Buffer, int]
    """First row of each buffer."""
    bases: Mapping[str, int]
    """Base register by DRAM region."""
    emitted: list[Command]
    """Commands without waits."""
    bounds: Bounds
    commands: list[Command]
    """Commands with the waits of straight lines."""
    table: RegionTable
    """Where DRAM regions stand; set by the linker."""
    program: P

    def __init__(self, config: Config) -> None:
        self.config = config

    # -- what kinds of programs do in their own way. A kind that begins behind a pass lacks its hook: the pass never
    # runs for it, and an error says so where the compiler asks for it all the same.

    def fuse(self) -> Sequence[Operator]:
        """The operators of its network."""
        raise NotImplementedError(f"{self.name} has no network of its own")

    def choose(self) -> Sequence[Choice]:
        """Mappings, the preferred ones first."""
        raise NotImplementedError(f"{self.name} has no mapping of its own")

    def lower(self) -> Lowered:
        """Commands on virtual buffers."""
        raise NotImplementedError(f"{self.name} is made of commands")

    def schedule(self) -> Scheduled:
        """As the kernel has written it."""
        items = [item for part in self.lowered.before for item in part]
        return Scheduled(items, [items])

    def allocate(self) -> Mapping[Buffer, int]:
        """Rows of buffers, whatever their class."""
        return allocate(self.scheduled.items, self.config, apart=False)

    def name_bases(self) -> Mapping[str, int]:
        """A base register for each region."""
        return base_registers(self.scheduled.items)

    def limit(self) -> Bounds:
        """What length registers may hold in a launch."""
        return {}

    def regions(self) -> Mapping[str, int]:
        """Bytes of the DRAM regions that it has beside its image and those that kernels name."""
        return {}

    def build(self) -> P:
        """The program among the regions of :attr:`table`."""
        raise NotImplementedError(f"{self.name} is built already")

    # -- for these

    def standing(self, bases: Mapping[int, str], regions: Iterable[str] | None = None) -> Standing:
        """What every program is made of, in DRAM. ``regions``: those that it names; by default all."""
        symbols = self.table.symbols
        if regions is not None:
            symbols = {"program": symbols[self.image], **{name: symbols[name] for name in regions}}
        return Standing(
            config=self.config, image=encode_program(self.commands), commands=tuple(self.commands),
            base_address=self.table.base_address, size=self.table.size, symbols=dict(symbols), bases=bases)
