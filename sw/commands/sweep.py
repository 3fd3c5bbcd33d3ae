"""``gemmule sweep``: workloads on many configurations, each point once, kept in a SQLite file."""

from __future__ import annotations

import csv
import io
import json as jsons
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmule.sw.commands.shared.common import JsonOption, Output, choice
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ENGINES
from gemmule.sw.reports.files import write_file

__all__ = ["sweep"]

COSTS = ("mesh", "memory_bits")
MOST_JOBS = 1024


def sweep(
    file: Annotated[Path, typer.Argument(
        metavar="FILE", help="YAML: `config`, `fields` with lists of values, `workloads` (docs/sweeps.md).")],
    db: Annotated[Path | None, typer.Option(
        "--db", metavar="FILE", help="SQLite file for the points. Default: FILE's name with .sqlite, in "
                                     "this folder.")] = None,
    run: Annotated[str, typer.Option(
        "--run", metavar="LABEL", help="Label of the points. Default: version and sources of gemmule.")] = "",
    jobs: Annotated[int, typer.Option(
        "--jobs", metavar="N", min=0, max=MOST_JOBS, help="Number of processes; 0: one for each core.")] = 0,
    engine: Annotated[str, choice(
        "--engine", ENGINES, "local processes, or a cluster of Ray or Dask (extras ray, dask).")] = "local",
    address: Annotated[str, typer.Option(
        "--address", metavar="ADDRESS", help="Address of a running cluster. Default: start one on this "
                                             "machine.")] = "",
    export: Annotated[Path | None, typer.Option(
        "--export", metavar="FILE", help="Also write the points as .csv or .parquet (extra parquet).")] = None,
    figure: Annotated[Path | None, typer.Option(
        "--figure", metavar="FILE", help="Draw cycles over --cost (SVG, PNG or PDF; extra figures).")] = None,
    cost: Annotated[str, choice(
        "--cost", COSTS, "What a point costs: multipliers of the mesh, or bits of both memories.")] = "mesh",
    compare: Annotated[str, typer.Option(
        "--compare", metavar="LABEL", help="Also list points whose cycles differ from those of the run LABEL.")] = "",
    json: JsonOption = None,
) -> None:
    """Run every configuration of a grid with every workload; after Ctrl-C, the same command continues.

    Points already in the file are not run again. A configuration that does not fit a workload, or breaks a rule, is a
    point too: it has the reason instead of numbers.

    \b
    Examples:
      gemmule sweep grid.yaml --jobs 2 --json grid.json --figure grid.svg
      gemmule sweep grid.yaml --engine dask --export grid.csv
    """
    from gemmule.io.progress import counting
    from gemmule.sw.reports.figures import check_figure, pareto_figure
    from gemmule.sw.sweeps.engines import check_engine, evaluated
    from gemmule.sw.sweeps.sweep import Store, default_run, evaluate, pareto, points
    from gemmule.sw.sweeps.sweep_file import read_sweep

    out = Output(json)
    found = read_sweep(file)
    check_engine(engine)
    if figure:
        check_figure(figure)
    if export:
        _check_export(export)
    label, store = run or default_run(), Store(db or Path(f"{file.stem}.sqlite"))
    try:
        if compare and compare not in store.runs():
            raise InputError(f"--compare must be a run of {store.path} ({', '.join(store.runs()) or 'none yet'}), not "
                             f"{compare!r}")
        every = points(found)
        done = store.done(label)
        left = [point for point in every if point.key not in done]
        workers = jobs or os.cpu_count() or 1
        with counting("points", max(1, len(left))) as tell:
            for i, row in enumerate(evaluated(evaluate, left, engine=engine, jobs=workers, address=address), 1):
                store.add(label, row)
                tell(i, row["error"] or f"{row['cycles']:,} cycles")
        rows = store.rows(label, every)
        for row, best in zip(rows, pareto(rows, cost), strict=True):
            row["pareto"] = best
        differing = store.compared(compare, label) if compare else None
    finally:
        store.close()
    out.print(f"{len(every):,} points, {len(left):,} of them now, run {label} in {store.path}")
    _print(out, rows, cost, differing)
    if export:
        _export(export, rows)
    if figure:
        pareto_figure(figure, [row for row in rows if row["cycles"] is not None], cost, "cycles")
    out.write("sweep", None, {
        "file": str(file), "db": str(store.path), "run": label, "engine": engine, "jobs": workers, "cost": cost,
        "points": len(every), "evaluated": len(left), "rows": [
            row | {"config": jsons.loads(row["config"]), "workload": jsons.loads(row["workload"])} for row in rows],
        "differing": differing})


def _print(out: Output, rows: list[dict[str, Any]], cost: str, differing: list[dict[str, Any]] | None) -> None:
    from rich.table import Table

    errors = [row for row in rows if row["error"]]
    table = Table(box=None, pad_edge=False)
    for name in ("workload", "configuration", cost.replace("_", " "), "cycles", "of roofline", "of peak MACs", "alike"):
        table.add_column(name, justify="left" if name in ("workload", "configuration") else "right")
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted((row for row in rows if row["pareto"]), key=lambda row: (row["name"], row[cost])):
        alike.setdefault((row["name"], row[cost], row["cycles"]), []).append(row)
    for row, *others in alike.values():
        table.add_row(row["name"], _named(row["config"]), f"{row[cost]:,}", f"{row['cycles']:,}",
                      f"{row['roofline_fraction']:.1%}", f"{row['utilization']:.1%}",
                      f"{len(others):,}")
    out.print(f"points that no other of their workload beats in cycles and {cost.replace('_', ' ')}:")
    out.console.print(table)
    if errors:
        out.print(f"{len(errors):,} without numbers, such as {_named(errors[0]['config'])}: {errors[0]['error']}")
    for row in differing or ():
        out.print(f"{row['name']}, {_named(row['config'])}: {row['before'] or row['error_before']} to "
                  f"{row['after'] or row['error_after']}")
    if differing is not None:
        out.print(f"{len(differing):,} points differ")


def _named(text: str) -> str:
    """The fields of a configuration, for people."""
    return " ".join(f"{key} {value}" for key, value in jsons.loads(text).items()
                    if key not in ("config", "base_sha256"))


def _check_export(path: Path) -> None:
    """Refuse what could not be written, before any work is done."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"--export must end in .csv or .parquet, not {str(path)!r}")
    if path.suffix == ".parquet":
        try:
            __import__("pyarrow")
        except ImportError:
            raise InputError("--export to .parquet needs pyarrow: pip install 'gemmule[parquet]'") from None


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with a column for each field of the configuration and the workload."""
    fields = {f"config.{key}": value for key, value in jsons.loads(row["config"]).items()}
    work = {f"workload.{key}": value for key, value in jsons.loads(row["workload"]).items()}
    return {key: value for key, value in row.items() if key not in ("config", "workload")} | fields | work


def _export(path: Path, rows: list[dict[str, Any]]) -> None:
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        write_file(path, text.getvalue(), "--export")
        return
    import pyarrow
    from pyarrow import parquet

    made = io.BytesIO()
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in flat] for name in names}), made)
    write_file(path, made.getvalue(), "--export")
