"""The whole control side between host, DRAM and stand-in units, against a cycle-by-cycle statement."""

import random

import pytest

from gemmule.csr import (
    Control,
    Csr,
)
from gemmule.hw.device.top import Gemmule
from gemmule.isa import (
    Command,
    Unit,
    encode_program,
)
from gemmule.resolve import FAULTS

from ...thinned import some
from ..bench import Simulated
from .top_bench import CONFIG, TIMING, Bench, StandIns, random_program


@pytest.fixture(scope="module")
def device() -> tuple[Simulated, StandIns]:
    units = StandIns()
    return Simulated(Gemmule(config=CONFIG, timing=TIMING, units=units)), units


@pytest.mark.parametrize(("seed", "stall"), some([(1, 0.3), (0, 0.0)]))
def test_every_cycle_of_two_launches(device, seed: int, stall: float) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    dut = device[0].component
    programs = [random_program(rng, 60), random_program(rng, 25)]
    bad = random_program(rng, 30)
    bad.insert(20, Command.make(Unit.LOAD, bytes=4, rows=1, offset=4096))

    async def bench(ctx):
        host = Bench(dut, rng, stall)
        await host.set_up(ctx)
        for commands in (programs[0], bad, programs[1], [], programs[1][:1]):
            await host.check(ctx, commands)
            assert ctx.get(dut.irq) == 1
            if commands is not bad:  # after a fault the start itself must lower the interrupt
                await host.write(ctx, Csr.IRQ_CLEAR, 1)
                assert ctx.get(dut.irq) == 0
        assert min(host.causes.values()) > 20, host.causes
        assert 10 < host.skipped < 50, host.skipped

    device[0].run(bench, cycles=20000)


def test_start_while_busy_is_ignored_and_status_is_busy(device) -> None:
    dut = device[0].component

    async def bench(ctx):
        host = Bench(dut, random.Random(3))
        await host.set_up(ctx)
        host.memory = encode_program(random_program(random.Random(3), 12))
        await host.write(ctx, Csr.PROGRAM_COMMANDS, 12)
        await host.write(ctx, Csr.CONTROL, Control.START)
        assert await host.read(ctx, Csr.STATUS) == 1
        strobe = host.t
        await host.write(ctx, Csr.CONTROL, Control.START)
        assert host.t == strobe + 3, "a second strobe would restart the clock"
        while not ctx.get(dut.irq):
            await host.tick(ctx)
        assert await host.read(ctx, Csr.STATUS) == 2

    device[0].run(bench)


@pytest.mark.parametrize("source", ["fetch", "unit"])
def test_axi_error_drains_and_stops(device, source: str) -> None:
    dut, units = device[0].component, device[1]

    async def bench(ctx):
        host = Bench(dut, random.Random(4))
        await host.set_up(ctx)
        commands = [Command.make(Unit.LOAD, bytes=4, rows=1, row=i) for i in range(40)]
        if source == "fetch":
            host.bad_beat = 8 * 20 + 3  # in command 20
        else:
            host.memory = encode_program(commands)
        if source == "fetch":
            await host.launch(ctx, commands)
        else:
            await host.write(ctx, Csr.PROGRAM_COMMANDS, 40)
            await host.write(ctx, Csr.CONTROL, Control.START)
            while host.t is None or host.t < 100:
                await host.tick(ctx)
            ctx.set(units.broken, 1)
            await host.tick(ctx)
            ctx.set(units.broken, 0)
            while not ctx.get(dut.irq):
                await host.tick(ctx)
        assert await host.read(ctx, Csr.STATUS) == 2 | FAULTS.index("axi") << 8
        index = await host.read(ctx, Csr.FAULT_INDEX)
        assert 0 < index < 21
        assert len(host.issues) == len(host.finishes[0]) == index  # all dispatched ones have finished
        host.bad_beat = -1
        await host.check(ctx, commands)  # and the next launch is clean

    device[0].run(bench)


def test_device_reset_forgets_the_launch(device) -> None:
    dut = device[0].component

    async def bench(ctx):
        host = Bench(dut, random.Random(5))
        await host.set_up(ctx)
        commands = [Command.make(Unit.LOAD, bytes=4, rows=1) for _ in range(3)]
        bad = [*commands, Command.make(Unit.STORE, flags=(7,))]
        await host.check(ctx, bad)
        await host.write(ctx, Csr.CONTROL, Control.RESET)
        assert await host.read(ctx, Csr.STATUS) == 0
        assert await host.read(ctx, Csr.CYCLES) == 0
        assert ctx.get(dut.irq) == 0
        await host.check(ctx, commands)  # parameters have survived

    device[0].run(bench)


