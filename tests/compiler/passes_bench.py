"""A compiled network on a device, pass by pass beside the integer interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.sim.simulator import Simulator

__all__ = ["Bench"]


class Bench:
    """Keeps a device's cache and the interpreter's alike."""

    def __init__(self, program: ModelProgram, network: Network, *others: Any) -> None:
        """``others``: more devices (the RTL), which must give the same bytes in the same cycles."""
        self.program, self.network = program, network
        self.loaded = 0
        """Bytes that the last pass loaded."""
        self.stored = 0
        """And those that it stored."""
        self.interpreter, self.cache = IntegerInterpreter(network), Cache(network.graph)
        self.devices = [Simulator(program.config, dram_bytes=program.base_address + program.size), *others]
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))

    def forward(self, rows: Rows, wanted: int | None = None, places: np.ndarray | None = None) -> int:
        """One pass; its answers must be the interpreter's. Returns its cycles."""
        program, count = self.program, len(rows) if wanted is None else wanted
        step, cycles = program.step(rows, count, places=places), []
        expected = self.interpreter.forward(rows, self.cache)[len(rows) - count:]
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(program.launch("pass", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            cycles.append(result.cycles)
            self.loaded, self.stored = (int(result.dram_bytes[name]) for name in ("load", "store"))
            if program.tokens:
                best = np.argmax(expected, axis=1).tolist() if count else []
                assert program.tokens_of(device.read_dram, rows, count) == best
            elif count:
                np.testing.assert_array_equal(program.logits_of(device.read_dram, rows, count), expected)
        assert len(set(cycles)) == 1, cycles
        return int(cycles[0])

    def fill_cache(self, length: int, seed: int, sequence: int = 0) -> None:
        """Random keys and values, as if ``length`` tokens of a sequence had been passed behind what is cached."""
        random, program, graph = np.random.default_rng(seed), self.program, self.network.graph
        layout, first = program.layout, self.cache.length(sequence)
        begin = program.symbols["cache"][0] + sequence * layout.size + first * layout.row
        for number, node in enumerate(graph.attentions):
            parts = random.integers(-128, 128, (2, length, node.kv_heads, node.head_dim)).astype(np.int8)
            self.cache.extend(node.name, sequence, *(part.reshape(length, -1) for part in parts))
            for at, content in layout.contents(number, *parts):
                for device in self.devices:
                    device.write_dram(begin + at, content)
        self.cache.advance(replace(Rows.chain([0] * length, first), sequences=np.full(length, sequence)))

    def ragged(self, tokens: Sequence[Sequence[int]], wanted: int | None = None) -> int:
        """Tokens of each sequence of a batch behind what is cached of it."""
        return self.forward(Rows.ragged(tokens, [self.cache.length(i) for i in range(len(tokens))]), wanted)

    def keep(self, sequence: int, position: int, path: Sequence[int]) -> None:
        """Of the rows that the last pass added to a sequence at ``position`` those of a path."""
        step = self.program.commit.step(position, path, sequence)
        for device in self.devices if step else ():
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(self.program.commit.launch("keep", NO_DRAM, step.registers))
            assert device.run().fault == 0
        self.cache.keep([*range(position), *(position + row for row in path)], sequence)

    def chain(self, tokens: Sequence[int], wanted: int | None = None) -> int:
        """Tokens behind what is cached."""
        return self.forward(Rows.chain(tokens, self.cache.length()), wanted)
