"""A compiled encoder on devices beside the integer interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, PruningInterpreter, Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.sim.simulator import Simulator

__all__ = ["EncoderBench", "random_rows"]


def random_rows(network: Network, count: int, seed: int = 0) -> Rows:
    """A sequence of random tokens of random types."""
    graph, random = network.graph, np.random.default_rng(seed + count)
    return Rows.chain(random.integers(0, graph.vocab, count).tolist()).typed(random.integers(0, graph.types, count))


class EncoderBench:
    """Runs sequences on the model, and on other devices that must give the same bytes in the same cycles."""

    def __init__(self, program: EncoderProgram, network: Network, *others: Any) -> None:
        self.program, self.network, pruning = program, network, program.pruning
        self.interpreter = PruningInterpreter(network, pruning) if pruning else IntegerInterpreter(network)
        self.devices = [Simulator(program.config, dram_bytes=program.base_address + program.size), *others]
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))

    def run(self, rows: Rows) -> int:
        """One pass; the output, and what layers leave, must be the interpreter's. Returns its cycles."""
        program, step = self.program, self.program.step(rows)
        expected = self.interpreter.forward(rows, Cache(self.network.graph))
        cycles = []
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(program.launch("pass", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            found = program.read_output(device.read_dram, len(rows))
            np.testing.assert_array_equal(found, expected[:len(found)])
            assert len(found) == (1 if self.network.graph.heads else len(expected))
            if isinstance(self.interpreter, PruningInterpreter):
                for kept, wanted in zip(program.kept_rows(device.read_dram, len(rows)), self.interpreter.kept):
                    np.testing.assert_array_equal(kept, wanted)
                if program.heads:
                    for kept, wanted in zip(program.kept_heads(device.read_dram), self.interpreter.kept_heads[0],
                                            strict=True):
                        np.testing.assert_array_equal(kept, wanted)
            cycles.append(int(result.cycles))
        assert len(set(cycles)) == 1, cycles
        if program.pruning:
            return cycles[0]  # which rows are gathered, only data say
        model = Simulator(program.config, dram_bytes=1)
        model.load(program.launch("pass", NO_DRAM, step.registers))
        timed = model.run(timing_only=True, indices=program.gathered(rows))
        assert cycles[0] == timed.cycles
        return cycles[0]
