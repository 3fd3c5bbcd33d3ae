"""Passes of a compiled network on a device beside the integer interpreter, and what they took."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import product
from types import TracebackType
from typing import Any, Self

import numpy as np

from gemmule.compiler.ideal import Ideal, ideal
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, PruningInterpreter, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.nonzero import LISTED
from gemmule.compiler.kernels.virtual import HEAD_WEIGHTS, STATIC, WEIGHTS
from gemmule.compiler.program import NO_DRAM, Program, Registers, Step
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.isa import CONTROL, Command, Unit
from gemmule.resolve import FAULTS
from gemmule.sim.result import Result
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.backends import Device, DeviceError, open_device
from gemmule.sw.device.choosing import top_k_cycles
from gemmule.timing import Timing

__all__ = ["PRUNED", "EncoderPasses", "Passes", "Runs", "checked", "encoding_cycles"]

PRUNED = ("kept_rows_by_layer", "kept_heads_by_layer", "kv_bytes", "kv_bytes_dense", "cycles_dense", "selection_cycles",
          "cycles_with_selection", "topk_cycles", "topk_exposed_cycles", "dropped_probability")
"""Keys of what a schedule does."""


def checked(result: Result) -> Result:
    """What a launch took.

    Raises:
        DeviceError: the device faulted.
    """
    if result.fault:
        raise DeviceError(f"device fault {FAULTS[result.fault]} at command {result.fault_index}")
    return result


class Runs(ABC):
    """Launches of a compiled network on a device, and what they took.

    A context manager: the RTL back end runs a process.
    """

    def __init__(self, program: ModelProgram | EncoderProgram, network: Network, backend: str, seed: int,
                 timing_only: bool, room: int = 0, values: int = 1, below: float = 0.0) -> None:
        """``room``: bytes of DRAM beyond the program's own. ``values``: least probability that meets a value.
        ``below``: largest one of a row that reads lower halves of keys.
        """
        self.network, self.timing_only, self._program = network, timing_only, program
        self._commands = program.commands
        self._weights = {register for register, name in program.bases.items()
                         if name in (WEIGHTS, HEAD_WEIGHTS, LISTED, STATIC)}
        self.random = np.random.default_rng(seed)
        self.device: Device = open_device(backend, program.config, 1 if timing_only else program.size + room)
        self.interpreter, self.equal = IntegerInterpreter(network, values=values, below=below), True
        self.results: list[Result] = []
        self.ideal_bytes = self.macs = 0
        if not timing_only:
            self.device.write_dram(program.base_address, program.fill(network).tobytes())

    def _launch(self, program: ModelProgram | EncoderProgram, rows: Rows, step: Step, needed: Ideal) -> None:
        """One pass.

        Raises:
            DeviceError: the device faulted.
        """
        device = self.device
        if isinstance(device, Simulator) and self.timing_only:
            device.load(program.launch("pass", NO_DRAM, step.registers))
            result = checked(device.run(timing_only=True, indices=program.gathered(rows)))
            if isinstance(program, EncoderProgram) and program.heads:
                result = checked(device.run(timing_only=True, indices=program.gathered(rows),
                                            skipped=program.skipped()[result.places]))
        else:
            result = self.run_program(program, step)
        self.ideal_bytes += needed.bytes
        self.macs += needed.macs
        self.results.append(result)

    def run_program(self, program: Program, step: Step) -> Result:
        """A launch with data, which is none of the passes yet."""
        for address, content in step.inputs:
            self.device.write_dram(address, content.tobytes())
        self.device.load(program.launch("pass", NO_DRAM, step.registers))
        return checked(self.device.run())

    @abstractmethod
    def layers(self) -> list[dict[str, int]]:
        """Cycles of each layer, all passes together."""

    @property
    def cycles(self) -> int:
        return sum(int(result.cycles) for result in self.results)

    @property
    def moved(self) -> dict[str, int]:
        """DRAM bytes of all passes: program, loads, stores."""
        return {name: sum(result.dram_bytes[name] for result in self.results) for name in self.results[0].dram_bytes}

    @property
    def events(self) -> dict[str, int]:
        """What takes energy, in all passes; empty: not known of each."""
        counts = [result.events for result in self.results]
        return {event: sum(one[event] for one in counts) for event in counts[0]} if all(counts) else {}

    def operators(self) -> list[dict[str, Any]]:
        """By operation of a layer, or of none: cycles, those in which its commands ran, bytes of weights.

        ``cycles``: from the end of the operation before to its own, loads aside; they add up to all.
        """
        commands = self._commands
        names = [_operation(command) for command in commands]
        known = list(dict.fromkeys(name for name, command in zip(names, commands) if command.unit != CONTROL))
        number = np.array([known.index(name) if name in known else 0 for name in names])
        units = np.array([int(command.unit) for command in commands])
        fixed = np.array([
            command.fields["bytes"] * command.fields["rows_cap"]
            if command.unit is Unit.LOAD and (
                not command.fields.get("rows_reg", 0) or command.fields.get("base", 0) in self._weights)
            else 0 for command in commands])
        total, empty = np.zeros((4, len(known))), Timing.of(self._program.config).load_zero
        for result in self.results:
            ran = (result.issue >= 0) & (units[result.places] != CONTROL)
            places, took = result.places[ran], (result.finish - result.issue)[ran]
            of, unit = number[places], units[places]
            later = unit != Unit.LOAD
            ends = np.maximum.accumulate(result.finish[ran][later])
            ends[-1:] = result.cycles
            spent = np.diff(ends, prepend=0)
            moves = took > empty  # those of an empty block, and what a predicate skips, do not
            total += [np.bincount(of[chosen], weight, len(known)) for chosen, weight in (
                (later, spent), (unit == Unit.MATRIX, took[unit == Unit.MATRIX]),
                (unit == Unit.VECTOR, took[unit == Unit.VECTOR]), (moves, fixed[places][moves]))]
        rows = total.astype(np.int64).T.tolist()
        keys = ("cycles", "matrix_cycles", "vector_cycles", "weight_bytes")
        return [{"name": name, **dict(zip(keys, row))} for name, row in zip(known, rows, strict=True) if any(row)]

    def record(self) -> dict[str, Any]:
        """What all passes took, for ``--json``."""
        config, program = self._program.config, self._program
        ideal_cycles = roofline_cycles(self.ideal_bytes, config)
        return {
            "passes": len(self.results), "commands": sum(len(result.issue) for result in self.results),
            "program_commands": len(program.commands), "program_bytes": len(program.image), "cycles": self.cycles,
            "milliseconds": self.cycles / config.host.clock_mhz / 1000,
            "utilization": self.macs / (self.cycles * config.dim ** 2), "roofline_cycles": ideal_cycles,
            "roofline_fraction": ideal_cycles / self.cycles, "dram_bytes": sum(self.moved.values()),
            "dram_bytes_by_purpose": self.moved, "layers": self.layers(), "operators": self.operators(),
            "scores": program.scores}

    def pruned(self) -> dict[str, Any]:
        """What leaves by a schedule, and what choosing it costs, for ``--json``: null where there is none."""
        return dict.fromkeys(PRUNED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()


class Passes(Runs):
    """Sequences of random tokens, as many as the program's batch, on one device."""

    def __init__(self, program: ModelProgram, network: Network, backend: str, seed: int, timing_only: bool,
                 room: int = 0, values: int = 1, below: float = 0.0) -> None:
        super().__init__(program, network, backend, seed, timing_only, room, values, below)
        self.program, self.cache = program, Cache(network.graph)
        self.cached = self.position = network.graph.prefix
        """Rows of the cache that the next pass sees, and the position of its first row."""
        self.displacement = 0
        """Bytes from the program's cache to the one that passes see."""

    def fill_cache(self, length: int) -> None:
        """Random keys and values, as if ``length`` tokens of each sequence had been passed."""
        self.cached = self.position = self.network.graph.prefix + length
        self._fill(self.cache, length)

    def _fill(self, cache: Cache, length: int, by: int = 0) -> None:
        """Random rows behind those of a cache, and ``by`` bytes from the same place of the device's."""
        program, first = self.program, cache.length()
        if self.timing_only or not length:
            return
        for sequence, (number, node) in product(range(program.batch), enumerate(self.network.graph.attentions)):
            parts = self.random.integers(-128, 128, (2, length, node.kv_heads, node.head_dim)).astype(np.int8)
            cache.extend(node.name, sequence, *(part.reshape(length, -1) for part in parts))
            begin = program.symbols[CACHE][0] + sequence * program.layout.size + first * program.layout.row + by
            for at, content in program.layout.contents(number, *parts):
                self.device.write_dram(begin + at, content.tobytes())
        cache.advance(Rows.ragged([[0] * length] * program.batch, [first] * program.batch))

    def run(self, rows: int, wanted: int) -> None:
        """One pass of random tokens of each sequence; of the last ``wanted`` rows of each the logits are compared.

        Raises:
            DeviceError: the device faulted.
        """
        program, graph, device = self.program, self.network.graph, self.device
        batch = program.batch
        tokens = Rows.ragged(self.random.integers(0, graph.vocab, (batch, rows)).tolist(), [self.position] * batch)
        registers, inputs = program.step(tokens, wanted, [self.cached] * batch)
        self._launch(program, tokens, Step(self._placed(registers), inputs), ideal(
            graph, rows, self.cached, wanted=wanted, tokens=program.tokens, batch=batch))
        if not self.timing_only:
            expected = self.interpreter.forward(tokens, self.cache).reshape(batch, rows, -1)[:, rows - wanted:]
            if wanted:
                found = program.logits_of(device.read_dram, tokens, wanted if batch == 1 else len(tokens))
                found = found.reshape(batch, -1, graph.vocab)
                self.equal &= bool(np.array_equal(found[:, found.shape[1] - wanted:], expected))
        self.cached += rows
        self.position += rows

    def _placed(self, registers: Registers) -> Registers:
        """Of a pass, with the cache that it sees."""
        return registers.displaced(self.program.symbols[CACHE], self.displacement) if self.displacement else registers

    def layers(self) -> list[dict[str, int]]:
        """Cycles from each layer's first command to the next one's, all passes together."""
        firsts = _layer_starts(self.program.commands)
        found: list[int] = []
        for result in self.results:
            begins = [int(result.issue[i]) for i in np.flatnonzero(np.isin(result.places, firsts))]
            ends = [*begins[1:], int(result.cycles)] if begins else []
            found += [0] * (len(begins) - len(found))
            for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
                found[i] += end - begin
        return [{"layer": i, "cycles": cycles} for i, cycles in enumerate(found)]


class EncoderPasses(Runs):
    """Sequences through an encoder, one after another."""

    output: np.ndarray
    """What the last sequence's rows say, as integers  # [rows that count, columns]."""
    length: int
    """Rows of the last sequence."""
    left: list[int]
    """By layer, those that it left."""

    def __init__(self, program: EncoderProgram, network: Network, backend: str, seed: int, timing_only: bool) -> None:
        super().__init__(program, network, backend, seed, timing_only)
        self.program = program
        if program.pruning:
            self.interpreter = PruningInterpreter(network, program.pruning)

    def run(self, length: int) -> None:
        """A sequence of random tokens and token types; its output is compared.

        Raises:
            DeviceError: the device faulted.
        """
        graph = self.network.graph
        self.run_rows(Rows.chain(self.random.integers(0, graph.vocab, length).tolist()).typed(
            self.random.integers(0, graph.types, length)))

    def run_rows(self, rows: Rows) -> None:
        """One sequence; its output is compared, and kept as :attr:`output`.

        Raises:
            DeviceError: the device faulted.
        """
        program, graph, length = self.program, self.network.graph, len(rows.tokens)
        self.length, self.left = length, program.left_by_layer(length)
        self._launch(program, rows, program.step(rows), ideal(
            graph, length, 0, wanted=0, tokens=False, left=self.left, heads=program.heads_by_layer))
        if not self.timing_only:
            self.output = program.read_output(self.device.read_dram, length)
            expected = self.interpreter.forward(rows, Cache(graph))
            self.equal &= bool(np.array_equal(self.output, expected[:len(self.output)]))
            if isinstance(self.interpreter, PruningInterpreter):
                kept = program.kept_rows(self.device.read_dram, length)
                self.equal &= all(map(np.array_equal, kept, self.interpreter.kept))
                if program.heads:
                    heads = program.kept_heads(self.device.read_dram)
                    self.equal &= all(map(np.array_equal, heads, self.interpreter.kept_heads[0]))

    def pruned(self) -> dict[str, Any]:
        if not self.program.pruning:
            return super().pruned()
        cycles, exposed = top_k_cycles(self.results, self._commands)
        attentions, heads = self.network.graph.attentions, self.program.heads_by_layer
        sizes = [2 * node.kv_heads * node.head_dim for node in attentions]
        there = [2 * count * node.head_dim for count, node in zip([attentions[0].heads, *heads], attentions)]
        return super().pruned() | {
            "kept_rows_by_layer": self.left, "kept_heads_by_layer": heads if self.program.heads else None,
            "cycles_with_selection": self.cycles, "topk_cycles": cycles, "topk_exposed_cycles": exposed,
            "kv_bytes_dense": self.length * sum(sizes),
            "kv_bytes": sum(size * rows for size, rows in zip(there, [self.length, *self.left]))}

    def layers(self) -> list[dict[str, int]]:
        """Cycles from each layer's first product to the next one's, all sequences together."""
        found = np.zeros(self.network.graph.layers, dtype=np.int64)
        for result in self.results:
            begins, before = [], ""
            for place, issue in zip(result.places, result.issue, strict=True):
                if self._commands[place].unit is Unit.MATRIX and issue >= 0:
                    name = _operation(self._commands[place])
                    begins += [int(issue)] if name == "key" and before not in ("key", "value", "query") else []
                    before = name
            found += np.diff([*begins, int(result.cycles)])
        return [{"layer": i, "cycles": int(cycles)} for i, cycles in enumerate(found)]


def encoding_cycles(program: EncoderProgram, network: Network, length: int) -> int:
    """Cycles of a sequence of so many tokens, without data."""
    with EncoderPasses(program, network, "model", 0, True) as passes:
        passes.run(length)
    return passes.cycles


def _operation(command: Command) -> str:
    """The operation that a command is of, by its note: ``3.up: weights`` is of ``up``, an attention's heads are one."""
    name = command.note.partition(":")[0].split()[0] if command.note else "other"
    return name.rpartition(".")[2]


def _layer_starts(commands: tuple[Command, ...]) -> np.ndarray:
    """Places of the first norm of each layer, in a body once."""
    found = [i for i, command in enumerate(commands) if command.unit is Unit.VECTOR and command.note.endswith(": sums")]
    return np.array(found[::2][:max(1, len(found) // 2)], dtype=np.int64)
