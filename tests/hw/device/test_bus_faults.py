"""The device with its real units on a memory that fails: error responses, and silence on each channel."""

from collections import deque

import pytest

from gemmule.config import load_config
from gemmule.csr import Control, Csr, base_offset, counter_offset, limit_offset
from gemmule.hw.device.top import Gemmule
from gemmule.isa import Command, Unit, encode_program
from gemmule.resolve import FAULTS

from ...thinned import some
from ..bench import Simulated, run_bench

CONFIG = load_config("tiny")  # 4-byte bus, bursts of 64 bytes
CHANNELS = ("ar", "r", "aw", "w", "b")
PROGRAM, SOURCE, TARGET, SIZE = 0x400, 0x800, 0xC00, 0x1000
LATENCY = 7
LIMIT = 40


class Memory:
    """AXI memory and host: one burst of each kind after the other; ``silent`` channels do nothing."""

    def __init__(self, dut: Gemmule) -> None:
        self.dut = dut
        self.data = bytearray(i * 37 % 251 for i in range(SIZE))
        self.silent: set[str] = set()
        self.bad_read, self.bad_write, self.response = -1, -1, 2
        self.latency = LATENCY
        self.t = 0
        self.reset()

    def reset(self) -> None:
        self.reads: deque[tuple[int, int, bool]] = deque()  # address, earliest cycle, last
        self.writes: deque[tuple[int, int]] = deque()  # address, beats
        self.words: deque[tuple[int, int]] = deque()  # data, strobes
        self.answers: deque[tuple[int, int]] = deque()  # earliest cycle, response
        self.first_silent: int | None = None

    def next_read(self) -> int:
        """Address of the next beat on R."""
        return self.reads[0][0] if self.reads else 0

    def get(self, ctx, name: str) -> int:
        return ctx.get(getattr(self.dut, f"m_axi_{name}"))

    def put(self, ctx, name: str, value: int) -> None:
        ctx.set(getattr(self.dut, f"m_axi_{name}"), value)

    async def tick(self, ctx) -> None:
        if ctx.get(self.dut.trace_start):
            self.t = 0
        done = set()
        for channel in ("ar", "aw", "w"):
            ready = channel not in self.silent
            self.put(ctx, f"{channel}ready", ready)
            if ready and self.get(ctx, f"{channel}valid"):
                done.add(channel)
        due = bool(self.reads or self.writes or self.words or self.answers) or any(
            self.get(ctx, f"{channel}valid") for channel in ("ar", "aw", "w"))
        reply = bool(self.reads) and self.reads[0][1] <= self.t and "r" not in self.silent
        self.put(ctx, "rvalid", reply)
        if reply:
            done.add("r")
            address, _, last = self.reads.popleft()
            self.put(ctx, "rdata", int.from_bytes(self.data[address:address + 4], "little"))
            self.put(ctx, "rlast", last)
            self.put(ctx, "rresp", self.response if address == self.bad_read else 0)
        if "ar" in done:
            address, beats = self.get(ctx, "araddr"), self.get(ctx, "arlen") + 1
            self.reads += [(address + 4 * i, self.t + self.latency, i == beats - 1) for i in range(beats)]
        answer = bool(self.answers) and self.answers[0][0] <= self.t and "b" not in self.silent
        self.put(ctx, "bvalid", answer)
        if answer:
            done.add("b")
            self.put(ctx, "bresp", self.answers.popleft()[1])
        if "aw" in done:
            self.writes.append((self.get(ctx, "awaddr"), self.get(ctx, "awlen") + 1))
        if "w" in done:
            self.words.append((self.get(ctx, "wdata"), self.get(ctx, "wstrb")))
        if self.writes and len(self.words) >= self.writes[0][1]:
            address, beats = self.writes.popleft()
            bad = address <= self.bad_write < address + 4 * beats
            for i in range(beats):
                word, strobes = self.words.popleft()
                for lane in range(4):
                    if strobes >> lane & 1 and not bad:
                        self.data[address + 4 * i + lane] = word >> 8 * lane & 255
            self.answers.append((self.t + self.latency, self.response if bad else 0))
        if done or not due:
            self.first_silent = None
        elif self.first_silent is None:
            self.first_silent = self.t
        await ctx.tick()
        self.t += 1

    async def write(self, ctx, offset: int, value: int) -> None:
        for name, number in (("awaddr", offset), ("wdata", value), ("wstrb", 15), ("awvalid", 1), ("wvalid", 1),
                             ("bready", 1)):
            ctx.set(getattr(self.dut, f"s_axil_{name}"), number)
        await self.tick(ctx)
        ctx.set(self.dut.s_axil_awvalid, 0)
        ctx.set(self.dut.s_axil_wvalid, 0)
        for _ in range(2):
            await self.tick(ctx)

    async def read(self, ctx, offset: int) -> int:
        ctx.set(self.dut.s_axil_araddr, offset)
        ctx.set(self.dut.s_axil_arvalid, 1)
        ctx.set(self.dut.s_axil_rready, 1)
        await self.tick(ctx)
        ctx.set(self.dut.s_axil_arvalid, 0)
        while not ctx.get(self.dut.s_axil_rvalid):
            await self.tick(ctx)
        value = ctx.get(self.dut.s_axil_rdata)
        await self.tick(ctx)
        return value

    async def set_up(self, ctx, watchdog: int = LIMIT) -> None:
        for offset, value in ((base_offset(0), SOURCE), (limit_offset(0), 1024), (base_offset(1), TARGET),
                              (limit_offset(1), 1024), (Csr.PROGRAM_LO, PROGRAM), (Csr.WATCHDOG, watchdog)):
            await self.write(ctx, offset, value)

    async def start(self, ctx, commands: list[Command]) -> None:
        image = encode_program(commands)
        self.data[PROGRAM:PROGRAM + len(image)] = image
        await self.write(ctx, Csr.PROGRAM_COMMANDS, len(commands))
        await self.write(ctx, Csr.CONTROL, Control.START)

    async def until_irq(self, ctx) -> int:
        while not ctx.get(self.dut.irq):
            await self.tick(ctx)
        return self.t

    async def copy_works(self, ctx, offset: int) -> None:
        """Run a program that copies 48 bytes; the copy, the status and the traffic are right."""
        self.data[TARGET:TARGET + 1024] = bytes(1024)
        await self.start(ctx, copy(offset))
        end = await self.until_irq(ctx)
        await self.tick(ctx)
        assert await self.read(ctx, Csr.STATUS) == 2
        assert await self.read(ctx, Csr.CYCLES) == end
        rows = range(0, 60, 20)
        for row in rows:
            assert self.data[TARGET + row:][:16] == self.data[SOURCE + offset + row:][:16]
        bursts = 1 + sum((offset + row + 15) // 64 - (offset + row) // 64 + 1 for row in rows)
        for name, count in (("program_bytes", 3 * 32), ("program_bursts", 2), ("load_bytes", 52),
                            ("load_bursts", bursts), ("store_bytes", 48), ("store_bursts", 3), ("load_busy", 13),
                            ("store_busy", 12), ("matrix_empty", end)):
            assert await self.read(ctx, counter_offset(name)) == count, name


def copy(offset: int = 0) -> list[Command]:
    """48 bytes to the scratchpad as 3 rows of 16, every 20 bytes, and from there to the target; then 4 bytes more."""
    rows = {"rows": 3, "stride": 20, "bytes": 16, "row_stride": 4, "block_stride": 1}
    return [
        Command.make(Unit.LOAD, base=0, offset=offset, row=32, **rows),
        Command.make(Unit.STORE, base=1, row=32, waits={Unit.LOAD: 1}, **rows),
        Command.make(Unit.LOAD, base=0, row=0, rows=1, bytes=4),
    ]


async def recover(ctx, memory: Memory) -> None:
    """Device reset and bus reset; parameters stay."""
    await memory.write(ctx, Csr.CONTROL, Control.RESET)
    memory.silent.clear()
    memory.reset()
    assert await memory.read(ctx, Csr.STATUS) == 0
    assert await memory.read(ctx, Csr.WATCHDOG) == LIMIT
    assert await memory.read(ctx, counter_offset("load_dram")) == 0
    assert ctx.get(memory.dut.irq) == 0


@pytest.fixture(scope="module")
def device() -> Simulated:
    return Simulated(Gemmule(config=CONFIG))


# When a channel falls silent: at the start, or once the load's traffic is at hand; commands dispatched by then.
SILENCES = (("ar", "start", 0), ("r", "start", 0), ("ar", "load", 3), ("r", "load", 3), ("aw", "start", 3),
            ("w", "start", 3), ("b", "start", 3))


def test_silent_channel_ends_the_launch(device: Simulated) -> None:
    """Two cycles after as many silent cycles as the watchdog allows; a reset brings the device back."""
    dut = device.component

    async def bench(ctx):
        memory = Memory(dut)
        await memory.set_up(ctx)
        for i, (channel, when, dispatched) in enumerate(SILENCES):
            if when == "start":
                memory.silent = {channel}
            await memory.start(ctx, copy())
            while when == "load" and not (memory.next_read() >= SOURCE if channel == "r" else ctx.get(dut.trace_issue)):
                await memory.tick(ctx)
            memory.silent = {channel}
            while not ctx.get(dut.irq):
                await memory.tick(ctx)
            assert memory.first_silent is not None, channel
            end = memory.t
            assert end == memory.first_silent + LIMIT + 1, channel
            assert await memory.read(ctx, Csr.STATUS) == 2 | FAULTS.index("watchdog") << 8, channel
            assert await memory.read(ctx, Csr.CYCLES) == end
            assert await memory.read(ctx, Csr.FAULT_INDEX) == dispatched, (channel, when)
            await memory.write(ctx, Csr.CONTROL, Control.START)  # not before a reset
            assert await memory.read(ctx, Csr.STATUS) == 2 | FAULTS.index("watchdog") << 8, channel
            await recover(ctx, memory)
            await memory.copy_works(ctx, 4 + 4 * i)

    device.run(bench)


def test_one_bank_of_each_memory_is_enough() -> None:
    config = CONFIG.model_copy(update={"name": "one", "spm_banks": 1, "acc_banks": 1})
    dut = Gemmule(config=config)

    async def bench(ctx):
        memory = Memory(dut)
        await memory.set_up(ctx)
        await memory.copy_works(ctx, 16)

    run_bench(dut, bench)


def test_without_limit_the_device_waits(device: Simulated) -> None:
    dut = device.component

    async def bench(ctx):
        memory = Memory(dut)
        await memory.set_up(ctx, watchdog=0)
        memory.silent = {"b"}
        await memory.start(ctx, copy())
        for _ in range(500):
            await memory.tick(ctx)
            assert not ctx.get(dut.irq)
        memory.silent = set()
        await memory.until_irq(ctx)
        assert await memory.read(ctx, Csr.STATUS) == 2

    device.run(bench)


def test_start_that_waits_for_a_dead_fetch(device: Simulated) -> None:
    """A fault leaves a fetch read behind that is never answered: the next launch ends before cycle 0."""
    dut = device.component

    async def bench(ctx):
        memory = Memory(dut)
        await memory.set_up(ctx)
        await memory.start(ctx, [Command.make(Unit.STORE, flags=(7,)), *copy(), *copy()])
        while not ctx.get(dut.irq):
            if memory.next_read() >= PROGRAM + 36:
                memory.silent = {"r"}
            await memory.tick(ctx)
        assert await memory.read(ctx, Csr.STATUS) == 2 | FAULTS.index("illegal") << 8
        await memory.write(ctx, Csr.CONTROL, Control.START)
        assert await memory.read(ctx, Csr.STATUS) == 1
        await memory.until_irq(ctx)
        assert await memory.read(ctx, Csr.STATUS) == 2 | FAULTS.index("watchdog") << 8
        assert await memory.read(ctx, Csr.CYCLES) == await memory.read(ctx, Csr.FAULT_INDEX) == 0
        await recover(ctx, memory)
        await memory.copy_works(ctx, 8)

    device.run(bench)


def test_watchdog_in_the_last_cycle(device: Simulated) -> None:
    """A launch that ends with a fault in the very cycle in which the watchdog expires ends by the watchdog."""
    dut = device.component
    program = [Command.make(Unit.STORE, flags=(7,)), *copy(), *copy()]

    async def bench(ctx):
        memory = Memory(dut)
        memory.latency = 1  # no silence before the first command is there
        await memory.set_up(ctx)

        async def end(limit: int) -> tuple[str, int, int]:
            """How and when the launch ended, and the first silent cycle before."""
            await memory.write(ctx, Csr.WATCHDOG, limit)
            await memory.start(ctx, program)
            while not ctx.get(dut.irq):
                if memory.next_read() >= PROGRAM + 36:
                    memory.silent = {"r"}
                await memory.tick(ctx)
            silent, seen = memory.first_silent, await memory.read(ctx, Csr.STATUS)
            assert silent is not None
            cycles = await memory.read(ctx, Csr.CYCLES)
            assert await memory.read(ctx, Csr.FAULT_INDEX) == 0
            await memory.write(ctx, Csr.CONTROL, Control.RESET)
            memory.silent = set()
            memory.reset()
            assert seen & 0xFF == 2
            return FAULTS[seen >> 8], cycles, silent

        fault, last, silent = await end(0)
        assert fault == "illegal"
        assert last > silent + 1
        for limit in range(1, last - silent + 3):
            expected = ("watchdog", silent + limit + 1) if silent + limit < last else ("illegal", last)
            assert await end(limit) == (*expected, silent), limit
        await memory.write(ctx, Csr.WATCHDOG, LIMIT)
        await memory.copy_works(ctx, 8)

    device.run(bench)


@pytest.mark.parametrize("source", some(["fetch", "store", "load"], 2))
def test_error_response_drains_and_stops(device: Simulated, source: str) -> None:
    """SLVERR and DECERR are faults; EXOKAY is not. The next program runs without a reset."""
    dut = device.component
    commands = copy(4) + [Command.make(Unit.LOAD, base=0, rows=1, bytes=4, row=i) for i in range(30)]
    low, high = {"fetch": (1, 10), "load": (1, 30), "store": (3, 32)}[source]

    async def bench(ctx):
        memory = Memory(dut)
        await memory.set_up(ctx)
        for response, code in ((1, 0), (2, FAULTS.index("axi")), (3, FAULTS.index("axi"))):
            memory.response = response
            if source == "store":
                memory.bad_write = TARGET + 20
            else:
                memory.bad_read = PROGRAM + 32 * 10 + 8 if source == "fetch" else SOURCE + 8
            await memory.start(ctx, commands)
            issued = finished = 0
            while not ctx.get(dut.irq):
                issued += ctx.get(dut.trace_issue) != 0
                finished += ctx.get(dut.trace_finish).bit_count()
                await memory.tick(ctx)
            assert await memory.read(ctx, Csr.STATUS) == 2 | code << 8
            index = await memory.read(ctx, Csr.FAULT_INDEX)
            if code:
                assert issued == finished == index  # what was dispatched has drained
                assert low <= index <= high
            else:
                assert (issued, finished, index) == (len(commands), len(commands), 0)
            memory.bad_read = memory.bad_write = -1
            while memory.reads:  # fetch goes on until its queue is full
                await memory.tick(ctx)
            await memory.copy_works(ctx, 12)

    device.run(bench)
