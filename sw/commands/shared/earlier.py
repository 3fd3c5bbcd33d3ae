"""What an earlier result of ``gemmule mutate`` says, if it is of the same mutants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmule.io.reading import ReadError, named, read_json
from gemmule.sw.commands.shared.mutants import survivor
from gemmule.sw.errors import InputError

__all__ = ["Earlier", "read_earlier"]

MOST = 1 << 24
"""Bytes of a result."""


@dataclass(frozen=True)
class Earlier:
    """Verdicts that stay: checks are only ever added, and a proof is of all of them."""

    killed_by: Mapping[str, int]
    equal: Mapping[int, str]
    open: frozenset[int]
    programs: int
    """Programs that those have passed, and commands of each."""
    commands: int


def read_earlier(path: Path, now: Mapping[str, Any], mutants: Mapping[int, Any]) -> Earlier:
    """The verdicts of the result in ``path``.

    Parameters
    ----------
    now: what a result on ``mutants`` (by number) says of them: configuration, seed, netlist, and of every unit cells
        and mutants. What an older result does not say is not compared.

    Raises:
        InputError: it is no such result, or one of other mutants.
    """
    try:
        found = read_json(path, MOST)
        survivors, units = found["survivors"], found["units"]
        # The same survivors, to the number of the cell and the bit of its port.
        then = {name: found[name] for name in now if name in found} | {
            "units": {unit: {what: row[what] for what in ("cells", "mutants")} for unit, row in units.items()}}
        proofs = {mutant["number"]: mutant["equal"] for mutant in survivors}
        same = all(survivor(mutants.get(mutant["number"]), mutant["equal"]) == mutant
                   for mutant in survivors if mutant["number"] in mutants)
        programs, commands = int(found["programs"]), int(found["commands"])
        killed_by = {str(name): int(count) for name, count in found["killed_by"].items()}
    except ReadError as error:
        raise InputError(f"--again must name a result of gemmule mutate, not {named(path)}, which {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"--again must name a result of gemmule mutate, not {named(path)}") from None
    wrong = [name for name in then if then[name] != now[name]]
    if wrong or not same or not set(proofs) <= set(mutants):
        raise InputError(f"--again must name a result on the same mutants, not {path}: "
                         f"its {wrong[0] if wrong else 'survivors'} are not those of now; judge all of them")
    return Earlier(killed_by, {number: proof for number, proof in proofs.items() if proof},
                   frozenset(number for number, proof in proofs.items() if not proof), programs, commands)
