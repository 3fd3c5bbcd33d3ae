"""``gemmule report``: what `--json` of a generation or a bench says, as a page with figures."""

from __future__ import annotations

import json as reading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.energy import EnergyOption, read_energy
from gemmule.sw.errors import InputError
from gemmule.sw.reports.files import write_file

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["html_page", "report"]


def html_page(record: dict[str, Any]) -> str:
    """The page of a record.

    Raises:
        InputError: it is of another command.
    """
    from gemmule.sw.reports.generation import generation_page
    from gemmule.sw.reports.methods import bench_page

    pages = {"gemmule/generate/1": generation_page, "gemmule/bench/1": bench_page}
    make = pages.get(str(record.get("schema")))
    if make is None:
        raise InputError(f"a page can be made of {' and '.join(pages)}, not of {record.get('schema')!r}: give a file "
                         "that `gemmule generate` or `gemmule bench` wrote with --json")
    return make(record)


def report(
    file: Annotated[Path, typer.Argument(
        metavar="FILE", help="JSON file written by --json of `gemmule generate` or `gemmule bench`.")],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write: one self-contained file.")],
    energy: EnergyOption = None,
) -> None:
    """Make a page with figures of a generation or a bench, and print its energy.

    --energy prices the events that the file counts again; the file stays as it is.

    \b
    Examples:
      gemmule report build/demo.json --html build/demo.html
    """
    from rich.console import Console

    from gemmule.sw.records import check

    try:
        record = reading.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} must be a file that can be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file} must be JSON, as --json writes it: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{file} must hold one object, as --json writes it")
    check(record, str(file))
    if energy is not None:
        record = _priced(record, energy, str(file))
    write_file(html, html_page(record), "--html")
    _print(Console(), record)


def _priced(record: dict[str, Any], path: Path, file: str) -> dict[str, Any]:
    """The record with all of its energies by another table.

    Raises:
        InputError: the table is broken, or the record's device is no preset of this version.
    """
    from gemmule.config import PRESETS, load_config
    from gemmule.sw.reports.energy import priced_again

    table, name = read_energy(path), record["config"]
    device = load_config(name) if name in PRESETS else None
    if device is None or device.sha256 != record["config_sha256"]:
        raise InputError(f"--energy {path}: {file} must be of a preset ({', '.join(PRESETS)}) of this version, not of "
                         f"{name!r}; give --energy to the command that writes it")

    def again(found: Any) -> Any:
        if isinstance(found, list):
            return [again(one) for one in found]
        if not isinstance(found, dict):
            return found
        return {key: priced_again(value, device, table) if key in ("energy", "energy_ar") and value else again(value)
                for key, value in found.items()}

    priced: dict[str, Any] = again(record)
    return priced


def _print(console: Console, record: dict[str, Any]) -> None:
    """The energies of a record, where it has any."""
    from gemmule.sw.reports.energy import energy_line, print_energy

    if "rows" in record:
        print_energy(console, record["rows"])
        return
    for name, run in ((record["method"], record), ("ar", record["ar"] or {})):
        if run.get("energy"):
            console.print(f"{name}: {energy_line(run['energy'])}", markup=False)
