"""Maxima: the first largest value of a group, of a row, and of a row across commands."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import FREE, select_layout
from gemmule.hw.select.sequencer import flag, is_op, token_layout
from gemmule.isa import ArgmaxFlag, CompareFlag, SOp

__all__ = ["TREE_STAGES", "Argmax"]

VALUE_BITS = 16
TREE_STAGES = 3


class Argmax(wiring.Component):
    """Tree of comparisons, row maximum, running maximum of each row; the result of COMPARE.

    Latency: values of ``token_3`` give the group's maximum in stage 6, the row's in stage 7, a result in stage 8.
    One group a cycle; rows end at least two cycles apart (ARGMAX), because the running maximum is read and
    written in stages 6 and 7. Equal values: the lowest lane, group, command.

    Members
    -------
    held, begin: In
        Command in work, and its first cycle.
    token_3, token_6, token_7: In(token_layout)
        The token as many cycles after its step.
    values: In(array over lanes)
        16 bits of ``token_3``'s columns; signed, except for bytes (COMPARE), which are below 256 anyway.
    valid, id: Out
        Winner of a row (ARGMAX), in stage 7.
    holds: Out(1)
        COMPARE's predicate, in stage 8.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        self.running = Memory(
            shape=VALUE_BITS + config.index_bits, depth=config.stat_rows, init=[], attrs=FREE)
        super().__init__({
            "held": In(select_layout(config)), "begin": In(1),
            **{f"token_{k}": In(token_layout(config)) for k in (3, 6, 7)},
            "values": In(data.ArrayLayout(signed(VALUE_BITS), config.dim)),
            "valid": Out(1), "id": Out(config.index_bits), "holds": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, held = self.config, self.held
        bits = exact_log2(config.dim)
        argmax, compare = is_op(held, SOp.ARGMAX), is_op(held, SOp.COMPARE)

        # Stages 3 to 5: the tree. The lowest value stands for lanes beyond n; on a tie the lower lane wins.
        lowest = -(1 << VALUE_BITS - 1)
        nodes = [(Mux(lane < self.token_3.count, self.values[lane], lowest), lane) for lane in range(config.dim)]
        level = 0
        for stage in range(TREE_STAGES):
            ends = bits * (stage + 1) // TREE_STAGES
            while True:
                registered = level == ends
                pairs = [(node, node) for node in nodes] if registered else list(zip(nodes[::2], nodes[1::2]))
                domain = m.d.sync if registered else m.d.comb
                after = []
                for i, ((low, low_lane), (high, high_lane)) in enumerate(pairs):
                    value = Signal(signed(VALUE_BITS), name=f"value_{stage}_{level}_{i}")
                    lane = Signal(bits, name=f"lane_{stage}_{level}_{i}")
                    domain += [
                        value.eq(low if registered else Mux(high > low, high, low)),
                        lane.eq(low_lane if registered else Mux(high > low, high_lane, low_lane)),
                    ]
                    after.append((value, lane))
                nodes = after
                if registered:
                    break
                level += 1
        group, group_lane = nodes[0]

        # Stage 6: the row's maximum so far (COMPARE: the command's).
        column = Signal(config.index_bits)  # id of the group's first lane
        best, best_id = Signal(signed(VALUE_BITS)), Signal(config.index_bits)
        with m.If(self.begin):
            m.d.sync += column.eq(held.first)
        with m.If(self.token_6.valid):
            m.d.sync += column.eq(Mux(self.token_6.final, held.first, column + config.dim))
            with m.If(self.token_6.first | (group > best)):
                m.d.sync += [best.eq(group), best_id.eq(column + group_lane)]

        # Stage 7: against the running maximum, which comes first.
        m.submodules.running = self.running
        read, write = self.running.read_port(), self.running.write_port()
        row, running, keep = Signal(exact_log2(config.stat_rows)), Signal(signed(VALUE_BITS)), Signal()
        with m.If(self.begin):
            m.d.sync += row.eq(0)
        with m.If(self.valid):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            self.valid.eq(argmax & self.token_7.valid & self.token_7.final),
            read.en.eq(argmax & self.token_6.valid & self.token_6.final), read.addr.eq(row),
            running.eq(read.data[:VALUE_BITS]),
            keep.eq(flag(held, ArgmaxFlag.CONTINUE) & (running >= best)),
            self.id.eq(Mux(keep, read.data[VALUE_BITS:], best_id)),
            write.en.eq(self.valid), write.addr.eq(row),
            write.data[:VALUE_BITS].eq(Mux(keep, running, best)), write.data[VALUE_BITS:].eq(self.id),
        ]

        # Stage 8: the threshold is signed with WIDE only.
        threshold = Signal(signed(VALUE_BITS + 1))
        wide = flag(held, CompareFlag.WIDE)
        m.d.comb += [
            threshold.eq(Mux(wide, held.aux.as_signed(), held.aux)),
            self.holds.eq(compare & ((best >= threshold) ^ flag(held, CompareFlag.INVERT))),
        ]
        return m
