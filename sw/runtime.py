"""A compiled decoder on a device: place it in DRAM, run passes over new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gemmule.compiler.program import NO_DRAM, ReadDram, Registers, Step
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sw.device import Device, DeviceError

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

    def step(self, tokens: Sequence[int], position: int, wanted: int) -> Step: ...

    def launch(self, name: str, dram: np.ndarray, registers: Registers) -> Launch: ...

    def read_tokens(self, read_dram: ReadDram, wanted: int) -> list[int]: ...


@dataclass(frozen=True)
class Forward:
    """Greedy tokens of the last rows that asked for logits (ties go to the lowest index), and the launches."""

    argmax: list[int]
    results: tuple[Result, ...]


class LoadedModel:
    """One model's program, weights and KV cache on a device.

    The KV cache is contiguous in DRAM: a pass over rows at ``position`` overwrites the slots from
    there on, so a rollback is nothing but a smaller position.
    """

    def __init__(self, name: str, program: StepProgram, dram: np.ndarray, device: Device) -> None:
        """``dram`` (uint8): what stands in DRAM from the program's ``base_address`` on."""
        self.name = name
        self.program = program
        self.device = device
        device.write_dram(program.base_address, dram.tobytes())

    def forward(self, tokens: list[int], position: int, logit_rows: int | None = None) -> Forward:
        """Run ``tokens`` as rows position, position + 1, ...; at most ``max_rows`` in one launch.

        The last ``logit_rows`` rows get logits (all by default); a launch without any skips the head.

        Raises:
            DeviceError: the launch ended with a device fault.
            ValueError: the rows do not fit the context.
        """
        program, device = self.program, self.device
        if position + len(tokens) > program.max_positions:
            raise ValueError(
                f"{self.name}: rows {position}..{position + len(tokens) - 1} exceed the context of "
                f"{program.max_positions} positions; shorten the prompt or --max-new-tokens"
            )
        wanted = len(tokens) if logit_rows is None else logit_rows
        greedy: list[int] = []
        results = []
        for start in range(0, len(tokens), program.max_rows):
            rows = tokens[start:start + program.max_rows]
            left = len(tokens) - start - len(rows)  # rows of later launches
            here = min(len(rows), max(0, wanted - left))
            step = program.step(rows, position + start, here)
            for address, content in step.inputs:
                device.write_dram(address, content.tobytes())
            device.load(program.launch(self.name, NO_DRAM, step.registers))
            result = device.run()
            if result.fault:
                raise DeviceError(
                    f"{self.name}: device fault {result.fault} at command {result.fault_index}")
            greedy += program.read_tokens(device.read_dram, here)
            results.append(result)
        return Forward(greedy, tuple(results))
