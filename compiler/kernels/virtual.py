"""What kernels write: commands on virtual buffers and named DRAM regions, in an order right one after another.

A kernel says what a buffer is for (its bank class) and how large it is, never where it stands; it names DRAM regions,
never addresses. :mod:`gemmule.compiler.passes.allocate` gives rows, :mod:`gemmule.compiler.passes.emit` base registers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.contents import Constant, Contents
from gemmule.config import Config
from gemmule.isa import Command, Dyn, Length, RequantFlag, SOp, Unit, VOp
from gemmule.operands import Memory

__all__ = [
    "HEAD_WEIGHTS", "NO_DYN", "STATIC", "WEIGHTS", "At", "Bank", "Buffer", "Builder", "Item", "Loop",
    "LengthReg", "SetDisplacement", "VirtualCommand", "Value", "leaves", "rotation",
]


NO_DYN = (Dyn.NONE, 0, 0)
WEIGHTS = "weights"
"""Region of what streams: the layers' weights."""
HEAD_WEIGHTS = "head weights"
"""Region of the head's, where offsets of 32 bits do not reach beyond the layers'."""
STATIC = "static"
"""Region of what is small and stays: column parameters, gamma, tables."""


class Bank(Enum):
    """Which neighbours a buffer's rows want: classes stand in banks of their own where there are enough."""

    STREAM = "stream"
    """Written by loads, read by the mesh as B: weights, blocks of the cache."""
    OPERAND = "operand"
    """Written by the vector unit, read by the mesh as A (and the new keys and values as B)."""
    STATE = "state"
    """The residual stream, parameters and tables: read by the vector unit."""
    RESULT = "result"
    """Written by the vector unit, read by stores."""
    ACCUMULATOR = "accumulator"


@dataclass(frozen=True, eq=False)
class Buffer:
    """``rows`` consecutive rows of a memory; equal only to itself."""

    name: str
    rows: int
    bank: Bank
    align: int = 1
    """Its first row is a multiple of this."""

    @property
    def memory(self) -> Memory:
        return Memory.ACC if self.bank is Bank.ACCUMULATOR else Memory.SPM


@dataclass(frozen=True)
class At:
    """Row ``row`` of a buffer."""

    buffer: Buffer
    row: int = 0

    def __add__(self, rows: int) -> At:
        return At(self.buffer, self.row + rows)


Value = int | Length | At


@dataclass(frozen=True, kw_only=True)
class VirtualCommand:
    """A command of a unit whose rows may be :class:`At`; ``region`` is the DRAM region of a load or store."""

    unit: Unit
    op: int = 0
    fields: Mapping[str, Value]
    flags: frozenset[int] = frozenset()
    dyn: tuple[Dyn, int, int] = NO_DYN
    note: str = ""
    region: str | None = None
    predicate: int = 0
    """It only runs if this predicate is 1; number 0 always is."""

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers that it touches."""
        return tuple(value.buffer for value in self.fields.values() if isinstance(value, At))

    @property
    def predicate_made(self) -> int | None:
        """The predicate that it makes, if it makes one."""
        number = self.fields["number"] if self.unit is Unit.SELECT and self.op == SOp.COMPARE else None
        assert number is None or isinstance(number, int)
        return number

    @property
    def residual_mult(self) -> int | None:
        """Multiplier of the residual where it is rescaled: with ``scale_reg`` the register behind the pair holds it."""
        if self.op != VOp.REQUANT or not {RequantFlag.RESIDUAL, RequantFlag.RESCALE} <= self.flags:
            return None
        value = self.fields["aux"]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True)
class SetDisplacement:
    """SET of a region's displacement to ``amount`` bytes, or by as many further, than it or ``origin``'s is."""

    region: str
    amount: int
    further: bool = False
    origin: str | None = None
    """Another region from whose displacement the amount counts."""
    word: int | None = None
    """The amount is this word of the parameter memory."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A body that runs ``ceil(times / 2**shift)`` times."""

    body: tuple[Item, ...]
    times: Length
    shift: int = 0
    note: str = ""
    local: bool = False
    """Each turn writes what it reads of buffers that nothing outside touches: they live within a turn."""

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers that the body touches."""
        return tuple(buffer for item in leaves(self.body) if isinstance(item, VirtualCommand)
                     for buffer in item.buffers)


Item = VirtualCommand | SetDisplacement | Loop | Command
"""A :class:`Command` here is a control command."""


def leaves(items: Iterable[Item]) -> Iterator[VirtualCommand | SetDisplacement | Command]:
    """Everything but the loops, bodies included, once each."""
    for item in items:
        if isinstance(item, Loop):
            yield from leaves(item.body)
        else:
            yield item


class LengthReg:
    """Length registers of a pass."""

    ROWS = 1
    """New rows."""
    CONTEXT = 2
    """Cached rows before them."""
    WANTED = 3
    """Rows of which logits are wanted, the last ones."""
    FIRST_WANTED = 4
    SEEN = 4
    """Of a program that chooses rows of the cache, within a head: cached rows that a loop has seen, then sizes of a
    list; behind it the register is :data:`FIRST_WANTED` again. Of blocks of a cache by list: entries that a loop has
    seen."""
    TOTAL = 5
    """Cached and new rows, where attention takes them at once."""
    LEFT = 5
    """Cached rows that a loop has still to see, where it takes them block by block."""
    ROW = 6
    """Accumulator rows by which a loop has moved on; or cached rows, behind which new ones stand; or, of a cache of
    several texts, cached rows in front that all rows see."""
    POINTER = 7
    """Where a layer's scalings begin among the halves of the parameter memory."""
    SCALINGS = (8, 10, 12, 14)
    """First registers of pairs that hold a scaling."""
    LAYERS = 8
    """Of the general program: layers of a launch, until the first one begins."""
    LOGIT_ROWS = 9
    """Of the general program, behind the layers: rows whose logits are stored; so the following ones."""
    TOP_ROWS = 10
    EXPONENT_ROWS = 11
    HIDDEN_ROWS = 12
    COLUMN = 13
    """First column of a loop over columns; :data:`LEFT` columns are left."""
    STEPS = 8
    """Of a greedy loop: its turns, until the first one begins."""
    POSITION = 9
    """Of a draft and a target in one launch: cached rows, until the first layer begins; so the following one."""
    DRAFTED = 10
    BEHIND = 2
    """Of an encoder whose attention is online: keys from the block on at which it is."""
    KEPT = 2
    """Of an encoder from which rows leave: those that are left behind a layer's attention."""
    KEYS = 8
    """Columns that are left and largest ones so far."""
    SCALE = 14
    """First of the two that hold a launch's scaling of logits."""
    TURN = 14
    """Of a decoder that loads values by list: turns that a loop has done. No pair of scalings has it then."""
    PAIRS = 14
    """Of a decoder whose cache has rows of 4 bits: those that a loop has still to see, each of two positions."""
    CHUNKS, CHUNK_ROW = 14, 15
    """Of a pass that chooses chunks: those that a loop has still to see, and accumulator rows of scores of the others.
    """


@dataclass
class Builder:
    """Collects what kernels write."""

    config: Config
    network: Network
    rows: int
    """Most new rows of a pass."""
    batch: int = 1
    """Sequences that they are of, as many rows of each, one sequence behind the other."""
    items: list[Item] = field(default_factory=list)
    constants: dict[str, list[tuple[int, Constant]]] = field(default_factory=dict)
    """By region: (offset, content)."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes by region."""
    fused: bool = True
    """Values stay on the device between operators; else each goes through DRAM."""
    spilled: int = 0
    """Bytes of this layer's or phase's values in DRAM so far, where they are not."""
    looped: bool = False
    """Of a greedy loop: a turn is a pass over one row, whose position displacements tell."""
    moved: dict[str, int] = field(default_factory=dict)
    """By region: bytes by which a turn of a loop displaces it."""
    block: Length | None = None
    """The rows that are computed now, where a pass takes its rows block by block."""
    loaded: Length = Length(1)
    """1, or 0 for a launch that needs no constants now: its block is empty."""
    placed: dict[Hashable, int] = field(default_factory=dict)
    """By region and contents: where they are."""
    predicate: int = 0
    """Of commands that name none: they only run if this is 1."""
    contents: Contents | None = None
    """Where a program beside this one has them all: nothing is placed."""

    @property
    def each(self) -> int:
        """New rows of a sequence."""
        return self.rows // self.batch

    @property
    def m(self) -> Length:
        """The new rows of a launch, or of the block; of a batch always all."""
        if self.block is not None:
            return self.block
        return Length(self.rows, LengthReg.ROWS) if self.batch == 1 else Length(self.rows)

    @property
    def m_each(self) -> Length:
        """The new rows of a sequence in a launch."""
        return self.m if self.batch == 1 else Length(self.each)

    def add(self, unit: Unit, note: str, *, op: int = 0, flags: Iterable[int] = (),
            dyn: tuple[Dyn, int, int] = NO_DYN, region: str | None = None, predicate: int = 0,
            **fields: Value) -> None:
        """Append a command."""
        self.items.append(VirtualCommand(unit=unit, op=int(op), fields=fields, flags=frozenset(map(int, flags)),
                                         dyn=dyn, note=note, region=region, predicate=predicate or self.predicate))

    @contextmanager
    def when(self, predicate: int) -> Iterator[None]:
        """Commands that are appended inside only run if this predicate is 1."""
        outer, self.predicate = self.predicate, predicate
        yield
        self.predicate = outer

    def control(self, *items: SetDisplacement | Command) -> None:
        """Append control commands."""
        self.items += items

    @contextmanager
    def loop(self, times: Length, shift: int, note: str, *, local: bool = False) -> Iterator[None]:
        """What is appended inside becomes a body."""
        outer, self.items = self.items, []
        yield
        body, self.items = tuple(self.items), outer
        self.items.append(Loop(body=body, times=times, shift=shift, note=note, local=local))

    def constant(self, region: str, *contents: Constant) -> int:
        """Place contents one behind the other at the end of a region, once.

        Returns:
            Their offset, aligned to a burst where they are large.

        Raises:
            CompileError: a program beside this one must have them, and has not, or apart.
        """
        if self.contents:
            (at, size), *rest = self.contents.runs(region, contents)
            if rest:
                raise CompileError(f"{region} of both programs must stand together: compile them with one mapping")
            self.sizes[region] = max(at + size, self.sizes.get(region, 0))
            return at
        key = (region, *(content.key for content in contents))
        if key not in self.placed:
            at = self.placed[key] = self._aligned(region, self.sizes.get(region, 0))
            for content in contents:
                self.constants.setdefault(region, []).append((at, content))
                at = self.sizes[region] = at + content.size
        return self.placed[key]

    def _aligned(self, region: str, size: int) -> int:
        align = self.config.dim if region == STATIC else max(self.config.burst_bytes, 64)
        return -(-size // align) * align

    def leave_room(self, before: Mapping[str, int], copies: int) -> None:
        """Let each region grow ``copies`` times more by what it has grown by since it had the sizes ``before``."""
        for region, size in before.items():
            self.sizes[region] += copies * (self._aligned(region, self.sizes[region]) - self._aligned(region, size))

    def reserve(self, region: str, size: int) -> None:
        """A region without content of the network."""
        self.sizes[region] = max(self.sizes.get(region, 0), size)

    def load_constants(self, region: str, contents: Sequence[Constant], to: At, note: str) -> None:
        """Place contents one behind the other and load them into consecutive rows: at once, where they are together."""
        runs = self.contents.runs(region, contents) if self.contents else [
            (self.constant(region, *contents), sum(content.size for content in contents))]
        for offset, size in runs:
            self.add(Unit.LOAD, note, region=region, offset=offset, bytes=size, row=to, block_stride=1,
                     rows=self.loaded)
            to += size // self.config.dim


def rotation(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The buffers in turn, for ever."""
    while True:
        yield from buffers
