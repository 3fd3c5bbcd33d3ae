"""Entries: the runs of keys, positions and list entries that a command touches, and whether they exist."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.command.fields import FIRST_BITS, fields_of, named
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import COMMAND_BYTES, KeysFlag, MoveFlag, SOp, Unit

__all__ = ["Entries"]


class Entries(wiring.Component):
    """Combinational. Runs of the select unit's own memories, and the index list of a load or store.

    Everything is computed without loss, so that a run that leaves its memory is always noticed. The
    output means nothing for a command that is illegal or of length zero.

    Members
    -------
    word: In
        Command.
    m, n: In
        Resolved lengths (load and store: ``m`` rows).
    results: In
        Entries or keys that a select command writes.
    first: In
        Resolved ``list`` of a move, ``first`` of a select command.
    dst: In
        Resolved row or first entry of a select command's result.
    bad: Out(1)
        Keys, positions, importance or list entries that do not exist, or more running maxima than rows.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "m": In(LENGTH_BITS), "n": In(LENGTH_BITS), "results": In(LENGTH_BITS),
            "first": In(FIRST_BITS), "dst": In(FIRST_BITS), "bad": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        keys, entries, ids = self.config.select_keys, self.config.list_entries, 1 << self.config.index_bits
        header = fields_of(self.word)[0]
        from_importance = header.flags[KeysFlag.FROM_IMPORTANCE]

        def sop(*ops: SOp) -> Value:
            return Cat(header.op == op for op in ops).any()

        from_first = named(m, "from_first", self.first + self.n)
        from_dst = named(m, "from_dst", self.dst + self.results)
        bad_select = named(m, "bad_select", Cat(
            sop(SOp.IMPORTANCE, SOp.COMMIT) & (from_first > keys),
            sop(SOp.KEYS) & ((from_dst > keys) | (from_first > Mux(from_importance, keys, ids))),
            sop(SOp.TOP_K, SOp.PACK) & (self.n > keys),
            sop(SOp.ARGMAX, SOp.TOP_K, SOp.LIST_LOAD) & (from_dst > entries),
            sop(SOp.LIST_STORE) & (from_first > entries),
            sop(SOp.ARGMAX) & (self.m > self.config.stat_rows),
        ).any())
        indexed = header.flags[MoveFlag.INDEXED]
        m.d.comb += self.bad.eq(Mux(
            header.unit < 2, indexed & (self.first + self.m > entries),
            (header.unit == Unit.SELECT) & bad_select))
        return m
