"""Bench of the device around stand-ins for its units: what every cycle must look like, and a host that drives it."""

import random
from collections import deque
from dataclasses import replace

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.csr import (
    CAUSES,
    COUNTERS,
    TRAFFIC,
    Control,
    Csr,
    base_offset,
    counter_offset,
    length_offset,
    limit_offset,
)
from gemmule.hw.command.dispatch import UNIT_LAYOUTS
from gemmule.hw.device.top import Gemmule
from gemmule.hw.interfaces import UnitControl, axi_write, read_request
from gemmule.isa import (
    NUM_PREDICATES,
    TABLE_FIELDS,
    Command,
    Length,
    MatrixFlag,
    MoveFlag,
    SOp,
    Unit,
    VOp,
    decode_table,
    encode_program,
)
from gemmule.resolve import OUT, STREAM_UNIT, resolve
from gemmule.timing import Timing

CONFIG = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=2, acc_kib=4, acc_banks=1, unit_queue=4,
                burst_bytes=128)
TIMING = Timing.of(CONFIG)
LENGTHS = np.array([65535, 3, 0, 7, *range(12)])
BASES = np.arange(32) * 4096
LIMITS = np.full(32, 4096)
PROGRAM = 0x8060
START, REPORT = 1, 1  # cycles from issue to the unit's start; from what a unit says to the cycle that sees it
BUSY = (29, 35, 17, 41, 23)  # cycles from start to finish of each stand-in
STREAMS = (1, 1, 3, 3, 2)
RELEASE = (29, 2, 3, 41, 23)  # cycles from start to the release pulse of each stand-in's streams
MOVES = ((3, 5), (1, 2, 4))  # cycles from start in which the stand-ins of load and store move data
PREDICATE = TABLE_FIELDS.index("predicate")
EXCLUSIVE = 1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST


class StandIn(wiring.Component):
    """A unit that finishes, and releases its claims, a fixed time after its start."""

    def __init__(self, number: int) -> None:
        self.number = number
        layout = list(UNIT_LAYOUTS.values())[number](CONFIG)
        super().__init__({"control": In(UnitControl(layout, STREAMS[number])), "moved": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        delay = Signal(max(BUSY) + 1)
        wait = Signal(range(8))  # one command in 4 cycles
        exclusive = Signal()  # a load with ZERO or BROADCAST is in flight
        moves = MOVES[self.number] if self.number < len(MOVES) else ()
        m.d.comb += [
            delay[0].eq(self.control.start),
            self.control.ready.eq((wait == 0) & ~exclusive),
            self.moved.eq(Cat(delay[i] for i in moves).any()),
            self.control.finish.eq(delay[BUSY[self.number]]),
            self.control.release.eq(delay[RELEASE[self.number]].replicate(STREAMS[self.number])),
        ]
        if self.number == Unit.LOAD:
            with m.If(self.control.start):
                m.d.sync += exclusive.eq((self.control.command.flags & EXCLUSIVE).any())
            with m.Elif(self.control.finish):
                m.d.sync += exclusive.eq(0)
        m.d.sync += [delay[1:].eq(delay), wait.eq(Mux(self.control.start, 3, Mux(wait == 0, 0, wait - 1)))]
        return m


class StandIns(wiring.Component):
    """In place of ``Units``; error pulses come from the bench. COMPARE puts bit 0 of ``aux`` into a predicate."""

    def __init__(self) -> None:
        self.broken = Signal()
        super().__init__({
            **{name: In(UnitControl(layout(CONFIG), STREAMS[u]))
               for u, (name, layout) in enumerate(UNIT_LAYOUTS.items())},
            "read": Out(read_request(CONFIG)), "write": Out(axi_write(CONFIG)), "error": Out(1),
            "load_moved": Out(1), "store_moved": Out(1), "clear": In(1), "predicates": Out(NUM_PREDICATES, init=1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.error.eq(self.broken)
        for u, name in enumerate(UNIT_LAYOUTS):
            m.submodules[name] = unit = StandIn(u)
            wiring.connect(m, wiring.flipped(getattr(self, name)), unit.control)
            if u < len(MOVES):
                m.d.comb += getattr(self, f"{name}_moved").eq(unit.moved)
        held = Signal(self.select.command.shape())
        with m.If(self.select.start):
            m.d.sync += held.eq(self.select.command)
        with m.If(self.clear):
            m.d.sync += self.predicates.eq(1)
        with m.Elif(self.select.finish & (held.op == SOp.COMPARE)):
            m.d.sync += self.predicates.bit_select(held.number, 1).eq(held.aux[0])
        return m


def expected(image: bytes, beats: dict[int, int]) -> tuple:
    """Issues (cycle, unit), finishes by unit, cycles, fault code, fault index, counters of causes, commands skipped.

    ``beats``: cycle of the last beat of each command. Written from docs/timing.md with plain state
    of the present cycle and of the next.
    """
    table = decode_table(image)
    resolved = resolve(table, BASES, LIMITS, LENGTHS, CONFIG)
    count = len(table)
    limits = (CONFIG.load_commands, TIMING.store_commands, TIMING.matrix_commands, 1, 1)
    zero = (TIMING.load_zero, TIMING.store_zero, TIMING.matrix_zero, TIMING.vector_zero, TIMING.select_zero)
    queues: list[list[tuple[int, list[int], bool]]] = [[] for _ in Unit]
    dispatched, issued = [0] * 5, [0] * 5
    finishes: dict[int, list[int]] = {u: [] for u in range(5)}
    last_start = [-9] * 5
    held: list[list[tuple[int, int]]] = [[] for _ in range(10)]  # (release pulse, mask)
    predicates = [1, 0, 0, 0]
    results: list[tuple[int, int, int]] = []  # of comparisons: finish, predicate, value
    doubtful = False  # the last matrix command has a predicate
    skipped = 0
    issues: list[tuple[int, int]] = []
    taken, t, fault = 0, 0, 0
    inside: list[tuple[int, int]] = []  # commands in resolve, with the first cycle in which each may leave
    stationary, exclusive_until = False, -1
    counts = {f"{unit}_{cause}": 0 for unit in UNIT_LAYOUTS for cause in CAUSES}
    moves: tuple[set[int], set[int]] = (set(), set())
    while True:
        finished = [sum(f < t for f in finishes[u]) for u in range(5)]
        if (fault or sum(dispatched) == count) and finished == dispatched:
            break
        while results and results[0][0] < t:
            _, number, value = results.pop(0)
            predicates[number] = value
        holds = [0] * 10
        for s in range(10):
            held[s] = [(x, mask) for x, mask in held[s] if x >= t]
            for _, mask in held[s]:
                holds[s] |= mask
        chosen = None
        for u in (2, 3, 4, 0, 1):
            if not queues[u] or chosen is not None:
                continue
            index, targets, alone = queues[u][0]
            row = resolved[index]
            if any(f < target for f, target in zip(finished, targets)):
                continue
            flying = issued[u] - finished[u]
            nothing = bool(row[OUT["zero"]]) or not predicates[table[index, PREDICATE]]
            if (alone or nothing) and flying or u == Unit.LOAD and t <= exclusive_until:
                ok = False
            elif nothing:
                ok = True
            else:
                mine = [s for s in range(10) if STREAM_UNIT[s] == u]
                ok = flying < limits[u] and t >= last_start[u] + 4 + REPORT and not any(
                    int(row[OUT[f"claim{i}"]]) & holds[other] for i, s in enumerate(mine)
                    for other in range(10) if other != s)
            if ok:
                chosen = u
        for u, unit in enumerate(UNIT_LAYOUTS):
            if issued[u] > finished[u] or u == chosen:
                cause = "dram" if u < 2 and t not in moves[u] else "busy"
            elif not queues[u]:
                cause = "empty"
            else:
                late = any(f < target for f, target in zip(finished, queues[u][0][1]))
                cause = "waiting" if late else "ports"
            counts[f"{unit}_{cause}"] += 1
        decode = inside[0][0] if inside and inside[0][1] <= t else None
        if decode is not None and resolved[decode][OUT["fault"]]:
            decode, fault = None, fault or t
        unit = None if decode is None else int(resolved[decode][OUT["unit"]])
        push = unit is not None and len(queues[unit]) < CONFIG.unit_queue
        take = t >= TIMING.registers and taken < count and beats[taken] < t and (len(inside) < TIMING.resolve or push)
        if chosen is not None:
            index = queues[chosen].pop(0)[0]
            issued[chosen] += 1
            issues.append((t, chosen))
            if resolved[index][OUT["zero"]] or not predicates[table[index, PREDICATE]]:
                finishes[chosen].append(t + zero[chosen])
                skipped += not resolved[index][OUT["zero"]]
            else:
                start = t + START
                seen = start + BUSY[chosen] + REPORT  # the finish, by issue
                finishes[chosen].append(seen)
                last_start[chosen] = start
                if chosen < 2:
                    moves[chosen].update(start + i for i in MOVES[chosen])
                if chosen == Unit.LOAD and resolved[index][OUT["flags"]] & EXCLUSIVE:
                    exclusive_until = seen
                if chosen == Unit.SELECT and resolved[index][OUT["op"]] == SOp.COMPARE:
                    number, aux = (int(table[index, TABLE_FIELDS.index(name)]) for name in ("number", "aux"))
                    results.append((seen, number, aux & 1))
                for i, s in enumerate(s for s in range(10) if STREAM_UNIT[s] == chosen):
                    held[s].append((start + RELEASE[chosen] + REPORT, int(resolved[index][OUT[f"claim{i}"]])))
        if push:
            waits = table[decode][2:7].tolist()
            alone, flags = bool(resolved[decode][OUT["zero"]]), int(resolved[decode][OUT["flags"]])
            if unit == Unit.LOAD:
                alone |= bool(flags & EXCLUSIVE)
            if unit == Unit.MATRIX and not alone:
                still = bool(flags >> MatrixFlag.OUTPUT_STATIONARY & 1)
                alone, stationary = still != stationary or doubtful, still
            if unit == Unit.MATRIX:
                doubtful = bool(table[decode, PREDICATE])
            targets = [max(0, n - d + 1) if d else 0 for n, d in zip(dispatched, waits)]
            queues[unit].append((decode, targets, alone))
            dispatched[unit] += 1
            inside.pop(0)
        if take:
            inside.append((taken, t + TIMING.resolve))
            taken += 1
        t += 1
        assert t < 20000, "the program never ends: commands did not arrive"
    last = max((f for fs in finishes.values() for f in fs), default=0)
    index = inside[0][0] if fault else 0
    code = int(resolved[index][OUT["fault"]]) if fault else 0
    cycles = max(last, fault) + TIMING.done
    for unit in UNIT_LAYOUTS:  # from the last finish to the interrupt
        counts[f"{unit}_empty"] += cycles - t
        assert sum(counts[f"{unit}_{cause}"] for cause in CAUSES) == cycles
    return issues, finishes, cycles, code, index, counts, skipped


def random_program(rng: random.Random, count: int) -> list[Command]:
    commands: list[Command] = []
    while len(commands) < count:
        unit = rng.choice([*Unit, Unit.SELECT])
        waits = {u: rng.choice((1, 1, 2, 5)) for u in Unit if rng.random() < 0.4}
        size = Length(cap=rng.randrange(1, 5), reg=rng.choice((0, 0, 0, 1, 2)))
        near = rng.random() < 0.2
        if unit <= Unit.STORE:
            flags = rng.choice(((), (), (), (MoveFlag.ZERO,), (MoveFlag.BROADCAST,))) if unit is Unit.LOAD else ()
            command = Command.make(unit, waits=waits, flags=flags, bytes=4, rows=size, row_stride=1,
                                   row=1022 if near else rng.randrange(1024))
        elif unit is Unit.MATRIX:
            flags = (MatrixFlag.OUTPUT_STATIONARY,) if rng.random() < 0.4 else ()
            command = Command.make(unit, waits=waits, flags=flags, a_row=rng.randrange(1024), b_row=rng.randrange(1024),
                                   c_row=rng.randrange(200), m=size, n=4, k=4)
        elif unit is Unit.SELECT:
            op = rng.choice((SOp.COMPARE, SOp.COMPARE, SOp.KEYS, SOp.LIST_STORE))
            command = Command.make(unit, op=op, waits=waits, src0=rng.randrange(1000), dst=rng.randrange(1000), m=size,
                                   n=size, aux=rng.choice((1, 1, 2)), number=rng.randrange(1, 4))
        else:
            command = Command.make(unit, op=VOp.REQUANT, waits=waits, src0=rng.randrange(200),
                                   dst=rng.randrange(1000), m=size, n=4)
        row = resolve(decode_table(encode_program([command])), BASES, LIMITS, LENGTHS, CONFIG)[0]
        if not row[OUT["fault"]]:
            commands.append(replace(command, predicate=rng.choice((0, rng.randrange(1, 4)))))
    return commands


class Bench:
    """Host and DRAM around the device; notes the cycle of everything that happens."""

    def __init__(self, dut: Gemmule, rng: random.Random, stall: float = 0.0) -> None:
        self.dut, self.rng, self.stall = dut, rng, stall
        self.memory = b""
        self.t: int | None = None
        self.issues: list[tuple[int, int]] = []
        self.finishes: dict[int, list[int]] = {}
        self.beats: dict[int, int] = {}
        self.requests: list[tuple[int, int]] = []  # cycle and beats of the program's bursts
        self.irq_at = 0
        self.bursts: deque[tuple[int, int, bool]] = deque()
        self.bad_beat = -1
        self.beat = 0
        self.causes: dict[str, int] = {}  # over all launches, units together
        self.skipped = 0

    def port(self, name: str):
        return getattr(self.dut, name)

    async def tick(self, ctx) -> None:
        """One cycle: serve DRAM reads, write down the traces."""
        get = lambda name: ctx.get(self.port(name))  # noqa: E731
        if get("trace_start"):
            self.t, self.issues, self.finishes, self.irq_at = 0, [], {u: [] for u in range(5)}, 0
            self.beats, self.beat, self.requests = {}, 0, []
        for u in range(5):
            if self.t is not None and get("trace_issue") >> u & 1:
                self.issues.append((self.t, u))
            if self.t is not None and get("trace_finish") >> u & 1:
                self.finishes[u].append(self.t)
        if self.t is not None and get("irq") and not self.irq_at:
            self.irq_at = self.t
        ready = self.rng.random() >= self.stall
        ctx.set(self.port("m_axi_arready"), ready)
        if ready and get("m_axi_arvalid"):
            address, beats = get("m_axi_araddr"), get("m_axi_arlen") + 1
            assert (get("m_axi_arsize"), get("m_axi_arburst")) == (2, 1)
            assert address // 128 == (address + 4 * beats - 1) // 128
            self.requests.append((self.t, beats))
            self.bursts += [(address + 4 * i, self.t + 6, i == beats - 1) for i in range(beats)]
        valid = bool(self.bursts) and self.bursts[0][1] <= self.t and self.rng.random() >= self.stall
        ctx.set(self.port("m_axi_rvalid"), valid)
        if valid:
            address, _, last = self.bursts.popleft()
            assert get("m_axi_rready")
            at = address - PROGRAM
            ctx.set(self.port("m_axi_rdata"), int.from_bytes(self.memory[at:at + 4], "little"))
            ctx.set(self.port("m_axi_rlast"), last)
            ctx.set(self.port("m_axi_rresp"), 2 if self.beat == self.bad_beat else 0)
            self.beat += 1
            if at % 32 == 28:
                self.beats[at // 32] = self.t
        await ctx.tick()
        if self.t is not None:
            self.t += 1

    async def write(self, ctx, offset: int, value: int) -> None:
        for name, number in (("awaddr", offset), ("wdata", value), ("wstrb", 15), ("awvalid", 1),
                             ("wvalid", 1), ("bready", 1)):
            ctx.set(self.port(f"s_axil_{name}"), number)
        await self.tick(ctx)
        ctx.set(self.port("s_axil_awvalid"), 0)
        ctx.set(self.port("s_axil_wvalid"), 0)
        while not ctx.get(self.port("s_axil_bvalid")):
            await self.tick(ctx)
        await self.tick(ctx)

    async def read(self, ctx, offset: int) -> int:
        ctx.set(self.port("s_axil_araddr"), offset)
        ctx.set(self.port("s_axil_arvalid"), 1)
        ctx.set(self.port("s_axil_rready"), 1)
        await self.tick(ctx)
        ctx.set(self.port("s_axil_arvalid"), 0)
        while not ctx.get(self.port("s_axil_rvalid")):
            await self.tick(ctx)
        value = ctx.get(self.port("s_axil_rdata"))
        await self.tick(ctx)
        return value

    async def set_up(self, ctx) -> None:
        for i in range(1, 16):
            await self.write(ctx, length_offset(i), int(LENGTHS[i]))
        for i in range(2):
            await self.write(ctx, base_offset(i), int(BASES[i]))
            await self.write(ctx, limit_offset(i), int(LIMITS[i]))
        await self.write(ctx, Csr.PROGRAM_LO, PROGRAM)

    async def launch(self, ctx, commands: list[Command]) -> None:
        """Start, wait for the interrupt."""
        self.memory = encode_program(commands)
        await self.write(ctx, Csr.PROGRAM_COMMANDS, len(commands))
        await self.write(ctx, Csr.CONTROL, Control.START)
        while not ctx.get(self.port("irq")):
            await self.tick(ctx)
        await self.tick(ctx)

    async def check(self, ctx, commands: list[Command]) -> None:
        """Launch, and compare with the contract."""
        await self.launch(ctx, commands)
        arrivals = {i: self.beats.get(i, 1 << 30) for i in range(len(commands))}
        issues, finishes, cycles, code, index, counts, skipped = expected(self.memory, arrivals)
        assert self.issues == issues
        assert self.finishes == finishes
        assert self.irq_at == cycles
        assert await self.read(ctx, Csr.CYCLES) == cycles
        assert await self.read(ctx, Csr.STATUS) == 2 | code << 8
        assert await self.read(ctx, Csr.FAULT_INDEX) == index
        requests = [beats for t, beats in self.requests if t < cycles]
        counts |= dict.fromkeys(TRAFFIC, 0) | {
            "program_bytes": sum(requests) * CONFIG.bus_bytes, "program_bursts": len(requests)}
        for name in COUNTERS:
            assert await self.read(ctx, counter_offset(name)) == counts[name], name
            assert await self.read(ctx, counter_offset(name) + 4) == 0
        self.skipped += skipped
        self.causes = {cause: self.causes.get(cause, 0) + sum(
            counts[f"{unit}_{cause}"] for unit in UNIT_LAYOUTS) for cause in CAUSES}
