"""A bus that does what AXI allows: stalls of single channels, write data before their address, errors in single beats;
and what a reset in the middle of bursts, or register writes during a run, do to a device. One simulator for all.

Cycles are not the model's here (but after a reset they are again): DRAM bytes, faults and traffic are compared.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.csr import TRAFFIC, Control, Csr, Status, base_offset, length_offset, limit_offset
from gemmule.isa import COMMAND_BYTES, Command, Unit, decode_table, encode_program
from gemmule.operands import Memory
from gemmule.resolve import FAULTS, OUT, resolve
from gemmule.sim.fuzz.draw import Straight
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import CHANNELS, Order, RtlDevice, RtlError
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.access import accesses

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
TINY = load_config("tiny")
SIZE = 1 << 19
MODES = {
    "ar": (160, ["ar"], Order.ADDRESS_FIRST), "r": (160, ["r"], Order.ADDRESS_FIRST),
    "aw": (230, ["aw"], Order.ANY), "w": (230, ["w"], Order.ADDRESS_FIRST), "b": (230, ["b"], Order.ADDRESS_FIRST),
    "all, in any order": (128, CHANNELS, Order.ANY), "data first": (0, [], Order.DATA_FIRST),
    "data first, stalled": (100, CHANNELS, Order.DATA_FIRST),
}
"""Chance in 256 of a stall, the channels that stall, the order of a write's address and data."""


@pytest.fixture(scope="module")
def rtl():
    with RtlDevice(TINY, watchdog=2_000_000) as device:
        yield device


@pytest.fixture
def model(rtl):
    """As the device now is: both have run the program that sets all memories."""
    simulator = Simulator(TINY, dram_bytes=SIZE)
    for device in (simulator, rtl):
        device.load(wipe(TINY, SIZE))
        device.run()
    return simulator


def run_both(case: Launch, model: Simulator, rtl: RtlDevice) -> tuple[Result, Result, int]:
    """Results of the model and of the RTL, and how many bytes of DRAM differ."""
    results = []
    for device in (model, rtl):
        device.load(case)
        results.append(device.run())
    ours, theirs = (np.frombuffer(device.read_dram(0, SIZE), dtype=np.uint8) for device in (model, rtl))
    return (*results, int((ours != theirs).sum()))


def traffic(result: Result, *but: str) -> dict[str, int]:
    return {name: result.registers[name] for name in TRAFFIC if not name.startswith(but or "-")}


def broken(case: Launch, at: int) -> Launch:
    """With a command that faults in the place of command ``at``."""
    image = bytearray(case.image)
    image[at * COMMAND_BYTES:(at + 1) * COMMAND_BYTES] = encode_program([Command.make(Unit.SELECT, op=31)])
    return replace(case, image=bytes(image))


def moved_words(case: Launch, unit: Unit, rng: random.Random, count: int) -> list[int]:
    """DRAM addresses of words that loads or stores of the program may move, one of a command."""
    table = decode_table(case.image)
    out = resolve(table, case.bases, case.limits, case.lengths, TINY)
    found = []
    for i in rng.sample(range(len(table)), len(table)):
        if out[i, OUT["unit"]] == unit and not out[i, OUT["zero"]]:
            spans = [span for access in accesses(table[i], out[i], TINY) if access.memory == Memory.DRAM
                     for span in access.spans]
            if spans:
                low, high = rng.choice(spans)
                found.append(rng.randrange(int(low), int(high)) // TINY.bus_bytes * TINY.bus_bytes)
    return found[:count]


@pytest.mark.parametrize("mode", MODES)
def test_random_programs_on_a_bus_that_stalls(rtl, model, mode):
    rtl.set_stall(*MODES[mode])
    try:
        for seed in range(2):
            expected, seen, wrong = run_both(generate(TINY, 700 + seed, 60, brief=True, taste=Straight), model, rtl)
            assert (wrong, seen.fault) == (0, 0)
            assert traffic(seen) == traffic(expected)
            assert (seen.finish >= 0).all()
            assert (seen.finish != expected.finish).any()  # mostly later; a stall may also turn an arbitration for good
        case = generate(TINY, 710, 60, brief=True, taste=Straight)
        at = len(case.image) // COMMAND_BYTES // 2
        expected, seen, wrong = run_both(broken(case, at), model, rtl)
        assert wrong == 0
        assert (seen.fault, seen.fault_index) == (expected.fault, expected.fault_index) == (FAULTS.index("illegal"), at)
        assert traffic(seen, "program") == traffic(expected, "program")  # fetch is ahead by as much as time allows
    finally:
        rtl.set_stall(0)


@pytest.mark.parametrize("stalls", [False, True])
def test_errors_that_hit_single_beats(rtl, model, stalls):
    """Fault ``axi``; the commands dispatched by then have run, and they alone. The next program is exact."""
    rng, case, hits = random.Random(3), generate(TINY, 720, 60, brief=True, taste=Straight), 0
    words = [(unit, at) for unit in (Unit.LOAD, Unit.STORE) for at in moved_words(case, unit, rng, 4)]
    words += [(None, case.program + 4 * rng.randrange(len(case.image) // 4)) for _ in range(4)]  # fetch
    for unit, at in words:
        rtl.set_stall(100 if stalls else 0, order=Order.ANY if stalls else Order.ADDRESS_FIRST)
        rtl.set_axi_error(at, beat=True)
        rtl.load(case)
        seen = rtl.run()
        rtl.set_stall(0)
        rtl.set_axi_error(None)
        count = seen.fault_index if seen.fault else len(seen.finish)
        hits += seen.fault == FAULTS.index("axi")
        assert seen.fault in (0, FAULTS.index("axi"))
        assert (seen.finish >= 0).sum() == count
        model.load(replace(case, image=case.image[:count * COMMAND_BYTES]))
        expected = model.run()
        ours, theirs = (np.frombuffer(device.read_dram(0, SIZE), dtype=np.uint8).copy() for device in (model, rtl))
        for after in (ours, theirs):  # the model's program is shorter
            after[case.program:case.program + len(case.image)] = 0
        assert (ours == theirs).all(), (unit, at)
        assert traffic(seen, "program") == traffic(expected, "program"), (unit, at)
    assert hits >= len(words) - 2
    report = cosim(generate(TINY, 721, 60, brief=True, taste=Straight), model, rtl)
    assert report.ok, report.text


def exact_again(rtl: RtlDevice) -> None:
    """Two programs, to the cycle."""
    fresh = Simulator(TINY, dram_bytes=SIZE)
    for case in (wipe(TINY, SIZE), generate(TINY, 730, 40, brief=True, taste=Straight)):
        report = cosim(case, fresh, rtl)
        assert report.ok, report.text


@pytest.mark.parametrize("kind", ["device and bus", "RESET while the bus is reset"])
def test_reset_within_bursts(rtl, model, kind):
    rng, case = random.Random(4), generate(TINY, 731, 60, brief=True, taste=Straight)
    model.load(case)
    cycles = model.run().cycles
    for _ in range(6):
        rtl.load(case)
        rtl.start()
        assert not rtl.wait(rng.randrange(100, cycles - 1000))
        assert rtl.read_register(Csr.STATUS) == Status.BUSY
        if kind == "device and bus":
            rtl.reset()
        else:
            rtl.set_bus_reset(True)
            rtl.write_register(Csr.CONTROL, Control.RESET)
            rtl.set_bus_reset(False)
        assert rtl.read_register(Csr.STATUS) == 0
        assert not rtl.wait(2000)  # nothing of the launch is left
        exact_again(rtl)


def test_a_reset_of_the_device_alone_is_seen():
    """What the documentation forbids: bursts that the device has forgotten meet the next program."""
    case = generate(TINY, 731, 60, brief=True, taste=Straight)
    with RtlDevice(TINY, watchdog=2_000_000) as other:
        other.load(case)
        other.write_register(Csr.WATCHDOG, 5000)
        other.set_stall(255, ["r"])
        other.start()
        other.wait(400)
        other.write_register(Csr.CONTROL, Control.RESET)
        with pytest.raises(RtlError, match="start with traffic outstanding"):
            other.set_stall(0), other.run()


class Poked:
    """The device, of which registers are written while it runs."""

    def __init__(self, rtl: RtlDevice, writes: list[tuple[int, int, int]]) -> None:
        self.rtl, self.writes = rtl, writes
        self.load, self.read_dram = rtl.load, rtl.read_dram

    def run(self) -> Result:
        return self.rtl.run(during=self.writes)


def test_register_writes_during_a_run_change_nothing(rtl, model):
    """To the cycle; and parameters read back as they were."""
    rng, case = random.Random(5), generate(TINY, 732, 60, brief=True, taste=Straight)
    parameters = [Csr.PROGRAM_LO, Csr.PROGRAM_HI, Csr.PROGRAM_COMMANDS, Csr.WATCHDOG,
                  *(length_offset(i) for i in range(16)),
                  *(of(i) + half for of in (base_offset, limit_offset) for i in range(32) for half in (0, 4))]
    report = cosim(case, model, rtl)
    room = report.seen.cycles // 200
    before = [rtl.read_register(at) for at in parameters]
    for kind in ("all at the start", "spread over the run"):
        rng.shuffle(writes := [(0, at, rng.choice([0, 1, rng.getrandbits(32)])) for at in parameters])
        if kind == "spread over the run":
            writes = [(rng.randrange(room), *write[1:]) for write in writes]
            writes += [(room, at, value) for at, value in (
                (Csr.CONTROL, Control.START), (Csr.IRQ_CLEAR, 1), (Csr.STATUS, 0), (Csr.CYCLES, 5), (0x300, 7))]
        report = cosim(case, model, Poked(rtl, writes))
        assert report.ok, report.text
        assert before == [rtl.read_register(at) for at in parameters]
