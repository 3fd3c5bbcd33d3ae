"""``gemmule study``: a published table or figure, made again on this device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.commands.shared.common import JsonOption, Output, conditions, read_config
from gemmule.sw.limits import PRESETS, check_choice
from gemmule.sw.studies import STUDIES

if TYPE_CHECKING:
    from gemmule.sw.studies import Row

__all__ = ["study"]


def study(
    name: Annotated[str, typer.Argument(
        metavar="NAME", help=f"One of {', '.join(STUDIES)}.", autocompletion=lambda: list(STUDIES),
        callback=lambda value: check_choice("NAME", value, STUDIES))],
    config: Annotated[str, typer.Option(
        "--config", metavar="NAME|FILE", show_default=False, autocompletion=lambda: list(PRESETS),
        help="Device configuration: a preset or a YAML file. Default: the study's own, which makes its rows "
             "comparable.")] = "",
    json: JsonOption = None,
) -> None:
    """Reproduce a published table or figure: each row has the published figure, this device's, and why they differ.

    \b
    Examples:
      gemmule study survey
    """
    from gemmule.io.progress import stderr
    from gemmule.sw.studies import study_of

    out, found = Output(json), study_of(name)
    device = read_config(config or found.config)
    with stderr.status(found.title):
        rows = found.run(device)
    out.print(conditions(device), style="dim")
    out.print(f"{found.title} ({found.source})")
    _print(out, rows)
    out.write("study", device, {"study": name, "title": found.title, "source": found.source,
                                "rows": [row.record() for row in rows]})


def _print(out: Output, rows: list[Row]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("setting", "published", "here", "unit"):
        table.add_column(column, justify="right" if column in ("published", "here") else "left")
    for row in rows:
        published, here = (figure(value) for value in (row.published, row.here))
        table.add_row(row.setting, published, here, row.unit)
    out.console.print(table)
    out.print("why, row by row: --json FILE")


def figure(value: float | None) -> str:
    """A figure of any size, for people."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
