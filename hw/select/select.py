"""Select unit: argmax, radix top-K, importance of positions, index lists, predicates."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ListRead, SpmRead, SpmWrite, UnitControl, select_layout
from gemmule.hw.select.argmax import Argmax
from gemmule.hw.select.group_memory import GroupMemory, rotate_lanes
from gemmule.hw.select.importance import Importance
from gemmule.hw.select.lists import Lists
from gemmule.hw.select.pack import Pack
from gemmule.hw.select.radix import Radix
from gemmule.hw.select.route import Route
from gemmule.hw.select.sequencer import SelectSequencer, flag, is_op, token_layout
from gemmule.isa import NUM_PREDICATES, KeysFlag, SOp, TopKFlag
from gemmule.numerics.select import KEY_BITS
from gemmule.timing import Timing

__all__ = ["Select"]

FIRST = 1
READ = 1
"""Cycles between the sequencer's step and the read that it asks for."""
WRITE = 4
PACK = 5
RESULT = 8
LATENCIES = {
    "select_first": FIRST, "select_write": READ + WRITE, "select_pack": READ + PACK, "select_result": READ + RESULT}
BYTE_BITS = 8
VALUE_BITS = 16


class Select(wiring.Component):
    """Select unit: sequencer, operands, and one block each for maxima, importance, radix passes, packing and lists.

    One command at a time. Latency and throughput: docs/timing.md, section Select; a step reads a cycle later.
    Arithmetic: docs/numerics.md. Keys, importance, mask, lists and running maxima survive everything but a loss of
    power. No backpressure.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its select constants must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        Streams r and w, both released with the finish.
    spm: Out(SpmRead)
    w: Out(SpmWrite)
        Whole rows; bytes beyond n are 0.
    load_list, store_list: In(ListRead)
        Read ports of the load and store units, at any time.
    predicates: Out(4)
        Bit 0 is 1; a comparison's bit changes visibly in the cycle after its finish.
    clear: In(1)
        Start strobe: predicates 1 to 3 become 0.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        for name, cycles in LATENCIES.items():
            if getattr(timing, name) != cycles:
                raise ValueError(f"{name} must be {cycles}, as built, not {getattr(timing, name)}")
        self.config = config
        self.keys, self.ids = (GroupMemory(lanes=config.dim, entries=config.select_keys, width=width)
                               for width in (KEY_BITS, config.index_bits))
        self.lists = Lists(config=config)
        self.argmax = Argmax(config=config)
        self.importance = Importance(config=config)
        self.pack = Pack(config=config)
        super().__init__({
            "control": In(UnitControl(select_layout(config), 2)),
            "spm": Out(SpmRead(config)), "w": Out(SpmWrite(config)),
            "load_list": In(ListRead(config)), "store_list": In(ListRead(config)),
            "predicates": Out(NUM_PREDICATES), "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control = self.config, self.control
        dim, bits = config.dim, exact_log2(config.dim)
        m.submodules.sequencer = sequencer = SelectSequencer(config=config)
        m.submodules.radix = radix = Radix(lanes=dim, entries=config.select_keys, index_bits=config.index_bits)
        m.submodules.route = route = Route(lanes=dim, index_bits=config.index_bits)
        m.submodules.keys, m.submodules.ids, m.submodules.lists = keys, ids, lists = self.keys, self.ids, self.lists
        m.submodules.pack = pack = self.pack
        m.submodules.argmax, m.submodules.importance = argmax, importance = self.argmax, self.importance
        held = sequencer.held

        busy = Signal()
        with m.If(control.start):
            m.d.sync += busy.eq(1)
        with m.Elif(control.finish):
            m.d.sync += busy.eq(0)

        # A token travels beside its group; stage k is k cycles after the read of the group's last step.
        # Beyond the write only maxima and packed rows go on: the next command may start then.
        maximum, top_k, keys_op, load_op, packs, new_keys, new_ids = (Signal(name=name) for name in (
            "maximum", "top_k", "keys_op", "load_op", "packs", "new_keys", "new_ids"))
        turn, key_turn = Signal(bits), Signal(bits)
        command = control.command
        compacts = is_op(command, SOp.TOP_K) & ~flag(command, TopKFlag.NONZERO) & ~flag(command, TopKFlag.KEEP)
        with m.If(control.start):  # decoded once: much hangs on them
            m.d.sync += [
                maximum.eq(is_op(command, SOp.ARGMAX, SOp.COMPARE)), top_k.eq(is_op(command, SOp.TOP_K)),
                keys_op.eq(is_op(command, SOp.KEYS)), load_op.eq(is_op(command, SOp.LIST_LOAD)),
                packs.eq(is_op(command, SOp.PACK)), new_keys.eq(is_op(command, SOp.KEYS) | compacts),
                new_ids.eq(is_op(command, SOp.KEYS) & ~flag(command, KeysFlag.KEEP_IDS) | compacts),
                turn.eq(Mux(is_op(command, SOp.KEYS, SOp.IMPORTANCE), command.first, 0)),
                key_turn.eq(Mux(is_op(command, SOp.KEYS), command.first, 0)),
            ]
        token = [Signal(token_layout(config), name="token_0")]
        m.d.sync += [
            token[0].eq(sequencer.token), self.spm.en.eq(sequencer.en), self.spm.row.eq(sequencer.row)]
        for k in range(1, RESULT + 1):
            stage = Signal(token_layout(config), name=f"token_{k}")
            m.d.sync += [stage.eq(token[-1]), stage.valid.eq(
                token[-1].valid & (maximum if k > PACK else maximum | packs if k > WRITE else 1))]
            token.append(stage)
        for block in (lists, argmax, importance, pack):
            m.d.comb += [block.held.eq(held), block.begin.eq(sequencer.begin)]
            for k in range(1, RESULT + 1):
                if f"token_{k}" in block.signature.members:
                    m.d.comb += getattr(block, f"token_{k}").eq(token[k])
        for k in (2, 3, 4):
            m.d.comb += getattr(pack, f"token_{k}").valid.eq(token[k].valid & packs)

        # Stage 1: both planes of a value are there. Stage 2: values move to the banks of their positions.
        low = Signal(dim * BYTE_BITS)
        value, turned = (Signal(data.ArrayLayout(VALUE_BITS, dim), name=name) for name in ("value", "turned"))
        m.d.sync += low.eq(self.spm.data)
        for i in range(dim):
            old, new = (row.word_select(i, BYTE_BITS) for row in (low, self.spm.data))
            m.d.sync += value[i].eq(Mux(sequencer.planes, Cat(old, new), new))
        m.d.sync += turned.eq(rotate_lanes(m, value, VALUE_BITS, turn, "value"))
        m.d.comb += [importance.operands.eq(turned), argmax.values.eq(turned)]

        # Results: survivors in stage 3 behind their read, keys and loaded entries in stage 3, maxima in stage 7.
        single = Signal(route.ids[0].shape())
        m.d.comb += [
            radix.start.eq(control.start & is_op(control.command, SOp.TOP_K)),
            radix.n.eq(control.command.n), radix.k.eq(control.command.k),
            radix.nonzero.eq(flag(control.command, TopKFlag.NONZERO)),
            keys.r_en.eq(radix.r_en | importance.keys_en),
            keys.r_entry.eq(Mux(top_k, radix.r_entry, importance.keys_entry)), importance.keys.eq(keys.r_data),
            ids.r_en.eq(radix.r_en), ids.r_entry.eq(radix.r_entry),
            *(radix.keys[i].eq(Cat(keys.r_data[i], ids.r_data[i])) for i in range(dim)),
            route.begin.eq(sequencer.begin | pack.restart),
            route.keep.eq(Mux(top_k, radix.keep, Mux(packs, pack.keep, ~0))),
            route.key_entry.eq(Mux(top_k | packs, 0, held.dst)), route.list_entry.eq(held.dst),
            route.turn.eq(key_turn),
            single.eq(Mux(argmax.valid, argmax.id, lists.entry)),
            route.load.eq(radix.valid | argmax.valid
                          | (token[3].valid & (keys_op | load_op | packs))),
            route.count.eq(Mux(top_k, radix.count, Mux(argmax.valid, 1, Mux(packs, pack.count, token[3].count)))),
            pack.mark.eq(radix.mark), pack.marked.eq(radix.keep),
        ]
        with m.If(top_k):
            m.d.comb += route.lanes.eq(radix.filtered)
        with m.Elif(keys_op):
            m.d.comb += route.lanes.eq(importance.keyed)
        with m.Elif(packs):
            m.d.comb += [route.lanes[i].eq(turned[i][:BYTE_BITS]) for i in range(dim)]
        with m.Else():
            m.d.comb += route.lanes[0][KEY_BITS:].eq(single)
        m.d.comb += [
            keys.w_en.eq(route.en & new_keys), ids.w_en.eq(route.en & new_ids),
            *(memory.w_entry.eq(route.key_at) for memory in (keys, ids)),
            *(memory.w_count.eq(route.count_out) for memory in (keys, ids)),
            *(at.eq(both[:KEY_BITS]) for at, both in zip(keys.w_data, route.keys, strict=True)),
            *(at.eq(both[KEY_BITS:]) for at, both in zip(ids.w_data, route.keys, strict=True)),
            *(at.eq(both) for at, both in zip(pack.columns, route.keys, strict=True)),
            pack.routed.eq(route.count_out), pack.place.eq(route.key_at),
            lists.w_en.eq(route.en & ~keys_op & ~packs), lists.w_entry.eq(route.list_at),
            lists.w_count.eq(route.count_out), lists.w_data.eq(route.ids),
        ]

        # Ports and control.
        done = [token[at].valid & token[at].last for at in (RESULT, PACK, WRITE)]
        m.d.comb += [
            sequencer.start.eq(control.start), sequencer.command.eq(control.command),
            lists.row.eq(self.spm.data),
            control.ready.eq(~busy),
            control.finish.eq(Mux(maximum, done[0], Mux(packs, done[1], done[2])) | radix.finish),
            control.release.eq(control.finish.replicate(2)),
        ]
        m.d.comb += [
            self.w.en.eq(lists.w.en | pack.w.en), self.w.mask.eq(~0),
            self.w.row.eq(Mux(packs, pack.w.row, lists.w.row)), self.w.data.eq(Mux(packs, pack.w.data, lists.w.data)),
        ]
        wiring.connect(m, wiring.flipped(self.load_list), lists.load_list)
        wiring.connect(m, wiring.flipped(self.store_list), lists.store_list)

        predicates = Signal(NUM_PREDICATES)
        m.d.comb += self.predicates.eq(predicates | 1)
        with m.If(self.clear):
            m.d.sync += predicates.eq(0)
        with m.Elif(control.finish & is_op(held, SOp.COMPARE)):
            m.d.sync += predicates.bit_select(held.number, 1).eq(argmax.holds)
        return m
