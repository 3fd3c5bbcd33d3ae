"""Rows of the residual stream that one network leaves in DRAM for another: a drafter reads its target's.

Behind every so many layers a pass stores the rows by their positions, as its cache has its keys and values; a pass of
the other network gathers those that its list names. A row is [group][low, high][dim], as an embedding's.

A drafter that goes on from its own rows leaves them in the same region: in slots behind the positions, in a depth of
their own. Nobody writes the slots of the other depths, nor the positions of this one, so one number names either a row
of the target, with an own row of 0, or an own row, with rows of the target of 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Borrowed, Graph
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder
from gemmule.compiler.layout import Region
from gemmule.isa import MoveFlag, Unit
from gemmule.timing import ceil_div

__all__ = ["BORROWED", "LENT", "Lender", "Lent", "borrow", "lend"]

LENT = "lent"
"""Region of the rows."""
BORROWED = "borrowed"
"""Region of the launch's inputs: the position of the row that each new row reads, uint16."""


@dataclass(frozen=True, kw_only=True)
class Lent:
    """Where rows stand: [depth][position, then slot][row]."""

    every: int
    """Layers from one depth to the next; the first depth is so many."""
    depths: int
    positions: int
    row: int
    """Bytes of a row."""
    own: int = 0
    """Slots for rows that the borrower leaves for itself; 0: neither they nor their depth are there."""

    @staticmethod
    def of(graph: Graph, dim: int, every: int, positions: int, own: int = 0) -> Lent:
        """Rows that a network leaves behind every so many of its layers; ``own``: slots of the borrower.

        Raises:
            CompileError: its layers are no multiple of them.
        """
        if graph.encoder or not 1 <= every <= graph.layers or graph.layers % every:
            raise CompileError(f"lent rows must stand behind layers of a decoder whose {graph.layers} layers are a "
                               f"multiple of them, not every {every}: choose a divisor")
        columns = next(node.columns for node in graph.nodes)
        return Lent(every=every, depths=graph.layers // every, positions=positions,
                    row=2 * ceil_div(columns, dim) * dim, own=own)

    @property
    def size(self) -> int:
        """Bytes of all."""
        return (self.depths + (self.own > 0)) * self.stride

    @property
    def stride(self) -> int:
        """Bytes from a depth to the next."""
        return self.rows * self.row

    @property
    def rows(self) -> int:
        """Rows of a depth."""
        return self.positions + self.own

    def slot(self, number: int) -> int:
        """Where an own row's slot begins."""
        return self.depths * self.stride + (self.positions + number) * self.row

    def check(self, graph: Graph, dim: int) -> None:
        """Whether a network can read them.

        Raises:
            CompileError: depths or columns are others.
        """
        for node in graph.nodes:
            if isinstance(node, Borrowed) and node.own:
                if not self.own or node.depth != graph.layers:
                    raise CompileError(f"{node.name}: own rows stand behind all {graph.layers} layers, in slots of the "
                                       f"lender, not behind {node.depth}, in {self.own}: compile it with slots")
            elif isinstance(node, Borrowed) and (
                    node.depth % self.every or node.depth > self.every * self.depths
                    or 2 * ceil_div(node.columns, dim) * dim != self.row):
                raise CompileError(
                    f"{node.name}: rows of {self.row} bytes are lent behind every {self.every} of "
                    f"{self.every * self.depths} layers, not {node.columns} columns behind {node.depth}: compile the "
                    "lender with the depths that the borrower reads")


@dataclass(frozen=True)
class Lender:
    """The rows of a program, and the region in which they stand."""

    lent: Lent
    region: Region


def lend(b: Builder, lent: Lent, number: int, residual: At) -> None:
    """Store the rows of the residual planes at depth ``number``, from where the launch's window begins."""
    b.reserve(LENT, lent.size)
    b.add(Unit.STORE, "lent rows", region=LENT, offset=number * lent.stride, stride=lent.row, bytes=lent.row,
          row=residual, row_stride=1, block_stride=b.rows, rows=b.m)


def borrow(b: Builder, node: Borrowed, lent: Lent, entry: int) -> At:
    """int16 planes of the rows that the list names from ``entry`` on: [group][low, high][row]."""
    planes = At(Buffer(node.name, lent.row // b.config.dim * b.rows, Bank.STATE))
    depth = lent.depths if node.own else node.depth // lent.every - 1
    b.add(Unit.LOAD, f"{node.name}: rows of {node.depth} layers", region=LENT,
          offset=depth * lent.stride, stride=lent.row, bytes=lent.row, row=planes,
          row_stride=1, block_stride=b.rows, rows=b.m, flags={MoveFlag.INDEXED}, list=entry,
          last_index=lent.rows - 1)
    return planes
