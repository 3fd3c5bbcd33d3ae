"""The option for another table of energies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.errors import InputError

if TYPE_CHECKING:
    from gemmule.sim.energy.table import EnergyTable

__all__ = ["EnergyOption", "read_energy"]

EnergyOption = Annotated[Path | None, typer.Option(
    "--energy", metavar="FILE", show_default=False,
    help="Energies per event from this YAML file (docs/energy.md). Default: the table that ships.")]


def read_energy(path: Path | None) -> EnergyTable:
    """The table.

    Raises:
        InputError: the file is broken.
    """
    from gemmule.sim.energy.table import EnergyError, load_energy

    try:
        return load_energy(path)
    except EnergyError as error:
        raise InputError(str(error)) from None
