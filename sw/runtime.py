"""A compiled decoder on a device: place it in DRAM, run passes over new rows, keep the accepted ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from gemmule.compiler.commit import CommitProgram
from gemmule.compiler.ir import Rows
from gemmule.compiler.program import NO_DRAM, Program, ReadDram, Registers, Step
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sw.device import Device, DeviceError
from gemmule.sw.ledger import Ledger

__all__ = ["Forward", "LoadedModel", "StepProgram"]


class StepProgram(Protocol):
    """A compiled decoder: one program for passes over 1 .. ``max_rows`` new rows at any position."""

    @property
    def base_address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def max_rows(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def commit(self) -> CommitProgram | None:
        """Keeps a path of a tree in the cache; None: rows must be a chain."""

    def step(self, rows: Rows, wanted: int) -> Step: ...

    def launch(self, name: str, dram: np.ndarray, registers: Registers) -> Launch: ...

    def read_tokens(self, read_dram: ReadDram, wanted: int) -> list[int]: ...


@dataclass(frozen=True)
class Forward:
    """Greedy tokens of the last rows that asked for logits (ties go to the lowest index), and the launches."""

    argmax: list[int]
    results: tuple[Result, ...]


class LoadedModel:
    """One model's program, weights and KV cache on a device.

    The KV cache is contiguous in DRAM: the rows of a pass take the slots from the first one's position on, so a
    rollback is nothing but a smaller position. Of a tree, :meth:`commit` moves the accepted path together.
    """

    def __init__(self, name: str, program: StepProgram, dram: np.ndarray, device: Device) -> None:
        """``dram`` (uint8): what stands in DRAM from the program's ``base_address`` on."""
        self.name = name
        self.program = program
        self.device = device
        self.ledger: Ledger | None = None
        device.write_dram(program.base_address, dram.tobytes())

    def charging(self, ledger: Ledger) -> Self:
        """The same model, whose launches are charged to ``ledger``."""
        made = copy.copy(self)
        made.ledger = ledger
        return made

    def forward(self, rows: Rows, wanted: int | None = None) -> Forward:
        """Run new rows of one sequence, the first right behind the cached ones; a long chain in several launches.

        The last ``wanted`` rows get logits (all by default); a launch without any skips the head.

        Raises:
            DeviceError: the launch ended with a device fault.
            ValueError: the rows do not fit the context or the program.
        """
        program, position = self.program, int(rows.positions[0])
        if position + len(rows) > program.max_positions:
            raise ValueError(
                f"{self.name}: rows {position}..{position + len(rows) - 1} exceed the context of "
                f"{program.max_positions} positions; shorten the prompt or --max-new-tokens"
            )
        wanted = len(rows) if wanted is None else wanted
        greedy: list[int] = []
        results = []
        parts = [rows] if len(rows) <= program.max_rows else [
            Rows.chain(rows.tokens[at:at + program.max_rows].tolist(), position + at)
            for at in range(0, len(rows), program.max_rows)]
        left = len(rows)
        for part in parts:
            left -= len(part)  # rows of later launches
            here = min(len(part), max(0, wanted - left))
            results.append(self._run(program, program.step(part, here)))
            greedy += program.read_tokens(self.device.read_dram, here)
        return Forward(greedy, tuple(results))

    def commit(self, position: int, path: list[int]) -> None:
        """Keep of the rows that the last pass added at ``position`` those of the accepted path, one behind the other.

        Raises:
            DeviceError: the launch ended with a device fault.
        """
        program = self.program.commit
        step = program.step(position, path) if program else None
        if program and step:
            self._run(program, step)

    def _run(self, program: StepProgram | Program, step: Step) -> Result:
        """One launch."""
        for address, content in step.inputs:
            self.device.write_dram(address, content.tobytes())
        self.device.load(program.launch(self.name, NO_DRAM, step.registers))
        result = self.device.run()
        if result.fault:
            raise DeviceError(f"{self.name}: device fault {result.fault} at command {result.fault_index}")
        if self.ledger:
            self.ledger.launch(self.name, result)
        return result
