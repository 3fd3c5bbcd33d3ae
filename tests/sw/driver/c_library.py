"""The driver in C as a library in this process, its device a stand-in; and programs compiled with the header."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

from gemmule.config import Config
from gemmule.csr import FAULT_SHIFT, IDENTITY, Control, Csr, Status, base_offset, counter_offset, limit_offset
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.verilate import C_FLAGS
from gemmule.sim.simulator import Simulator
from gemmule.sw.driver.bench import DRIVER, FOLDER
from gemmule.sw.driver.header import HEADER_NAME, header_text

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
WAIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MOVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32)
EMIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)


class Port(ctypes.Structure):
    """``struct gemmule_port``."""

    _fields_ = [("target", ctypes.c_void_p), ("read", READ), ("write", WRITE), ("wait", WAIT), ("put", MOVE),
                ("get", MOVE)]


class Device(ctypes.Structure):
    """``struct gemmule``."""

    _fields_ = [("port", ctypes.POINTER(Port)), ("bases", ctypes.c_uint64 * NUM_BASES),
                ("limits", ctypes.c_uint64 * NUM_BASES), ("lengths", ctypes.c_uint32 * NUM_LENGTHS),
                ("program", ctypes.c_uint64), ("commands", ctypes.c_uint32)]


class Fault(ctypes.Structure):
    """``struct gemmule_fault``."""

    _fields_ = [("code", ctypes.c_uint32), ("index", ctypes.c_uint32), ("place", ctypes.c_uint32)]


class Decoder(ctypes.Structure):
    """``struct gemmule_decoder``."""

    _fields_ = [("device", ctypes.POINTER(Device)), ("image", ctypes.c_void_p),
                *((name, ctypes.c_uint32) for name in ("programs", "segments", "ends", "prompt", "words", "cached",
                                                       "launches")), ("cycles", ctypes.c_uint64)]


def compiled(folder: Path, config: Config, source: str) -> Path:
    """A program in C99 with the header and the driver beside it."""
    for name in DRIVER:
        (folder / name).write_bytes((FOLDER / name).read_bytes())
    (folder / HEADER_NAME).write_text(header_text(config))
    (folder / "main.c").write_text(source)
    flags = [flag for flag in C_FLAGS if flag not in ("-ffreestanding", "-O2")]
    subprocess.run(["gcc", *flags, "main.c", "gemmule_driver.c", "-o", "main"], cwd=folder, check=True)
    return folder / "main"


def library(folder: Path, config: Config) -> ctypes.CDLL:
    """The driver, as freestanding C."""
    for name in DRIVER:
        (folder / name).write_bytes((FOLDER / name).read_bytes())
    (folder / HEADER_NAME).write_text(header_text(config))
    sources = [name for name in DRIVER if name.endswith(".c")]
    subprocess.run(["gcc", *C_FLAGS, "-shared", "-fPIC", *sources, "-o", "driver.so"], cwd=folder, check=True)
    found = ctypes.CDLL(str(folder / "driver.so"))
    for name in ("gemmule_cycles", "gemmule_counter"):
        getattr(found, name).restype = ctypes.c_uint64
    for name in ("gemmule_decoder_configuration", "gemmule_decoder_prompt", "gemmule_decoder_text"):
        getattr(found, name).restype = ctypes.c_uint32
    found.gemmule_set_base.argtypes = found.gemmule_set_limit.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64]
    found.gemmule_set_program.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]
    return found


class ModelDevice:
    """The registers of a device whose launches the exact model runs: what the driver sees, access by access.

    Attributes:
        writes: of registers, in order: (offset, value).
        results: of the launches.
        polls: reads of ``STATUS`` that a launch shows it busy for.
    """

    def __init__(self, config: Config, dram_bytes: int, *, polls: int = 0) -> None:
        self.config, self.model, self.polls = config, Simulator(config, dram_bytes=dram_bytes), polls
        self.registers = {int(Csr.IDENTITY): IDENTITY, int(Csr.CONFIGURATION): config.identity}
        self.writes: list[tuple[int, int]] = []
        self.results: list[Result] = []
        self.busy, self.waits, self.interrupt = 0, 0, False
        self._kept = (READ(self._read), WRITE(self._write), WAIT(self._wait), MOVE(self._put), MOVE(self._get))

    def port(self, *, wait: bool) -> Port:
        read, write, waits, put, get = self._kept
        return Port(None, read, write, waits if wait else WAIT(), put, get)

    def _read(self, target: int, offset: int) -> int:
        if offset == Csr.STATUS and self.busy:
            self.busy -= 1
            return int(Status.BUSY)
        return self.registers.get(offset, 0)

    def _write(self, target: int, offset: int, value: int) -> None:
        self.writes.append((offset, value))
        if offset == Csr.CONTROL and value == Control.START:
            self._start()
        elif offset == Csr.IRQ_CLEAR:
            self.interrupt = False
        else:
            self.registers[offset] = value

    def _wait(self, target: int) -> None:
        assert self.interrupt, "waits for an interrupt that does not come"
        self.waits, self.busy = self.waits + 1, 0

    def _wide(self, offset: int) -> int:
        return self.registers.get(offset, 0) | self.registers.get(offset + 4, 0) << 32

    def _start(self) -> None:
        address, commands = self._wide(Csr.PROGRAM_LO), self.registers[Csr.PROGRAM_COMMANDS]
        image = self.model.read_dram(address, COMMAND_BYTES * commands)
        self.model.load(Launch(
            name="driver", seed=0, image=image, program=address, dram=self.model.memory.dram[:0],
            bases=[self._wide(base_offset(i)) for i in range(NUM_BASES)],
            limits=[self._wide(limit_offset(i)) for i in range(NUM_BASES)],
            lengths=[self.registers.get(Csr.LENGTH0 + 4 * i, 0) for i in range(NUM_LENGTHS)]))
        result = self.model.run()
        self.results.append(result)
        self.registers |= {
            int(Csr.STATUS): Status.DONE | result.fault << FAULT_SHIFT, int(Csr.CYCLES): result.cycles,
            int(Csr.FAULT_INDEX): max(result.fault_index, 0), int(Csr.FAULT_PLACE): max(result.fault_place, 0)}
        for name, value in result.registers.items():
            self.registers |= {counter_offset(name): value & 0xFFFFFFFF, counter_offset(name) + 4: value >> 32}
        self.busy, self.interrupt = self.polls, True

    def _put(self, target: int, address: int, source: int, count: int) -> None:
        self.model.write_dram(address, ctypes.string_at(source, count))

    def _get(self, target: int, address: int, to: int, count: int) -> None:
        ctypes.memmove(to, self.model.read_dram(address, count), count)


def opened(driver: ctypes.CDLL, device: ModelDevice, port: Port) -> Device:
    """The driver's device, once it has been opened."""
    made = Device()
    assert driver.gemmule_open(ctypes.byref(made), ctypes.byref(port), device.config.identity) == 0
    return made


def generated(driver: ctypes.CDLL, device: Device, image: bytes, most: int, *,
              seen: Callable[[int], None] = lambda token: None) -> tuple[list[int], Decoder]:
    """Tokens behind the image's own prompt."""
    decoder = Decoder()
    assert driver.gemmule_decoder_open(ctypes.byref(decoder), ctypes.byref(device), image, len(image)) == 0
    driver.gemmule_decoder_place(ctypes.byref(decoder))
    count = driver.gemmule_decoder_prompt(ctypes.byref(decoder), None, 0)
    prompt, tokens = (ctypes.c_uint32 * count)(), (ctypes.c_uint32 * most)()
    assert driver.gemmule_decoder_prompt(ctypes.byref(decoder), prompt, count) == count
    made = driver.gemmule_decoder_generate(ctypes.byref(decoder), prompt, count, tokens, most,
                                           EMIT(lambda target, token: seen(token)), None)
    assert made > 0, made
    return list(tokens[:made]), decoder
