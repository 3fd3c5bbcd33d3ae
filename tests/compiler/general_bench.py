"""The general program of a network on devices, pass by pass beside the integer interpreter over the same layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmule import numerics
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, layer_part, residuals
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.numerics.exponential import EXPONENTIAL
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify

__all__ = ["GeneralBench", "exponent_total"]


def exponent_total(logits: np.ndarray, mult: int, shift: int) -> np.ndarray:
    """Sums of 16-bit weights relative to each row's maximum, by the functions of numerics alone."""
    t = numerics.scores(logits.astype(np.int64), mult, shift)
    p = EXPONENTIAL[0](t.max(axis=1, keepdims=True) - t)
    return np.minimum(65535, numerics.rshr(p, 4)).sum(axis=1)


class GeneralBench:
    """Keeps a cache of the interpreter for each range of layers; ``cached`` rows of it are seen."""

    def __init__(self, program: ModelProgram, network: Network, *others: Any) -> None:
        """``others``: more devices (the RTL), which must give the same bytes in the same cycles."""
        assert program.general
        self.program, self.network, self.general = program, network, program.general
        self.names = residuals(network.graph)
        self.caches: dict[tuple[int, int], Cache] = {}
        self.hidden = np.zeros((self.general.slots, network.graph.by_name[self.names[0]].columns), dtype=np.int64)
        self.devices = [Simulator(program.config, dram_bytes=program.base_address + program.size), *others]
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))

    def cache(self, layers: tuple[int, int]) -> Cache:
        """The interpreter's, of these layers."""
        if layers not in self.caches:
            self.caches[layers] = Cache(layer_part(self.network, layers).graph)
        return self.caches[layers]

    def entry(self, rows: Rows) -> np.ndarray:
        """The residual stream before the first layer of the pass, int64 [rows, columns]."""
        found: dict[str, np.ndarray] = {}
        part = layer_part(self.network, (0, 0))
        IntegerInterpreter(part).forward(replace(rows, hidden=None), Cache(part.graph), found.__setitem__)
        value = found[self.names[0]]
        return value if rows.hidden is None else np.where(
            rows.hidden[:, None] >= 0, self.hidden[np.maximum(rows.hidden, 0)], value)

    def forward(self, rows: Rows, layers: tuple[int, int], wanted: Answers) -> int:
        """One pass; every answer must be the interpreter's. Returns its cycles."""
        part, cache = layer_part(self.network, layers), self.cache(layers)
        cached = [cache.length(i) for i in range(self.program.batch)]
        seen: dict[str, np.ndarray] = {}
        logits = IntegerInterpreter(part).forward(rows, cache, seen.__setitem__, {self.names[0]: self.entry(rows)})
        # A fed value is observed as it was computed, so without layers the stream is what was fed.
        stream = seen[self.names[sum(layers)]] if layers[1] else self.entry(rows)
        step, cycles = self.program.general_step(rows, cached, layers, wanted), []
        verify(self.general.image_of(step.registers), self.program.config, step.registers.bases, step.registers.limits,
               step.registers.lengths, self.general.program_address)
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(self.general.launch("pass", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index, result.fault_place)
            cycles.append(int(result.cycles))
            self._compare(device, rows, logits[len(rows) - wanted.rows:] if wanted.rows else logits[:0], stream, wanted)
        if wanted.hidden is not None:
            self.hidden[wanted.hidden + self._slots(rows)] = stream
        assert len(set(cycles)) == 1, cycles
        return cycles[0]

    def _slots(self, rows: Rows) -> np.ndarray:
        return self.program.slots(rows)

    def _compare(self, device: Any, rows: Rows, logits: np.ndarray, stream: np.ndarray, wanted: Answers) -> None:
        read, general, slots = device.read_dram, self.general, self._slots(rows)
        every = self.program.batch * self.program.max_rows if self.program.batch > 1 else wanted.rows
        rows_of = slots[len(rows) - wanted.rows:] if self.program.batch > 1 else np.arange(wanted.rows)
        if wanted.hidden is not None:
            found = general.read_hidden(read, wanted.hidden + slots, stream.shape[1])
            np.testing.assert_array_equal(found, stream)
        if not wanted.rows:
            return
        assert general.read_tokens(read, every)[rows_of].tolist() == logits.argmax(axis=1).tolist()
        if wanted.logits:
            np.testing.assert_array_equal(general.read_logits(read, every)[rows_of], logits)
        if wanted.top:
            order = np.argsort(-logits, axis=1, kind="stable")[:, :general.answers.top]
            top = general.read_top(read, every)[rows_of]
            np.testing.assert_array_equal(top, np.sort(order, axis=1))
        if wanted.scale:
            np.testing.assert_array_equal(general.read_totals(read, every)[rows_of],
                                          exponent_total(logits, *wanted.scale))

    def chain(self, tokens: Sequence[int], layers: tuple[int, int], wanted: Answers) -> int:
        """Tokens behind what is cached of these layers."""
        return self.forward(Rows.chain(tokens, self.cache(layers).length()), layers, wanted)
