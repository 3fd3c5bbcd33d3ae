"""What a result of ``gemmule mutate`` says of its mutants: which they are, and what became of them, unit by unit."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.hw.flow.mutate import Mutant, Mutants
    from gemmule.sim.mutants.verdicts import Verdict

__all__ = ["by_unit", "identity", "in_turn", "killers", "survivor", "total"]

KINDS = {"fuzz": "program", "probe": "probe", "broad": "broad program"}
"""Programs by the beginning of their name, behind which stands the seed: each of these is one kind of check."""


def identity(device: Config, seed: int, netlist: Mutants) -> dict[str, Any]:
    """What tells these mutants from others."""
    count = Counter(mutant.unit for mutant in netlist.mutants)
    return {"config_sha256": device.sha256, "seed": seed,
            "netlist": hashlib.sha256(netlist.verilog.read_bytes()).hexdigest(),
            "units": {unit: {"cells": cells, "mutants": count[unit]} for unit, cells in netlist.cells.items()}}


def in_turn(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The mutants, one of each unit in turn: what is known early is of all units."""
    seen: Counter[str] = Counter()
    turns = []
    for mutant in mutants:
        turns.append((seen[mutant.unit], mutant.number, mutant))
        seen[mutant.unit] += 1
    return [mutant for *_, mutant in sorted(turns, key=lambda turn: turn[:2])]


def by_unit(netlist: Mutants, survivors: Collection[int], equal: Collection[int]) -> dict[str, dict[str, Any]]:
    """By unit: cells, mutants, killed, proved equal, open, and the share killed of those not proved equal."""
    found: dict[str, dict[str, Any]] = {}
    for unit, cells in netlist.cells.items():
        own = [mutant.number for mutant in netlist.mutants if mutant.unit == unit]
        killed = sum(number not in survivors for number in own)
        same = sum(number in equal for number in own)
        found[unit] = {"cells": cells, "mutants": len(own), "killed": killed, "equal": same,
                       "open": len(own) - killed - same, "rate": _rate(killed, len(own) - same)}
    return found


def total(units: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same of all units together."""
    found: dict[str, Any] = {
        what: sum(row[what] for row in units.values()) for what in ("cells", "mutants", "killed", "equal", "open")}
    return found | {"rate": _rate(found["killed"], found["mutants"] - found["equal"])}


def killers(earlier: Mapping[str, int], verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Mutants by the kind of check that noticed them, an earlier result's too."""
    return dict(Counter(earlier) + Counter(_kind(each.killed_by) for each in verdicts if each.killed_by))


def survivor(mutant: Any, proof: str | None) -> dict[str, Any]:
    """A mutant that no check noticed."""
    return {"number": mutant.number, "unit": mutant.unit, "mode": mutant.mode, "place": mutant.place,
            "wire": mutant.wire, "source": list(mutant.source), "equal": proof}


def _rate(killed: int, of: int) -> float:
    return round(killed / of, 4) if of else 1.0


def _kind(check: str) -> str:
    """A check without its seed."""
    return KINDS.get(check.partition("-")[0], check)
