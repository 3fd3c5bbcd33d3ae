"""Testbench DRAM and host path, with a scripted stand-in for the device (stub.sv)."""

from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config, Dram, load_config
from gemmule.csr import FAULT_SHIFT, Csr
from gemmule.isa import Command, Unit, encode_program
from gemmule.sim.rtl.device import RtlDevice, RtlError

STUB = Path(__file__).with_name("stub.sv")
DRAM = Dram(latency=17, banks=4, row_bytes=512, row_miss=11, turnaround=3, refresh_cycles=40,
            refresh_period=700)
pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.long)],
                ids=lambda cycles: f"beat_cycles={cycles}")
def device(request):
    dram = DRAM.model_dump() | {"beat_cycles": request.param}
    config = Config(**{**load_config("tiny").model_dump(), "dram": dram, "name": "stub"})
    with RtlDevice(config, verilog=STUB, dram_bytes=1 << 16, watchdog=50_000) as device:
        yield device


@pytest.fixture(autouse=True)
def _clean(device):
    device.reset()


def play(device, records):
    """Run a script of (earliest cycle, kind, address, beats); the log as accepted requests and ends."""
    script = np.array([*records, (0, 2, 0, 0)], dtype=">u4")
    (device.folder / "script.bin").write_bytes(script.tobytes())
    units = [Unit.STORE if kind else Unit.LOAD for _, kind, _, _ in records]
    device.load_program(encode_program([Command.make(unit) for unit in units]), 0xD000)
    return device.run()


def served(dram, bus, requests):
    """Last R beat or response of (arrival, kind, address, beats), served in this order."""
    free, last_kind, rows, ends, out = 0, None, {}, {}, []
    for arrival, kind, address, n in requests:
        bank, row = address // dram.row_bytes % dram.banks, address // dram.row_bytes // dram.banks
        prep = arrival if rows.get(bank) == row else max(arrival, ends.get(bank, 0)) + dram.row_miss
        turn = dram.turnaround if last_kind not in (None, kind) else 0
        start = max(free + turn, prep + dram.latency)
        duration = n * dram.beat_cycles
        if dram.refresh_period:
            q = (start + duration - 1) // dram.refresh_period
            if q and start < q * dram.refresh_period + dram.refresh_cycles:
                start = q * dram.refresh_period + dram.refresh_cycles
        free = ends[bank] = start + duration
        rows[bank], last_kind = row, kind
        out.append(free if kind else free - dram.beat_cycles)
    return out


def read_sum(device):
    return device._request("csr", writes=[], reads=[int(Csr.FAULT_INDEX)])[0]


def test_memory_moves_through_files(device):
    random = np.random.default_rng(1)
    data = random.integers(0, 256, 5001, dtype=np.uint8)
    device.write_dram(1003, data)
    assert device.read_dram(1003, len(data)) == data.tobytes()
    device.write_dram(1500, b"abc")
    expected = bytearray(data.tobytes())
    expected[497:500] = b"abc"
    assert device.read_dram(1003, len(data)) == bytes(expected)
    with pytest.raises(RtlError, match="pass a larger dram_bytes"):
        device.read_dram(1 << 16, 1)


@pytest.mark.parametrize("seed", range(6))
def test_service_times_follow_the_rules(device, seed):
    random = np.random.default_rng(seed)
    bus, cycle, records = device.config.bus_bytes, 1, []
    for _ in range(120):
        beats = int(random.integers(1, 17))
        row = int(random.integers(0, 12 if seed % 2 else 3))
        address = row * 512 + int(random.integers(0, 128 - beats)) * bus
        cycle += int(random.choice([0, 1, 5, 60, 200], p=[0.5, 0.2, 0.15, 0.1, 0.05]))
        records.append((cycle, int(random.integers(0, 2)), address, beats))
    memory = random.integers(0, 1 << 30, 1 << 12, dtype=np.uint32)
    device.write_dram(0, memory.view(np.uint8))
    result = play(device, records)
    arrivals = sorted(
        ((int(result.issue[i]), *record[1:], i) for i, record in enumerate(records)), key=lambda x: x[:2])
    ends = served(device.config.dram, bus, [arrival[:4] for arrival in arrivals])
    seen = [int(result.finish[arrival[4]]) for arrival in arrivals]
    assert seen == ends
    for _, kind, address, beats, _ in arrivals:
        if kind:
            memory[address // bus:address // bus + beats] = address + np.arange(beats)
    assert device.read_dram(0, memory.nbytes) == memory.tobytes()


def test_service_times_by_hand(device):
    """Row miss 11, latency 17, turnaround 3: the read starts at 3 + 28, the write waits for it and turns."""
    result = play(device, [(3, 0, 0x100, 4), (3, 1, 0x120, 2)])
    assert list(result.issue) == [3, 5]  # the write's second beat
    assert list(result.finish) == ([34, 40] if device.config.dram.beat_cycles == 1 else [40, 52])


def test_reads_bring_the_data(device):
    device.write_dram(0x800, np.arange(100, 116, dtype=np.uint32).view(np.uint8))
    play(device, [(3, 0, 0x800, 16)])
    assert read_sum(device) == sum(range(100, 116))


def test_error_responses(device):
    device.set_axi_error(0x44)
    play(device, [(1, 0, 0x40, 4), (1, 0, 0x80, 4), (1, 1, 0x40, 2), (9, 1, 0x20000, 1)])
    (errors,) = device._request("csr", writes=[], reads=[int(Csr.CYCLES_HI)])
    device.set_axi_error(None)
    assert errors == 4 + 1 + 1  # four beats of the first read, the first write, the write beyond the end


def test_stalls_lose_nothing(device):
    random = np.random.default_rng(9)
    records = [(1, int(random.integers(0, 2)), int(a) * 64, 16) for a in random.permutation(100)]
    records += [(20000, 0, a * 64, 16) for a in range(100)]
    memory = random.integers(0, 1 << 30, 1600, dtype=np.uint32)
    device.write_dram(0, memory.view(np.uint8))
    device.set_stall(100)
    play(device, records)
    device.set_stall(0)
    before = 0
    for _, kind, address, _ in records[:100]:
        block = memory[address // 4:address // 4 + 16]
        if kind:
            block[:] = address + np.arange(16)
        else:
            before += int(block.astype(np.int64).sum())
    assert device.read_dram(0, memory.nbytes) == memory.tobytes()
    assert read_sum(device) == (before + int(memory.astype(np.int64).sum())) % (1 << 32)


def test_protocol_violation_is_reported(device):
    with RtlDevice(device.config, verilog=STUB, dram_bytes=1 << 16, watchdog=5000) as other:
        with pytest.raises(RtlError, match="burst crosses 4 KiB, burst crosses a DRAM row"):
            play(other, [(1, 0, 4092, 4)])
        with pytest.raises(RtlError, match="simulator is closed"):
            other.run()


def test_registers_that_are_ready_for_a_second_read_too_early_are_reported(device):
    """Those of this device are ready when their answer has been shown for a cycle, whoever has taken it."""
    with (RtlDevice(device.config, verilog=STUB, dram_bytes=1 << 16) as other,
          pytest.raises(RtlError, match="would take a second access before the first one is whole")):
        other.access_paused([(False, 8, 0, 15)] * 10, seed=1)


def test_a_fault_that_there_is_not_is_reported(device, monkeypatch):
    with RtlDevice(device.config, verilog=STUB, dram_bytes=1 << 16, watchdog=5000) as other:
        asked = other._request

        def answered(kind, **arguments):
            answer = asked(kind, **arguments)
            if isinstance(answer, dict) and "values" in answer:
                answer["values"][2] |= 9 << FAULT_SHIFT
            return answer

        monkeypatch.setattr(other, "_request", answered)
        with pytest.raises(RtlError, match="there is no fault 9"):
            play(other, [(1, 0, 0, 4)])


def test_hang_is_reported(device):
    with (RtlDevice(device.config, verilog=STUB, dram_bytes=1 << 16, watchdog=5000) as other,
          pytest.raises(RtlError, match="no interrupt after 5000 cycles")):
        play(other, [(1 << 20, 0, 0, 4)])
