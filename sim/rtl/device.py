"""The generated Verilog as a device: the same surface as the model, run under Verilator.

One simulator process lives as long as the object. Memory moves through files between its own
folder and the testbench's DRAM, launches are one request each; see ``sim/rtl/server.py``.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gemmule.config import Config
from gemmule.csr import (
    COUNTERS,
    FAULT_BITS,
    FAULT_SHIFT,
    Control,
    Csr,
    base_offset,
    counter_offset,
    length_offset,
    limit_offset,
)
from gemmule.io.progress import say
from gemmule.isa import NUM_BASES, NUM_LENGTHS, TABLE_FIELDS, Unit, decode_table
from gemmule.resolve import FAULTS, check_program, check_registers
from gemmule.sim.energy.count import count_events
from gemmule.sim.errors import SimulationError
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result, split_counters
from gemmule.sim.rtl.build import Build, discard
from gemmule.sim.rtl.process import SimulatorDeathError, SimulatorProcess
from gemmule.sim.rtl.testbench import build_testbench
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sim.stream import Stream, Streams
from gemmule.timing import Timing

__all__ = ["CHANNELS", "Order", "RtlDevice", "RtlError"]

PROTOCOL = {
    0: "DRAM queue overflow", 1: "wrong wlast", 2: "W beat before its AW",
    3: "start with traffic outstanding", 4: "host file", 8: "burst crosses 4 KiB",
    9: "burst size or type", 10: "valid or payload not held", 11: "R beat not taken",
    12: "response not taken", 13: "burst crosses a DRAM row",
    14: "access to a bank whose port its stream does not hold",
}


CHANNELS = ("ar", "r", "aw", "w", "b")
"""Channels of AXI, in the order of the testbench's bits."""


class Order(enum.IntEnum):
    """When the memory takes a write's data: with their address or later, at any time, or all of them before it."""

    ADDRESS_FIRST = 0
    ANY = 1
    DATA_FIRST = 2


_PREDICATE = TABLE_FIELDS.index("predicate")
REPORT = (Csr.CYCLES, Csr.CYCLES_HI, Csr.STATUS, Csr.FAULT_INDEX, Csr.FAULT_PLACE) + tuple(
    counter_offset(name) + half for name in COUNTERS for half in (0, 4))
"""Registers that are read after a launch."""


ROOM = 64 << 10
"""Free bytes below which the files of a run may be cut off."""
START_SECONDS = 120


class RtlError(SimulationError):
    """The simulator failed, the device hung, or it broke a rule of AXI or of its claims."""


class ForeignError(RtlError):
    """The simulator cannot run on this machine, as one that was built on another."""


class RtlDevice:
    """The RTL under Verilator.

    Parameters
    ----------
    config, timing:
        The instance; the Verilog is generated (and cached) from them unless ``verilog`` is given.
    waves:
        Trace every signal into ``dump.fst`` in the simulator's folder (slow); it is whole once the device is closed.
    dram_bytes:
        Size of the testbench's DRAM.
    watchdog:
        Cycles after which a launch counts as hung.
    verilog, arguments:
        A file with module ``gemmule``, and arguments of the simulator; for tests of the testbench itself.
    train:
        Something typical to run on a first build of the simulator; the second one, compiled for what that did, is
        faster. It takes twice as long to build: for long runs. A finished build serves whatever ``train`` comes later.
    gated:
        What cannot change in a cycle does not run (:mod:`gemmule.sim.rtl.activity`); nothing else depends on it.
    """

    def __init__(self, config: Config, timing: Timing | None = None, *, waves: bool = False,
                 dram_bytes: int = 64 << 20, watchdog: int = 200_000_000,
                 verilog: Path | None = None, train: Callable[[RtlDevice], None] | None = None,
                 arguments: Sequence[str] = (), gated: bool = True) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        self.dram_bytes = dram_bytes
        self.watchdog = watchdog
        self._arguments = tuple(arguments)
        if verilog is None:
            verilog = verilog_path(config, self.timing)
        counting = partial(self._count, train) if train else None
        simulator = partial(build_testbench, config, verilog, dram_bytes=dram_bytes, waves=waves, train=counting,
                            gated=gated)
        self._open(simulator())
        try:
            self._greet()
        except ForeignError as error:
            say(f"{error}: building it again")
            discard(self.build)
            self._open(simulator())
            self._greet()

    def _count(self, train: Callable[[RtlDevice], None], found: Build) -> None:
        """Run ``train`` on a build of its own, which writes what it counted when it stops."""
        self._open(found)
        self._greet()
        try:
            train(self)
        finally:
            self.close()

    def _open(self, found: Build) -> None:
        """Start a simulator in a state of its own."""
        self.build = found
        self.bases = np.zeros(NUM_BASES, dtype=np.int64)
        self.limits = np.zeros(NUM_BASES, dtype=np.int64)
        self.lengths = np.zeros(NUM_LENGTHS, dtype=np.int64)
        self._written: dict[int, int] = {}
        self._program: tuple[int, np.ndarray] = (0, decode_table(b""))
        self._streams = Streams(self.config, self.timing)
        self._stream: Stream | None = None
        self._image: bytes | None = None
        words = self.dram_bytes // self.config.bus_bytes
        arguments = [f"+dram_words={words}", *self._arguments, *(["--trace"] if found.waves else [])]
        with self._files():
            self._run = SimulatorProcess(found, arguments)
        self.folder = self._run.folder

    def _greet(self) -> None:
        """Wait until the simulator speaks."""
        try:
            self._run.receive(START_SECONDS)
        except SimulatorDeathError as error:
            kind = ForeignError if self._run.foreign else RtlError
            self._fail(f"the simulator {self.build.executable} did not start ({error})", kind)

    @contextlib.contextmanager
    def _files(self) -> Iterator[None]:
        """What goes wrong with the files between device and simulator in this block becomes an :class:`RtlError`."""
        try:
            yield
        except OSError as error:
            raise RtlError(
                f"rtl {self.config.name}: the temporary folder must have free space and be writable, not "
                f"{error.filename or tempfile.gettempdir()!r} ({error.strerror or error}); name another in TMPDIR",
            ) from None

    def _fail(self, message: str, kind: type[RtlError] = RtlError) -> NoReturn:
        """Stop the simulator, keep its log, raise."""
        room = shutil.disk_usage(self.folder).free
        text = self._run.abandon(f"rtl-{self.config.name}")
        if room < ROOM:
            message += f", and no space is left in {self.folder.parent}; name another folder in TMPDIR"
        raise kind(f"rtl {self.config.name}: {message}; {text}") from None

    def _request(self, kind: str, **arguments: Any) -> Any:
        if self._run.closed:
            raise RtlError(f"rtl {self.config.name}: the simulator is closed")
        try:
            self._run.send({"kind": kind, **arguments})
            status, value = self._run.receive()
        except SimulatorDeathError as error:
            self._fail(f"the simulator died ({error})")
        if status == "error":
            self._fail(value)
        if shutil.disk_usage(self.folder).free < ROOM:
            self._fail("the files of the simulator are not whole")
        return value

    def close(self) -> None:
        """Stop the simulator and remove its folder (waveforms are kept)."""
        self._run.close()

    def __enter__(self) -> RtlDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Memory ------------------------------------------------------------------------------------

    def _span(self, address: int, size: int) -> tuple[int, int]:
        """Whole bus words that cover ``size`` bytes: first word, count."""
        if address < 0 or address + size > self.dram_bytes:
            raise RtlError(
                f"rtl {self.config.name}: DRAM address must stay below {self.dram_bytes}, not "
                f"{address} + {size}; pass a larger dram_bytes")
        bus = self.config.bus_bytes
        first = address // bus
        return first, -(-(address + size) // bus) - first

    def read_dram(self, address: int, n: int) -> bytes:
        if n == 0:
            return b""
        first, count = self._span(address, n)
        self._request("host", op=2, word=first, count=count)
        bus = self.config.bus_bytes
        pieces = max(bus, 4)  # a narrower word is written as one 32-bit piece
        with self._files():
            data = np.fromfile(self.folder / "out.bin", dtype=np.uint8)
        if len(data) != count * pieces:
            self._fail(f"the simulator wrote {len(data)} bytes of DRAM instead of {count * pieces}")
        data = data.reshape(count, pieces)[:, :bus]
        return data.tobytes()[address - first * bus:][:n]

    def write_dram(self, address: int, data: bytes | bytearray | memoryview | np.ndarray) -> None:
        payload = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
        if not payload:
            return
        bus = self.config.bus_bytes
        first, count = self._span(address, len(payload))
        head = address - first * bus
        tail = count * bus - head - len(payload)
        if head:
            payload = self.read_dram(first * bus, head) + payload
        if tail:
            payload += self.read_dram((first + count) * bus - tail, tail)
        words = np.frombuffer(payload, dtype=np.uint8).reshape(count, bus)
        with self._files():
            words[:, ::-1].tofile(self.folder / "in.bin")
        self._request("host", op=1, word=first, count=count)

    @property
    def memory(self) -> RtlDevice:
        """The DRAM by the model's names: ``device.memory.read`` and ``device.memory.write``."""
        return self

    def read(self, address: int, size: int) -> np.ndarray:
        return np.frombuffer(self.read_dram(address, size), dtype=np.uint8).copy()

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        self.write_dram(address, data)

    # Launches ----------------------------------------------------------------------------------

    def load(self, launch: Launch) -> None:
        """Take over a launch: DRAM content, registers, program."""
        self.write_dram(0, launch.dram)
        self.bases[:], self.limits[:], self.lengths[:] = launch.bases, launch.limits, launch.lengths
        self.load_program(launch.image, launch.program)

    def load_program(self, image: bytes, address: int) -> None:
        """Write a program image, which may be empty, and choose it for the next runs; as the model's."""
        check_program(self.config, address, len(image))
        self.write_dram(address, image)
        self._program = (address, decode_table(bytes(image)))
        self._image = image

    def set_stall(self, chance: int, channels: Sequence[str] = CHANNELS, order: Order = Order.ADDRESS_FIRST) -> None:
        """Random AXI stalls of ``channels``, ``chance`` in 256 (255: no answer at all), and the order in which the
        memory takes the address and the data of a write; cycles no longer follow the timing contract.
        """
        self._request("set", values={"stall": chance, "order": int(order),
                                     "stall_channels": sum(1 << CHANNELS.index(name) for name in channels)})

    def write_register(self, offset: int, value: int, strobe: int = 0xF) -> None:
        """Write one register of ``gemmule/csr.py``, for tests and benches; a launch writes its own parameters."""
        self._written.pop(int(offset), None)
        self._request("csr", writes=[(int(offset), int(value), strobe)], reads=[])

    def read_register(self, offset: int) -> int:
        """Read one register; while a program runs, it goes on for the few cycles that this takes."""
        return int(self._request("csr", writes=[], reads=[int(offset)])[0])

    def steps(self, steps: Sequence[tuple[str | int, ...]]) -> list[int]:
        """Many small steps at once: ("write", offset, value), ("read", offset), ("wait", cycles); what was read."""
        self._written.clear()
        every = [(str(what), *map(int, values)) for what, *values in steps]
        answers = self._request("steps", steps=every)
        return [int(answer) for (what, *_), answer in zip(every, answers, strict=True) if what == "read"]

    def access_paused(self, accesses: Sequence[tuple[bool, int, int, int]], seed: int) -> list[int]:
        """Accesses (write, offset, value, strobe) of a host that pauses on every channel; what it was answered."""
        self._written.clear()
        return list(self._request("paused", accesses=[tuple(map(int, access)) for access in accesses], seed=seed))

    def set_axi_error(self, address: int | None, beat: bool = False) -> None:
        """Bursts that touch this DRAM address answer SLVERR, or with ``beat`` that beat of a read burst alone; None:
        no errors.
        """
        self._request("set", values={
            "error_enable": int(address is not None), "error_beat": int(beat),
            "error_word": (address or 0) // self.config.bus_bytes})

    def processor_seconds(self) -> float:
        """Processor time that the simulator has taken so far; unlike the clock's, little of it is other programs'."""
        return float(self._request("seconds"))

    def set_bus_reset(self, on: bool) -> None:
        """Reset of the memory's side of the bus alone, for as long as it is on; DRAM keeps its contents."""
        self._request("set", values={"bus_rst": int(on)})

    def reset(self) -> None:
        """Hardware reset of device and testbench; DRAM keeps its contents."""
        self._request("reset")
        self._written.clear()

    def _registers(self) -> dict[int, int]:
        address, table = self._program
        wanted = {
            int(Csr.PROGRAM_LO): address & 0xFFFFFFFF, int(Csr.PROGRAM_HI): address >> 32,
            int(Csr.PROGRAM_COMMANDS): len(table),
        }
        for i in range(1, NUM_LENGTHS):
            wanted[length_offset(i)] = int(self.lengths[i])
        for offset, values in ((base_offset, self.bases), (limit_offset, self.limits)):
            for i in range(NUM_BASES):
                wanted[offset(i)] = int(values[i]) & 0xFFFFFFFF
                wanted[offset(i) + 4] = int(values[i]) >> 32
        return wanted

    def _changed(self) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """All launch parameters, and the writes that they take."""
        if self._image is None:
            raise RtlError("no program is loaded; call load_program first")
        check_registers(self.config, self.bases, self.limits, self.lengths)
        wanted = self._registers()
        self._stream = self._streams.follow(self._program[1], self.bases, self.limits, self.lengths)
        return wanted, [(at, value) for at, value in wanted.items() if self._written.get(at) != value]

    def start(self) -> None:
        """Launch the loaded program and return at once: simulated time stands still until the next request."""
        wanted, writes = self._changed()
        self._request("csr", writes=[*writes, (int(Csr.CONTROL), int(Control.START))], reads=[])
        self._written = wanted

    def wait(self, cycles: int = 0) -> bool:
        """Let so many cycles pass; whether the interrupt is high then."""
        return bool(self._request("wait", cycles=cycles))

    def run(self, during: Sequence[tuple[int, int, int]] = ()) -> Result:
        """Launch the loaded program and wait for the interrupt; cycles and counters are the device's own.

        Parameters
        ----------
        during: register writes while it runs, for tests: (cycles to wait, offset, value).

        Raises:
            RtlError: watchdog, AXI protocol violation, or the simulator died.
        """
        wanted, writes = self._changed()
        answer = self._request(
            "launch", writes=writes, start=(int(Csr.CONTROL), int(Control.START)),
            during=[tuple(map(int, each)) for each in during], **self._after())
        self._written = wanted
        return self._result(answer)

    def finish(self) -> Result:
        """Wait for the interrupt of a program that was started; as :meth:`run`."""
        return self._result(self._request("finish", **self._after()))

    def _after(self) -> dict[str, Any]:
        """What follows a start: registers to read and to write, and how long to wait."""
        return {"reads": [int(offset) for offset in REPORT], "after": [(int(Csr.IRQ_CLEAR), 1)],
                "watchdog": self.watchdog}

    def _result(self, answer: dict[str, Any]) -> Result:
        """What a launch reports, from the simulator's answer."""
        issue, finish = self._events()
        if answer["timeout"]:
            done = int((finish >= 0).sum())
            self._fail(f"no interrupt after {self.watchdog} cycles; {done} of {len(finish)} commands done")
        if answer["protocol"]:
            names = [text for bit, text in PROTOCOL.items() if answer["protocol"] >> bit & 1]
            self._fail(f"protocol error: {', '.join(names)}")
        low, high, status, index, place, *words = answer["values"]
        fault = status >> FAULT_SHIFT & (1 << FAULT_BITS) - 1
        if fault >= len(FAULTS):
            self._fail(f"there is no fault {fault}, which the status register names")
        counters, size, bursts = split_counters([a | b << 32 for a, b in zip(words[::2], words[1::2])])
        assert self._stream is not None, "a launch goes before its answer"
        cycles = low | high << 32
        return Result(cycles=cycles, issue=issue, finish=finish, units=self._stream.units,
                      places=self._stream.places, counters=counters, dram_bytes=size, dram_bursts=bursts,
                      events=self._energy_events(self._stream, cycles, size), fault=fault,
                      fault_index=index if fault else -1, fault_place=place if fault else -1)

    def _energy_events(self, stream: Stream, cycles: int, dram_bytes: dict[str, int]) -> dict[str, int]:
        """Unknown where a command has a predicate: whether it did anything, only the data tell."""
        good = stream.good
        if stream.table[stream.places[:good], _PREDICATE].any():
            return {}
        return count_events(stream.table, stream.places[:good], stream.resolved[:good], np.zeros(good, dtype=bool),
                            self.config, cycles, dram_bytes)

    def _events(self) -> tuple[np.ndarray, np.ndarray]:
        """Issue and finish cycle per command, -1 where the log has none."""
        assert self._stream is not None, "a launch goes before its events"
        units = self._stream.units
        issue = np.full(len(units), -1, dtype=np.int64)
        finish = np.full(len(units), -1, dtype=np.int64)
        path = self.folder / "log.bin"
        raw = np.fromfile(path, dtype="<u4") if path.is_file() else np.zeros(0, dtype="<u4")
        cycles, bits = raw[0::2].astype(np.int64), raw[1::2]
        for unit in Unit:
            commands = np.flatnonzero(units == unit)
            for out, shift in ((issue, 0), (finish, len(Unit))):
                when = cycles[(bits >> (shift + unit) & 1).astype(bool)]
                if len(when) > len(commands):
                    self._fail(f"{unit.label} issued or finished more commands than the program has")
                out[commands[:len(when)]] = when
        return issue, finish
