"""The mapping of an encoder's layer by a search, as commands report it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gemmule.compiler.ir import Network
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.search.layer import (
    explained,
    layer_bound,
    layer_cost,
    layer_mapping,
    layer_spaces,
    search_layer,
)
from gemmule.config import Config
from gemmule.io.progress import working

__all__ = ["Searched", "searched_layer"]


@dataclass(frozen=True)
class Searched:
    """What a search gave."""

    mapping: EncoderMapping
    record: dict[str, Any]
    """For ``--json``, and lines for people."""


def searched_layer(network: Network, config: Config, sequence: int, method: str, keep: bool) -> Searched:
    """The mapping of an encoder's layer for ``sequence`` rows, by ``method``; ``keep``: in the cache.

    Raises:
        CompileError: a phase does not fit.
    """
    with working(f"searching the mapping of a layer ({method})"):
        found = search_layer(network, config, sequence, kept=keep)
        mapping = layer_mapping(found, sequence)
        cycles = layer_cost(network, config, mapping)
    spaces = layer_spaces(network, config, sequence)
    reason, bound = layer_bound(spaces)
    phases = [{
        "phase": phase, "cycles": part.cycles, "cycles_first": part.first_cycles, "bound": spaces[phase].least_bound,
        "simulated": len(part.trials), "pruned": dict(part.cut), "certified": part.certified,
        "search_seconds": part.seconds, "mapping": asdict(part.best),
        "tried": [asdict(trial.point) | {"cycles": trial.cycles} for trial in part.trials],
    } for phase, part in found.items()]
    return Searched(mapping, {
        "method": method, "phases": phases, "layer": {"cycles": cycles, "bound": bound, "bound_by": reason},
        "explained": [*explained(found, spaces),
                      f"the layer as one program: {cycles:,} cycles; whatever the mappings and what they overlap, "
                      f"{reason} takes {bound:,}: at most {cycles / bound - 1:.2%} above the optimum"]})
