"""Resolve: from a command word and the registers, in stages, to what a unit sees, and its claims or fault."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value, ValueLike, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2, exact_log2

from gemmule.config import Config
from gemmule.hw.command.banks import Banks
from gemmule.hw.command.entries import Entries
from gemmule.hw.command.execute import REFUSAL_BITS, Execute
from gemmule.hw.command.extents import Extents, extents_layout
from gemmule.hw.command.fields import CLAIMS, FIRST_BITS, fields_of
from gemmule.hw.command.hulls import Hulls, hulls_layout
from gemmule.hw.command.legal import Legal
from gemmule.hw.command.lookup import Lookup, lookup_layout
from gemmule.hw.command.loops import RepeatControl
from gemmule.hw.command.meaning import Meaning, meaning_layout
from gemmule.hw.command.spans import Spans, spans_layout
from gemmule.hw.interfaces import LENGTH_BITS, matrix_layout, move_layout, select_layout, vector_layout
from gemmule.hw.queue import HeadQueue
from gemmule.isa import COMMAND_BYTES, CONTROL, HEADER, MAX_WAIT, NUM_BASES, NUM_LENGTHS, SOp, Unit, field_bits
from gemmule.resolve import FAULTS
from gemmule.timing import Timing

__all__ = ["FAULT_BITS", "PREDICATE_BITS", "UNIT_BITS", "WAIT_BITS", "WAIT_UNITS", "Resolve"]

FAULT_BITS = 4
_BITS = dict(HEADER)
PREDICATE_BITS = _BITS["predicate"]
UNIT_BITS = _BITS["unit"]
WAIT_BITS = MAX_WAIT.bit_length()
WAIT_UNITS = tuple(Unit)
WORD_BITS = 8 * COMMAND_BYTES
SIZES = "rows", "columns", "depth"
Fields = Mapping[str, tuple[ShapeLike, ValueLike]]
"""Registers of a stage by name: shape, and what they are loaded with."""

def layout_of(fields: Fields) -> data.StructLayout:
    """Registers of these shapes."""
    return data.StructLayout({name: shape for name, (shape, _) in fields.items()})


_fault = {name: code for code, name in enumerate(FAULTS)}


def moved_bits(config: Config) -> int:
    """Of an offset and a displacement together; a small address space has fewer bits than an offset."""
    return max(config.address_bits, field_bits(Unit.LOAD, "offset")) + 1


class Resolve(wiring.Component):
    """Equal to ``gemmule.resolve.resolve_row``, in stages with a register behind each, a queue of two behind the last.

    Word │ registers looked up │ lengths, meaning, address │ products │ sums │ banks, fault. A command moves on
    whenever there is room before it, so that gaps close. Latency: the number of stages; throughput: one a cycle.
    Backpressure: ``take`` stays low once every stage and the queue are full, and after ``clear`` until the registers of
    the launch are set.

    A control command stays in the first stage for what it does (:class:`gemmule.hw.command.execute.Execute`), goes
    through the others like one of length zero, and leaves. After one that is refused nothing is taken.

    Rows and DRAM ranges are computed without loss, so that a range that leaves a memory always
    faults. Outputs of a command that faults mean nothing; claims of a zero-length one are 0.

    Members
    -------
    valid, word: In
        Next command.
    take: Out(1)
        It enters in this cycle.
    length_index, length:
        Length register ``length_index`` as the host gave it; read one by one after ``clear``.
    base_index, base, limit:
        Base register ``base_index``; read in the cycle after a command entered the first stage.
    repeat: Out(RepeatControl)
        To fetch.
    leave: In(1)
        The oldest command is gone after this cycle.
    clear: In(1)
        Drop all.
    full: Out(1)
        There is a command in the queue; of the oldest one all below is told.
    fault, unit, zero: Out
        Fault code (0: none), unit number, length zero.
    goes: Out(units + 1)
        Bit of the unit that a command without fault is for; the last one: a control command.
    waits: Out(array)
        Wait distances by unit.
    predicate: Out(2)
        Predicate that the command depends on; 0: none.
    move, matrix, vector, select: Out(layouts)
        The command for its unit.
    claims: Out(array)
        Port masks of the unit's streams, in their order.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "valid": In(1), "word": In(WORD_BITS), "take": Out(1),
            "length_index": Out(range(NUM_LENGTHS)),
            "length": In(LENGTH_BITS),
            "base_index": Out(range(NUM_BASES)),
            "base": In(config.address_bits),
            "limit": In(config.address_bits),
            "leave": In(1), "clear": In(1),
            "repeat": Out(RepeatControl()),
            "full": Out(1),
            "fault": Out(FAULT_BITS),
            "goes": Out(len(Unit) + 1),
            "unit": Out(UNIT_BITS),
            "zero": Out(1),
            "waits": Out(data.ArrayLayout(WAIT_BITS, len(WAIT_UNITS))),
            "move": Out(move_layout(config)),
            "matrix": Out(matrix_layout(config)),
            "vector": Out(vector_layout(config)),
            "select": Out(select_layout(config)),
            "predicate": Out(PREDICATE_BITS),
            "claims": Out(data.ArrayLayout(config.claim_bits, CLAIMS)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = Timing.of(self.config).resolve
        assert stages == 6, "as many as there are calls of stage() below"
        assert Timing.of(self.config).registers == NUM_BASES + 1, "as long as the launch's registers take"
        occupied = Signal(stages - 1)
        moves = Signal(stages)  # stage i takes what is before it
        room = Signal()  # in the queue behind the last stage: a register
        m.submodules.execute = execute = Execute(config=self.config)
        self._move(m, execute, occupied, moves, room)

        def stage(i: int, fields: Fields) -> data.View:
            """The registers behind stage ``i``, loaded with what they are given."""
            held = Signal(layout_of(fields), name=f"stage{i}")
            with m.If(moves[i - 1]):
                m.d.sync += (held[name].eq(value) for name, (_, value) in fields.items())
            return held

        fetched = stage(1, {"word": (WORD_BITS, self.word)})
        found = stage(2, self._look_up(m, fetched, execute, present=occupied[0], enter=moves[0]))
        reached = stage(3, self._mean(m, found))
        spread = stage(4, self._multiply(m, reached))
        summed = stage(5, self._sum(m, spread))
        # The last stage is a queue of two: whether a command leaves is known late, and so the stages need not know it.
        judged = self._judge(m, summed)
        m.submodules.done = done = HeadQueue(shape=layout_of(judged), depth=2)
        m.d.comb += [
            *(done.push_data[name].eq(value) for name, (_, value) in judged.items()),
            done.push.eq(moves[-1]), done.pop.eq(self.leave), done.clear.eq(self.clear),
            room.eq(done.room), self.full.eq(done.valid),
        ]
        self._tell(m, done.head)
        return m

    def _move(self, m: Module, execute: Execute, occupied: Signal, moves: Signal, room: Value) -> None:
        """Which stages take what is before them, and which hold a command then."""
        comes = Signal(len(moves))  # stage i may take what is before it
        m.d.comb += comes.eq(Cat(
            self.valid & execute.ready & ~execute.refusal.any(), occupied[0] & ~execute.held, occupied[1:]))
        m.d.comb += moves[-1].eq(room & comes[-1])
        for i in reversed(range(len(occupied))):
            room = ~occupied[i] | room
            m.d.comb += moves[i].eq(room & comes[i])
            with m.If(room):
                m.d.sync += occupied[i].eq(comes[i])
            room = room & ~execute.held if i == 1 else room
        m.d.comb += self.take.eq(moves[0])
        with m.If(self.clear):
            m.d.sync += occupied.eq(0)

    def _look_up(self, m: Module, fetched: data.View, execute: Execute, *, present: Value, enter: Value) -> Fields:
        """The registers that the command names; a control command is executed."""
        address_bits = self.config.address_bits
        m.submodules.lookup = lookup = Lookup()
        m.d.comb += [
            lookup.word.eq(fetched.word), execute.registers.eq(lookup.registers),
            lookup.lengths.eq(execute.lengths), self.base_index.eq(lookup.base_index),
            execute.clear.eq(self.clear), execute.initial.eq(self.length),
            self.length_index.eq(execute.length_index), execute.enter.eq(enter),
            execute.present.eq(present), execute.word.eq(fetched.word), execute.length.eq(lookup.result.dyn),
        ]
        connect(m, wiring.flipped(self.repeat), execute.repeat)
        return {
            "word": (WORD_BITS, lookup.scaled), "found": (lookup_layout(), lookup.result),
            "base": (address_bits, self.base), "limit": (address_bits, self.limit),
            "displacement": (address_bits, execute.displacement), "refusal": (REFUSAL_BITS, execute.refusal),
        }

    def _mean(self, m: Module, found: data.View) -> Fields:
        """Lengths, what the command means, where it begins in DRAM."""
        config, address_bits = self.config, self.config.address_bits
        m.submodules.legal = legal = Legal(features=config.features, index_bits=config.index_bits)
        m.submodules.meaning = meaning = Meaning()
        m.submodules.extents = extents = Extents()
        header, move, _, vector, select = fields_of(found.word)
        nothing_to_compare = (header.unit == Unit.SELECT) & (header.op == SOp.COMPARE) & (select.number == 0)
        m.d.comb += [
            legal.unit.eq(header.unit), legal.op.eq(header.op), legal.flags.eq(header.flags),
            legal.period.eq(vector.period), legal.last_index.eq(move.last_index), meaning.word.eq(found.word),
            extents.word.eq(found.word), extents.found.eq(found.found),
        ]
        room = (1 << address_bits) - found.base  # addresses do not wrap
        control = header.unit == CONTROL
        known = Mux(control, found.refusal != _fault["illegal"], legal.known & ~nothing_to_compare)
        return {
            "word": (WORD_BITS, found.word), "known": (1, known),
            "control": (1, control), "refused": (1, control & found.refusal.any()),
            "means": (meaning_layout(), meaning.result), "extents": (extents_layout(), extents.result),
            "base": (address_bits, found.base), "moved": (moved_bits(config), move.offset + found.displacement),
            "reach": (address_bits + 1, Mux(found.limit < room, found.limit, room)),
        }

    def _multiply(self, m: Module, reached: data.View) -> Fields:
        """Products: how many rows an operand spans, and bytes of DRAM."""
        config, address_bits = self.config, self.config.address_bits
        m.submodules.spans = spans = Spans(config=config)
        _, move, _, _, _ = fields_of(reached.word)
        lengths, means = reached.extents, reached.means
        m.d.comb += [spans.word.eq(reached.word), spans.meaning.eq(means), spans.extents.eq(lengths)]
        zero = reached.known & ~reached.refused & (
            reached.control | means.has_rows & (lengths.rows == 0)
            | Mux(means.move, move.bytes == 0, lengths.columns == 0) | means.has_depth & (lengths.depth == 0))
        joined = ~(means.broadcast | means.indexed) & (move.stride == move.bytes) & ~(
            move.bytes[:exact_log2(config.bus_bytes)].any())
        last = lengths.rows_last
        bad_rows = reached.refused | means.tree & last[exact_log2(8 * config.dim):].any() | (
            means.uses_stat & last[exact_log2(config.stat_rows):].any())
        return {
            "word": (WORD_BITS, reached.word), "known": (1, reached.known), "zero": (1, zero),
            "means": (meaning_layout(), means), "spans": (spans_layout(), spans.result),
            "address": (address_bits, reached.base + reached.moved), "joined": (1, joined),
            # Bytes up to the limit; a displacement may go beyond it.
            "left": (signed(moved_bits(config) + 1), reached.reach - reached.moved), "bad_rows": (1, bad_rows),
            **{name: (LENGTH_BITS, lengths[name]) for name in SIZES},
        }

    def _sum(self, m: Module, spread: data.View) -> Fields:
        """Sums: the rows that operands reach, and the bytes of DRAM."""
        config, address_bits = self.config, self.config.address_bits
        m.submodules.hulls = hulls = Hulls(config=config)
        m.submodules.entries = entries = Entries(config=config)
        _, move, _, vector, _ = fields_of(spread.word)
        means = spread.means
        last_context = vector.context + means.two_contexts
        bad_stat = spread.bad_rows | means.uses_stat & last_context[exact_log2(config.stat_contexts):].any()
        size = spread.spans.dram + move.bytes
        unaligned = means.wide_dram & move.bytes[:2].any() | (
            means.move & means.broadcast & spread.address[:ceil_log2(config.bus_bytes)].any())
        m.d.comb += [
            hulls.spans.eq(spread.spans), hulls.move.eq(means.move), hulls.angles.eq(vector.aux),
            hulls.plane0.eq(Mux(means.planes | means.words, vector.src0_stride >> 1, 0)),
            hulls.plane1.eq(Mux(means.planes & means.pair, vector.aux >> 1, 0)),
            hulls.plane2.eq(Mux(means.wide, vector.dst_stride >> 1, 0)),
            entries.word.eq(spread.word), entries.m.eq(spread.rows), entries.n.eq(spread.columns),
            entries.results.eq(spread.spans.results), entries.first.eq(spread.spans.first[1]),
            entries.dst.eq(spread.spans.first[2]),
        ]
        return {
            "word": (WORD_BITS, spread.word), "known": (1, spread.known), "zero": (1, spread.zero),
            "means": (meaning_layout(), means), "first": (spread.spans.first.shape(), spread.spans.first),
            "hulls": (hulls_layout(config), hulls.result), "bad": (1, entries.bad | bad_stat | spread.spans.bad),
            "address": (address_bits, spread.address), "size": (len(size), size),
            "left": (spread.left.shape(), spread.left), "unaligned": (1, unaligned), "joined": (1, spread.joined),
            "stride": (self.move.stride.shape(), Mux(spread.joined, size, move.stride)),
            **{name: (LENGTH_BITS, spread[name]) for name in SIZES},
        }

    def _judge(self, m: Module, summed: data.View) -> Fields:
        """Banks, and the fault: the first of these that is one."""
        config, address_bits = self.config, self.config.address_bits
        m.submodules.banks = banks = Banks(config=config)
        header, _, _, vector, _ = fields_of(summed.word)
        means, zero = summed.means, summed.zero
        m.d.comb += [
            banks.meaning.eq(means), banks.flags.eq(header.flags), banks.first.eq(summed.first),
            banks.angles.eq(vector.aux), banks.hulls.eq(summed.hulls),
        ]
        fault = Signal(FAULT_BITS)
        with m.If(~summed.known):
            m.d.comb += fault.eq(_fault["illegal"])
        with m.Elif(zero):
            m.d.comb += fault.eq(_fault["none"])
        with m.Elif(banks.bad | summed.bad):
            m.d.comb += fault.eq(_fault["rows"])
        with m.Elif(means.move & ~means.fill & (summed.size > summed.left)):
            m.d.comb += fault.eq(_fault["limit"])
        with m.Elif(summed.unaligned):
            m.d.comb += fault.eq(_fault["align"])
        # By unit, and at last for control: it goes there. A register, because all of dispatch hangs on it.
        goes = Cat((header.unit == unit) & ~fault.any() for unit in (*Unit, CONTROL))
        claims = Cat(banks.claims) & (~zero).replicate(CLAIMS * config.claim_bits)
        return {
            "word": (WORD_BITS, summed.word), "zero": (1, zero), "fault": (FAULT_BITS, fault),
            "goes": (len(goes), goes), "claims": (banks.claims.shape(), claims), "apart": (1, ~zero & banks.apart),
            "first": (data.ArrayLayout(FIRST_BITS, CLAIMS), summed.first), "address": (address_bits, summed.address),
            "joined": (1, summed.joined), "stride": (self.move.stride.shape(), summed.stride),
            **{name: (LENGTH_BITS, summed[name]) for name in SIZES},
        }

    def _tell(self, m: Module, done: data.View) -> None:
        """The command as its unit sees it."""
        header, move, matrix, vector, select = fields_of(done.word)
        m.d.comb += [
            self.fault.eq(done.fault), self.goes.eq(done.goes), self.claims.eq(done.claims),
            self.unit.eq(header.unit), self.zero.eq(done.zero),
            *(self.waits[i].eq(header[f"wait_{unit.label}"]) for i, unit in enumerate(WAIT_UNITS)),
            self.move.flags.eq(header.flags), self.move.address.eq(done.address), self.move.rows.eq(done.rows),
            self.move.row.eq(done.first[0]), self.move.list.eq(done.first[1]),
            self.move.joined.eq(done.joined), self.move.stride.eq(done.stride),
            *(self.move[name].eq(move[name]) for name in ("bytes", "row_stride", "block_stride", "last_index")),
            self.matrix.m.eq(done.rows), self.matrix.n.eq(done.columns), self.matrix.k.eq(done.depth),
            *(self.matrix[name].eq(done.first[i]) for i, name in enumerate(("a_row", "b_row", "c_row"))),
            *(self.matrix[name].eq(matrix[name]) for name in ("a_stride", "b_stride", "c_stride", "group")),
            self.vector.op.eq(header.op), self.vector.m.eq(done.rows), self.vector.n.eq(done.columns),
            *(self.vector[name].eq(done.first[i]) for i, name in enumerate(("src0", "src1", "dst"))),
            *(self.vector[name].eq(vector[name]) for name in (
                "src0_stride", "aux", "dst_stride", "mult", "shift", "shift2", "context", "period")),
            self.vector.after.eq(done.depth),
            self.select.op.eq(header.op), self.select.m.eq(done.rows), self.select.n.eq(done.columns),
            self.select.k.eq(done.depth),
            *(self.select[name].eq(done.first[i]) for i, name in enumerate(("src0", "first", "dst"))),
            *(self.select[name].eq(select[name]) for name in ("src0_stride", "aux", "shift", "number")),
            self.predicate.eq(header.predicate),
            *(command.zero.eq(done.zero) for command in (self.move, self.matrix, self.vector, self.select)),
            *(command.flags.eq(header.flags) for command in (self.matrix, self.vector, self.select)),
            *(command.apart.eq(done.apart) for command in (self.matrix, self.vector)),
        ]
