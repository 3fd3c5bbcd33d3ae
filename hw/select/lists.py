"""Index lists: the list memory with its readers, and the row that LIST_LOAD takes apart and LIST_STORE fills."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ENTRY_BITS, FREE, ROW_BITS, ListRead, SpmWrite, select_layout
from gemmule.hw.select.group_memory import bank_depth, bank_rows, in_run
from gemmule.hw.select.sequencer import flag, is_op, token_layout
from gemmule.isa import ListFlag, SOp

__all__ = ["Lists"]

HALF_BITS = 16
"""What a scratchpad row holds of an entry: its lower bits, or with HIGH those above them."""


class Lists(wiring.Component):
    """List memory of ``list_entries`` of ``index_bits``, banked by lane; three single reads and a run written a cycle.

    Latency: an entry is read in one cycle, a write in x is seen by a read in x + 1; a list entry that stands in a
    scratchpad row is at ``entry`` three cycles after its step, a row is written four cycles after its last step.

    Members
    -------
    load_list, store_list: In(ListRead)
        Read ports of the load and store units, at any time.
    held, begin: In
        Command in work, and its first cycle.
    token_1, token_2, token_3, token_4: In(token_layout)
        The token as many cycles after its step.
    row: In
        Scratchpad data of the step before.
    entry: Out(index_bits)
        List entry of ``token_3`` (LIST_LOAD).
    w: Out(SpmWrite)
        Whole rows (LIST_STORE); bytes beyond n are 0.
    w_en, w_entry, w_count, w_data: In
        Write the ``w_count`` entries from ``w_entry`` on; data in the order of the banks.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.dim
        depth = bank_depth(lanes, config.list_entries)
        self.banks = [Memory(shape=config.index_bits, depth=depth, init=[], attrs=FREE) for _ in range(lanes)]
        super().__init__({
            "load_list": In(ListRead(config)), "store_list": In(ListRead(config)),
            "held": In(select_layout(config)), "begin": In(1),
            **{f"token_{k}": In(token_layout(config)) for k in range(1, 5)},
            "row": In(lanes * 8), "entry": Out(config.index_bits), "w": Out(SpmWrite(config)),
            "w_en": In(1), "w_entry": In(ENTRY_BITS), "w_count": In(range(lanes + 1)),
            "w_data": In(data.ArrayLayout(config.index_bits, lanes)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        lanes, bits = config.dim, exact_log2(config.dim)
        load, store = is_op(self.held, SOp.LIST_LOAD), is_op(self.held, SOp.LIST_STORE)

        own = ListRead(config).create(path=("own_list",))
        readers = {"load": self.load_list, "store": self.store_list, "own": own}
        hits = in_run(m, self.w_entry, self.w_count, lanes, "hits")
        write_rows = bank_rows(self.w_entry, lanes)
        answers = {name: Signal(data.ArrayLayout(config.index_bits, lanes), name=f"{name}_answers") for name in readers}
        for b, memory in enumerate(self.banks):
            m.submodules[f"bank_{b}"] = memory
            write = memory.write_port()
            m.d.comb += [
                write.en.eq(self.w_en & hits[b]), write.addr.eq(write_rows[b]), write.data.eq(self.w_data[b])]
            for name, reader in readers.items():
                read = memory.read_port()
                m.d.comb += [
                    read.en.eq(reader.en & (reader.entry[:bits] == b)), read.addr.eq(reader.entry[bits:]),
                    answers[name][b].eq(read.data),
                ]
        for name, reader in readers.items():
            bank = Signal(bits, name=f"{name}_bank")
            with m.If(reader.en):
                m.d.sync += bank.eq(reader.entry[:bits])
            m.d.comb += reader.data.eq(answers[name][bank])

        # Stage 1: a row to take apart. Stage 2: its lowest entry; or the list is read. Stage 3: an entry comes in.
        # With HIGH a load reads the entry that it changes.
        at, row_at, row = Signal(ENTRY_BITS), Signal(ROW_BITS), Signal(lanes * 8)
        with m.If(self.begin):
            m.d.sync += [at.eq(Mux(load, self.held.dst, self.held.first)), row_at.eq(self.held.dst)]
        with m.If(load & self.token_1.valid & self.token_1.first):
            m.d.sync += row.eq(self.row)
        with m.Elif(load & self.token_2.valid):
            m.d.sync += row.eq(row >> HALF_BITS)
        half = Signal(HALF_BITS)
        high = flag(self.held, ListFlag.HIGH) if config.index_bits > HALF_BITS else C(0)
        m.d.sync += half.eq(row[:HALF_BITS])
        m.d.comb += [
            self.entry.eq(Mux(high, Cat(own.data[:HALF_BITS], half), half)),
            own.en.eq((store | load & high) & self.token_2.valid), own.entry.eq(at),
        ]
        with m.If(own.en):
            m.d.sync += at.eq(at + 1)
        with m.If(store & self.token_3.valid):
            kept = Mux(high, own.data[HALF_BITS:], own.data[:HALF_BITS])
            m.d.sync += row.eq(Cat(row[HALF_BITS:], Mux(self.token_3.count != 0, kept, C(0, HALF_BITS))))

        # Stage 4: the row is whole.
        m.d.comb += [
            self.w.en.eq(store & self.token_4.valid & self.token_4.final), self.w.row.eq(row_at),
            self.w.mask.eq(~0), self.w.data.eq(row),
        ]
        with m.If(self.w.en):
            m.d.sync += row_at.eq(row_at + 1)
        return m
