"""Model and RTL agree on every byte and every cycle, and a disagreement is found and named."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from gemmule.config import load_config
from gemmule.isa import Command, Unit, VOp, decode_table, encode_program
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.run import fuzz
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.rtl import waveform
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.rtl.fst import signals_of
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify
from gemmule.sw.commands.shared.group import app
from gemmule.timing import Timing

TINY = load_config("tiny")
DRAM_BYTES = 1 << 18
pytestmark = [pytest.mark.rtl, pytest.mark.slow]


@pytest.fixture(scope="module")
def rtl():
    with RtlDevice(TINY, watchdog=1_000_000) as device:
        yield device


@pytest.fixture
def model():
    return Simulator(TINY, dram_bytes=DRAM_BYTES)


def gemm():
    """Load A and B, multiply, requantise, store."""
    bank, make = TINY.spm_bank_rows, Command.make
    move = {"row_stride": 1, "block_stride": 4, "rows": 4, "stride": 8, "bytes": 8}
    commands = [
        make(Unit.LOAD, offset=0, row=0, **move),
        make(Unit.LOAD, offset=512, row=bank, **(move | {"rows": 8, "block_stride": 8})),
        make(Unit.MATRIX, a_row=0, a_stride=4, b_row=bank, b_stride=8, c_row=0, c_stride=4, m=4, n=4, k=8,
             waits={Unit.LOAD: 1}),
        make(Unit.VECTOR, op=VOp.REQUANT, src0=0, src0_stride=4, dst=2 * bank, dst_stride=4, m=4, n=4, mult=1,
             shift=6, waits={Unit.MATRIX: 1}),
        make(Unit.STORE, offset=1024, row=2 * bank, **(move | {"bytes": 4, "stride": 4}),
             waits={Unit.VECTOR: 1}),
    ]
    dram = np.random.default_rng(5).integers(0, 256, DRAM_BYTES, dtype=np.uint8)
    registers = np.zeros(32, dtype=np.int64), np.full(32, DRAM_BYTES), np.zeros(16, dtype=np.int64)
    return Launch("gemm", 5, encode_program(commands), 4096, dram, *registers)


def wipe_both(model, rtl):
    """The same contents in both devices' memories, which outlive launches."""
    cosim(wipe(TINY, DRAM_BYTES), model, rtl)


def padded(case):
    return replace(case, dram=np.pad(case.dram, (0, DRAM_BYTES - len(case.dram))))


def test_gemm_against_numpy(rtl, model):
    case = gemm()
    verify(case.image, TINY, case.bases, case.limits, case.lengths)
    report = cosim(case, model, rtl)
    assert report.ok, report.text
    assert report.seen.registers == report.expected.registers
    assert report.seen.dram_bytes == {"program": 160, "load": 96, "store": 16}
    a = case.dram[:32].view(np.int8).reshape(4, 8).astype(np.int64)
    b = case.dram[512:576].view(np.int8).reshape(8, 8)[:, :4].astype(np.int64)  # the first block of columns
    expected = np.clip((a @ b + 32) >> 6, -128, 127).astype(np.int8)
    assert rtl.read_dram(1024, 16) == expected.tobytes()


def test_random_programs():
    summary = fuzz(TINY, programs=12, seed=1, commands=400)
    assert summary.failures == []
    assert summary.missing == []


@pytest.mark.parametrize("constant", ["vector_write", "load_write", "matrix_drain", "store_send", "done"])
def test_a_wrong_cycle_is_found(rtl, constant):
    timing = Timing.of(TINY)
    wrong = Simulator(TINY, replace(timing, **{constant: getattr(timing, constant) + 1}), dram_bytes=DRAM_BYTES)
    wipe_both(wrong, rtl)
    report = cosim(padded(generate(TINY, 3, 40)), wrong, rtl)
    assert report.cycle_differences > 0
    assert report.byte_differences == 0
    assert "expected" in report.text


def test_a_wrong_byte_is_found_and_its_store_named(rtl, model):
    case = gemm()

    class Wrong(Simulator):
        def read_dram(self, address, n):
            data = bytearray(super().read_dram(address, n))
            data[1030] ^= 4
            return bytes(data)

    wrong = Wrong(TINY, dram_bytes=DRAM_BYTES)
    text = cosim(case, wrong, rtl).text
    assert "1 DRAM bytes differ; first at 1030" in text
    assert "written by command 4: store" in text


def test_a_wrong_counter_is_found_and_named(rtl, model):
    case = gemm()

    class Wrong(Simulator):
        def run(self, timing_only=False):
            result = super().run(timing_only)
            return replace(result, dram_bursts=result.dram_bursts | {"load": result.dram_bursts["load"] + 1})

    report = cosim(case, Wrong(TINY, dram_bytes=DRAM_BYTES), rtl)
    count = model_of(case).dram_bursts["load"]
    assert f"launch: load_bursts expected {count + 1}, seen {count}" in report.text
    assert (report.byte_differences, report.cycle_differences, report.counter_differences) == (0, 0, 1)


def model_of(case):
    model = Simulator(TINY, dram_bytes=DRAM_BYTES)
    model.load(case)
    return model.run()


def differing(monkeypatch):
    """The command's answer with a constant wrong on the model's side: exit code 1 and the first difference."""
    timing = Timing.of(TINY)
    wrong = replace(timing, vector_write=timing.vector_write + 1)
    monkeypatch.setattr(
        "gemmule.sim.simulator.Simulator", lambda config, dram_bytes: Simulator(config, wrong, dram_bytes=dram_bytes))
    answer = CliRunner().invoke(app, ["cosim", "gemm", "--shape", "5x6x7", "--config", "tiny"])
    assert answer.exit_code == 1
    assert re.search(r"command \d+ \(vector\): finish expected (\d+), seen (\d+)", answer.output)
    return answer


def test_a_difference_is_told_and_recorded(monkeypatch, tmp_path):
    """What is recorded is that program: the recorder stands in for one whose simulator takes long to build."""
    seen = []

    def record(case, config, *, path):
        assert path is None
        seen.append((case.name, config))
        return waveform.Waveform(tmp_path / "a.fst", tmp_path / "a.gtkw")

    monkeypatch.setattr(waveform, "record_waveform", record)
    assert f"waveform: {tmp_path / 'a.fst'}\nlayout: {tmp_path / 'a.gtkw'}\n" in differing(monkeypatch).output
    assert seen == [("gemm 5x6x7", TINY)]


@pytest.mark.long
def test_a_difference_leaves_a_waveform(monkeypatch, tmp_path):
    """With the device in it."""
    monkeypatch.setattr(waveform, "WAVES", tmp_path / "waves")
    answer = differing(monkeypatch)
    path, layout = tmp_path / "waves" / "tiny-gemm-5x6x7-0.fst", tmp_path / "waves" / "tiny-gemm-5x6x7-0.gtkw"
    assert f"waveform: {path}\nlayout: {layout}\nto open: gtkwave {path} {layout}\n" in answer.output
    assert sorted(path.parent.iterdir()) == [path, layout, path.with_suffix(".json.gz")]
    cycles = int(re.search(r"RTL ([\d,]+);", answer.output)[1].replace(",", ""))
    check_waveform(path, layout, cycles)


@pytest.mark.long
def test_a_hang_leaves_a_waveform(monkeypatch, tmp_path):
    monkeypatch.setattr(waveform, "WAVES", tmp_path)
    monkeypatch.setattr(waveform, "RtlDevice", partial(RtlDevice, watchdog=50))
    made = waveform.record_waveform(gemm(), TINY)
    check_waveform(made.path, made.layout, 50)


def check_waveform(path, layout, cycles):
    """Whole, as long as the launch, and with every signal that the layout shows."""
    data, there = path.read_bytes(), signals_of(path)
    assert int.from_bytes(data[17:25], "big") >= 10_000 * cycles  # the header's end, in ps
    assert len(data) < 1_000_000
    shown = [line for line in layout.read_text().splitlines() if line.startswith("gemmule_tb.")]
    assert {re.sub(r"\[.*", "", name) for name in shown} == {
        f"gemmule_tb.{name}" for group in waveform.GROUPS.values() for name in group}
    for name in shown:
        path, bracket, bits = name.partition("[")
        assert there[path] == bracket + bits


def test_data_survive_random_axi_stalls(rtl, model):
    wipe_both(model, rtl)
    rtl.set_stall(90)
    reports = [cosim(padded(generate(TINY, 50 + seed, 80)), model, rtl) for seed in range(3)]
    rtl.set_stall(0)
    for report in reports:
        assert report.byte_differences == 0, report.text
        assert report.seen.cycles > report.expected.cycles


def test_axi_error_stops_the_program_and_the_next_one_runs(rtl, model):
    case = gemm()
    rtl.set_axi_error(512)
    report = cosim(case, model, rtl)
    assert FAULTS[report.seen.fault] == "axi"
    rtl.set_axi_error(None)
    after = cosim(case, model, rtl)
    assert after.ok, after.text


def test_launches_keep_the_memories_and_follow_the_length_registers(rtl, model):
    from gemmule.isa import Length

    bank = TINY.spm_bank_rows
    move = {"row_stride": 1, "block_stride": 4, "stride": 4, "bytes": 4, "offset": 2048}
    first = Command.make(Unit.LOAD, row=bank, rows=8, **move)
    second = Command.make(Unit.STORE, row=bank, rows=Length(8, 3, 1), **(move | {"offset": 3072}))
    case = gemm()
    for program, length in (([first], 0), ([second], 0), ([second], 5), ([second], 100)):
        lengths = case.lengths.copy()
        lengths[3] = length
        report = cosim(replace(case, image=encode_program(program), lengths=lengths), model, rtl)
        assert report.ok, report.text
        if length:
            rows = min(length - 1, 8)
            assert rtl.read_dram(3072, 4 * rows) == case.dram[2048:2048 + 4 * rows].tobytes()


def test_an_empty_program_is_a_launch_without_effect(rtl, model):
    """The same few cycles on both sides; the program after it is exact."""
    report = cosim(replace(gemm(), image=b""), model, rtl)
    assert report.ok, report.text
    assert 0 < report.seen.cycles < 20
    assert cosim(gemm(), model, rtl).ok


def test_reset_brings_the_device_back(rtl, model):
    case = gemm()
    assert cosim(case, model, rtl).ok
    rtl.reset()
    report = cosim(case, model, rtl)
    assert report.ok, report.text
    assert len(decode_table(case.image)) == 5
