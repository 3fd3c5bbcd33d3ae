"""``gemmule fuzz``: random legal programs on RTL and model."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmule.sim.cosim import fuzz as run_fuzz
from gemmule.sw.commands.common import ConfigOption, JsonOption, SeedOption, console, read_config, write_json
from gemmule.sw.text import InputError

__all__ = ["fuzz"]


def fuzz(
    config: ConfigOption = "tiny",
    programs: Annotated[int, typer.Option("--programs", help="Programs to run.")] = 20,
    commands: Annotated[int, typer.Option("--commands", help="Commands per program, about.")] = 150,
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
    for name, count in summary.coverage.items():
        console.print(f"  {name}: {count}", markup=False)
    if summary.missing:
        console.print(f"coverage below its minimum ({len(summary.missing)}): run more --programs")
    console.print("PASSED" if summary.ok else "FAILED: " + ("differences" if summary.failures else "coverage"))
    if not summary.ok:
        raise typer.Exit(1)
