"""``gemmule cache``: what is kept to save building it again, and removing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import JsonOption, Output
from gemmule.sw.errors import InputError

if TYPE_CHECKING:
    from gemmule.sw.models.cached import Entry

__all__ = ["cache"]

MOST_DAYS = 10**6
cache = typer.Typer(
    help="Show or clear the cache: Verilog, simulators, compiled code, quantised models, logs of failures.",
    add_completion=False, rich_markup_mode=None)


@cache.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    "Show or clear the cache: Verilog, simulators, compiled code, quantised models, logs of failures."
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 10**5 else f"{size / 1e3:,.1f} kB"


def _age(days: float) -> str:
    return f"{days:.0f} days" if days >= 2 else f"{days * 24:.0f} h" if days >= 1 / 12 else f"{days * 1440:.0f} min"


def _record(entry: Entry) -> dict[str, Any]:
    return {"path": str(entry.path), "kind": entry.kind, "config": entry.config, "bytes": entry.size,
            "age_days": round(entry.age, 4), "in_use": entry.busy}


@cache.command()
def show(json: JsonOption = None) -> None:
    """List the cached entries: size, and how long ago they were used (simulators) or made.

    \b
    Examples:
      gemmule cache show
    """
    out = Output(json)

    from rich.table import Table

    from gemmule.io.cache import cache_root
    from gemmule.sw.models.cached import entries

    found = list(entries())
    total = sum(entry.size for entry in found)
    table = Table("what", "of", "size", "age", "name", box=None, pad_edge=False)
    for entry in found:
        table.add_row(entry.kind + " (in use)" * entry.busy, entry.config, _bytes(entry.size), _age(entry.age),
                      entry.path.name)
    out.console.print(f"{cache_root()}: {len(found)} entries, {_bytes(total)}", markup=False, soft_wrap=True)
    if found:
        out.console.print(table, soft_wrap=True)
    out.write("cache-show", None, {
        "folder": str(cache_root()), "bytes": total, "entries": [_record(entry) for entry in found]})


@cache.command()
def clear(
    name: Annotated[str, typer.Argument(
        metavar="[CONFIG]", help="Only entries of this configuration, or this quantised model.")] = "",
    older_than: Annotated[float | None, typer.Option(
        "--older-than", metavar="DAYS", help=f"Only entries not used or made for this many days, 0 to {MOST_DAYS:,} "
                                             "days.",
    )] = None,
    json: JsonOption = None,
) -> None:
    """Remove all cached entries, or some of them. Entries in use by a running process stay.

    \b
    Examples:
      gemmule cache clear
      gemmule cache clear tiny --older-than 30
    """
    if older_than is not None and not 0 <= older_than <= MOST_DAYS:
        raise InputError(f"--older-than must be from 0 to {MOST_DAYS} days, not {older_than:g}")
    out = Output(json)

    from gemmule.io.cache import cache_root, writing
    from gemmule.sw.models.cached import entries, remove

    found = list(entries())
    names = sorted({entry.config for entry in found} - {""})
    if name and name not in names:
        raise InputError(f"CONFIG must be one of {', '.join(names) or 'none: nothing is kept'}, not {name!r}")
    chosen = [entry for entry in found
              if (not name or entry.config == name) and (older_than is None or entry.age >= older_than)]
    with writing():
        removed = [entry for entry in chosen if remove(entry)]
    freed, held = sum(entry.size for entry in removed), len(chosen) - len(removed)
    out.console.print(f"{cache_root()}: {len(removed)} of {len(found)} entries removed, {_bytes(freed)} freed"
                      + (f"; {held} in use, kept" if held else ""), markup=False, soft_wrap=True)
    out.write("cache-clear", None, {
        "folder": str(cache_root()), "bytes_freed": freed, "in_use": held,
        "removed": [_record(entry) for entry in removed]})
