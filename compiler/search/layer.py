"""The mapping of an encoder's layer by branch and bound: each fused phase's optimum, certified on the exact simulator.

A phase (attention; the MLP with its activation, residual and norm; ...) is compiled and timed as a program by itself,
its rows from DRAM and back. Phases of a layer stand behind one another, so the best mapping of each makes the layer's;
:func:`layer_cost` times that as one program, and :func:`layer_bound` is what no layer can be faster than, whatever
its mapping, so that the two tell how far from the optimum it can be at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from gemmule.compiler.ir import Network
from gemmule.compiler.mapping import branch_and_bound
from gemmule.compiler.mapping.bus import byte_cycles, refreshed
from gemmule.compiler.mapping.found import found_before
from gemmule.compiler.mapping.mapper import Found, Mapper, Search
from gemmule.compiler.mapping.phase_bound import BUS, MESH
from gemmule.compiler.mapping.phase_space import AttentionSpace, BlockSpace, phase_spaces
from gemmule.compiler.passes.encoder.fuse import split_operators
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.program import NO_DRAM, Program, Registers
from gemmule.compiler.programs.encoder import compile_layer, compile_phase, map_encoder
from gemmule.config import Config
from gemmule.sim.simulator import Simulator

__all__ = ["explained", "layer_bound", "layer_cost", "layer_mapping", "layer_spaces", "phase_cost", "search_layer"]

NEAREST = 3
"""Losers that are told one by one."""


class _PhaseCost:
    """Cycles of a phase's mappings, timing only."""

    def __init__(self, network: Network, config: Config, name: str, sequence: int) -> None:
        self.network, self.config, self.name, self.sequence = network, config, name, sequence
        self.simulator = Simulator(config, dram_bytes=1)

    def __call__(self, mapping: Any) -> int:
        program, registers = compile_phase(self.network, self.config, self.name, mapping, sequence=self.sequence)
        return _cycles(self.simulator, program, registers)


def _cycles(simulator: Simulator, program: Program, registers: Registers) -> int:
    simulator.load(program.launch("cost", NO_DRAM, registers))
    return int(simulator.run(timing_only=True).cycles)


def phase_cost(network: Network, config: Config, name: str, sequence: int) -> _PhaseCost:
    """What a mapping of a phase costs: cycles from DRAM and back; CompileError where it does not fit."""
    return _PhaseCost(network, config, name, sequence)


def layer_spaces(network: Network, config: Config, sequence: int) -> dict[str, BlockSpace | AttentionSpace]:
    """Spaces of a layer's phases by name, in order; each begins with what compilation takes by itself.

    Raises:
        CompileError: a phase does not fit, or the network is no encoder.
    """
    operators = split_operators(fuse(network.graph))
    return phase_spaces(operators.layers[0], config, sequence, vars(map_encoder(network, config, operators, sequence)))


def search_layer(network: Network, config: Config, sequence: int, most: int | None = None, *,
                 search: Search[Any] = branch_and_bound.search, kept: bool = True) -> dict[str, Found[Any]]:
    """The best mapping of each phase of a layer for sequences of ``sequence`` rows; never worse than the first.

    ``most``: mappings of a phase to simulate at most. ``kept``: from the cache folder, where it has been searched.

    Raises:
        CompileError: as of :func:`layer_spaces`.
    """
    name = hashlib.sha256(network.graph.model_dump_json().encode()).hexdigest()
    found = {}
    for phase, space in layer_spaces(network, config, sequence).items():
        mapper = Mapper[Any](space, phase_cost(network, config, phase, sequence))

        def find(mapper: Mapper[Any] = mapper) -> Found[Any]:
            made = mapper.find(search, most)
            assert made is not None  # the first one fits, or it would have raised
            return made

        key = (name, phase, sequence, most, search.__module__)
        found[phase] = found_before(config, key, type(space.begin), find) if kept else find()
    return found


def layer_mapping(found: Mapping[str, Found[Any]], sequence: int) -> EncoderMapping:
    """Of what was found."""
    return EncoderMapping(sequence=sequence, **{phase: part.best for phase, part in found.items()})


def layer_cost(network: Network, config: Config, mapping: EncoderMapping) -> int:
    """Cycles of a layer from DRAM and back, timing only: what phases overlap at their borders included."""
    return _cycles(Simulator(config, dram_bytes=1), *compile_layer(network, config, mapping))


def layer_bound(spaces: Mapping[str, BlockSpace | AttentionSpace]) -> tuple[str, int]:
    """(for what, cycles) of a layer at least, whatever the mappings of its phases and their overlap at borders.

    All phases' tiles stream through one mesh, one behind the other, after a first read; all their bytes over one bus.
    """
    config = next(iter(spaces.values())).config
    mesh, moved = (sum(parts) for parts in zip(*(space.least_work for space in spaces.values()), strict=True))
    latency = config.dram.latency
    cycles, reason = max((latency + mesh, MESH), (refreshed(config, latency + byte_cycles(config) * moved), BUS))
    return reason, int(cycles)


def explained(found: Mapping[str, Found[Any]], spaces: Mapping[str, BlockSpace | AttentionSpace]) -> Iterator[str]:
    """Phase by phase what was tried, what was cut by which bound, what won and why the rest lost, for people."""
    for phase, part in found.items():
        space, costed = spaces[phase], [trial for trial in part.trials if trial.cycles is not None]
        cut = ", ".join(f"{count} by {reason}" for reason, count in part.cut.items() if count) or "none"
        yield (f"{phase}: simulated {len(costed)} mappings, {len(part.trials) - len(costed)} did not fit, cut {cut}: "
               f"{'the optimum' if part.certified else 'others were not looked at'}, in {part.seconds:.2g} s")
        yield (f"  {part.cycles:,} cycles, {(part.first_cycles or part.cycles) / part.cycles - 1:.2%} fewer than the "
               f"first that fits; no mapping takes less than {space.least_bound:,}: {_told(part.best)}")
        losers = sorted((trial for trial in costed if trial.point != part.best), key=lambda trial: trial.cycles or 0)
        for trial in losers[:NEAREST]:
            differing = {name for name, value in vars(trial.point).items() if value != getattr(part.best, name)}
            yield (f"  {trial.cycles:,} cycles, at least {space.bound(trial.point):,}: "
                   + _told(trial.point, differing))


def _told(point: Any, names: set[str] | None = None) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(point).items()
                     if names is None or name in names)
