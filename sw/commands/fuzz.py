"""``gemmule fuzz``: random legal programs on RTL and model."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from gemmule.sim.fuzz.run import fuzz as run_fuzz
from gemmule.sw.commands.common import ConfigOption, JsonOption, SeedOption, console, read_config, write_json
from gemmule.sw.text import InputError

__all__ = ["fuzz"]


def fuzz(
    config: ConfigOption = "tiny",
    programs: Annotated[int, typer.Option("--programs", help="Programs to run.")] = 20,
    commands: Annotated[int, typer.Option("--commands", help="Commands per program, about.")] = 300,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Compare RTL and model on random programs: every DRAM byte, every command's issue and finish.

    Exit code 1 on a difference or when coverage stays below its minimum.

    Example: gemmule fuzz --config tiny --programs 50 --seed 1
    """
    for name, value, low, high in (("--programs", programs, 1, 10**6), ("--commands", commands, 40, 1000)):
        if not low <= value <= high:
            raise InputError(f"{name} must be from {low} to {high}, not {value}")
    summary = run_fuzz(read_config(config), programs=programs, seed=seed, commands=commands,
                       progress=lambda text: console.print(text, markup=False))
    write_json(json, {
        "config": summary.config, "seed": seed, "programs": summary.programs,
        "commands": summary.commands, "cycles": summary.cycles, "seconds": summary.seconds,
        "byte_differences": summary.byte_differences, "cycle_differences": summary.cycle_differences,
        "coverage": summary.coverage, "missing": summary.missing, "failures": summary.failures,
    })
    console.print(
        f"{summary.programs} programs, {summary.commands} commands ({summary.commands / summary.programs:.0f} "
        f"a program), {summary.cycles:,} cycles: {summary.byte_differences} byte differences, "
        f"{summary.cycle_differences} cycle differences")
    _print_coverage(summary.coverage)
    if summary.missing:
        console.print(f"coverage below its minimum, run more --programs: {', '.join(summary.missing)}", markup=False)
    console.print("PASSED" if summary.ok else "FAILED: " + ("differences" if summary.failures else "coverage"))
    if not summary.ok:
        raise typer.Exit(1)


def _print_coverage(coverage: dict[str, Any]) -> None:
    """One row a kind of command, its modes with their counts; then everything else that was counted."""
    table = Table("command", "count", "modes", box=None, pad_edge=False)
    for kind, counts in coverage["commands"].items():
        modes = ", ".join(f"{mode} {count}" for mode, count in counts.items() if mode != "all")
        table.add_row(kind, str(counts["all"]), modes)
    console.print(table, markup=False)
    for name, value in coverage.items():
        if name != "commands":
            text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            console.print(f"{name}: {text}", markup=False)
