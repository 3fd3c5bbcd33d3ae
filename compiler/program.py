"""A compiled program: its image, where everything lies in DRAM, the registers of a launch, and proof that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypedDict

import numpy as np

from gemmule.compiler.kernels.head.ids import HALF_BYTES, PLANE, joined, planes_in, split
from gemmule.compiler.layout import Region, RegionTable
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS, Command, encode_program
from gemmule.sim.launch import Launch
from gemmule.sim.verify.verify import verify

__all__ = ["NO_DRAM", "FixedProgram", "Program", "ReadDram", "Registers", "Standing", "Step"]

ReadDram = Callable[[int, int], bytes | np.ndarray]
"""``read_dram(address, bytes)`` of a device."""
NO_DRAM = np.zeros(0, dtype=np.uint8)
"""DRAM content of a launch that goes on with what the device has, or that is only timed."""


class _Sets(NamedTuple):
    bases: np.ndarray
    limits: np.ndarray
    lengths: np.ndarray


class Registers(_Sets):
    """Base and limit registers (bytes) and length registers of a launch, int64; a tuple of the three."""

    first: tuple[Command, ...] = ()
    """What this launch has in place of the program's first commands: numbers that no register holds."""

    def displaced(self, region: Region, by: int) -> Registers:
        """The same with base registers that stand within a region, (address, bytes), ``by`` bytes further on."""
        inside = (self.bases >= region[0]) & (self.bases < region[0] + region[1]) & (self.limits > 0)
        made = Registers(np.where(inside, self.bases + by, self.bases), self.limits, self.lengths)
        made.first = self.first
        return made


class Step(NamedTuple):
    """A pass of a decoder: its registers, and (address, uint8) of what the host writes before."""

    registers: Registers
    inputs: tuple[tuple[int, np.ndarray], ...] = ()


class Standing(TypedDict):
    """The fields of :class:`Program`, for those that are made of it and of more."""

    config: Config
    image: bytes
    commands: tuple[Command, ...]
    base_address: int
    size: int
    symbols: dict[str, Region]
    bases: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Commands and their image, for DRAM regions that stand from ``base_address`` on."""

    config: Config
    image: bytes
    commands: tuple[Command, ...]
    base_address: int
    size: int
    """Bytes of DRAM from ``base_address`` on."""
    symbols: dict[str, Region]
    """(address, bytes) of every region, among them ``program``."""
    bases: Mapping[int, str]
    """The region of each base register that is the same in every launch."""

    @property
    def program_address(self) -> int:
        return self.symbols["program"][0]

    def place(self, *, lengths: Mapping[int, int], windows: Mapping[int, Region]) -> Registers:
        """Registers of a launch: base registers at their regions, or at (address, bytes) of ``windows``."""
        made = Registers(np.zeros(NUM_BASES, dtype=np.int64), np.zeros(NUM_BASES, dtype=np.int64),
                         np.zeros(NUM_LENGTHS, dtype=np.int64))
        regions = {register: self.symbols[name] for register, name in self.bases.items()}
        for register, window in (regions | dict(windows)).items():
            made.bases[register], made.limits[register] = window
        for register, value in ({0: MAX_LENGTH} | dict(lengths)).items():
            made.lengths[register] = value
        return made

    def launch(self, name: str, dram: np.ndarray, registers: Registers, *, seed: int = 0) -> Launch:
        """One start; ``dram`` (uint8) stands at ``base_address``, with nothing before it."""
        before = np.zeros(self.base_address if dram.size else 0, dtype=np.uint8)
        return Launch(
            name=name, seed=seed, image=self.image_of(registers), program=self.program_address,
            dram=np.concatenate([before, dram]) if before.size else dram, bases=registers.bases,
            limits=registers.limits, lengths=registers.lengths)

    def image_of(self, registers: Registers) -> bytes:
        """The image as a launch has it."""
        first = encode_program(registers.first)
        return first + self.image[len(first):] if first else self.image

    def put(self, dram: np.ndarray, name: str, content: np.ndarray) -> None:
        """Write a region's content (uint8) into ``dram``, the bytes from ``base_address`` on."""
        at = self.symbols[name][0] - self.base_address
        dram[at:at + content.size] = content.reshape(-1)

    def read(self, read_dram: ReadDram, name: str, first: int = 0, size: int | None = None) -> np.ndarray:
        """``size`` bytes of a region from byte ``first`` on (all by default), uint8."""
        address, length = self.symbols[name]
        found = read_dram(address + first, length - first if size is None else size)
        return found if isinstance(found, np.ndarray) else np.frombuffer(found, dtype=np.uint8)

    def read_ids(self, read_dram: ReadDram, name: str, first: int, count: int) -> list[int]:
        """``count`` ids of a region from number ``first`` on."""
        found: list[int] = joined(self.read(read_dram, name, plane * PLANE + HALF_BYTES * first, HALF_BYTES * count)
                                  for plane in range(planes_in(self.symbols[name][1]))).tolist()
        return found

    def id_inputs(self, name: str, values: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """(address, bytes) that put ids into a region from its begin on."""
        address, size = self.symbols[name]
        return [(address + plane * PLANE, part.view(np.uint8))
                for plane, part in enumerate(split(values)[:planes_in(size)])]

    def written(self, commands: Sequence[Command]) -> Self:
        """This program with other commands, as many."""
        return replace(self, commands=tuple(commands), image=encode_program(commands))

    def moved_to(self, table: RegionTable) -> Self:
        """This program with its own regions elsewhere."""
        return replace(self, base_address=table.base_address, size=table.size, symbols=dict(table.symbols))

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold; kinds that are launched say which.

        Raises:
            NotImplementedError: of a kind that is only part of another program.
        """
        raise NotImplementedError(f"{type(self).__name__} has no launches of its own")

    def verified(self, *launches: Registers) -> Self:
        """This program, which has no race and no fault with the registers of these launches: the end of a compilation.

        Raises:
            ProgramError: it has; the compiler is wrong.
        """
        for registers in launches:
            verify(self.image_of(registers), self.config, registers.bases, registers.limits, registers.lengths,
                   self.program_address)
        return self


@dataclass(frozen=True, kw_only=True)
class FixedProgram(Program):
    """A program of which every launch has the same registers."""

    def registers(self) -> Registers:
        """Registers of a launch."""
        return self.place(lengths={}, windows={})

    def extremes(self) -> list[Registers]:
        return [self.registers()]
