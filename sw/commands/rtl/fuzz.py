"""``gemmule fuzz``: random legal programs on RTL and model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, SeedOption, read_config
from gemmule.sw.limits import COMMANDS, PROGRAMS

__all__ = ["fuzz"]


def fuzz(
    config: ConfigOption = "tiny",
    programs: Annotated[int, typer.Option(
        "--programs", metavar="N", help=f"Programs to run, {PROGRAMS}; program i has seed SEED + i.",
        callback=lambda n: PROGRAMS.check("--programs", n))] = 20,
    commands: Annotated[int, typer.Option(
        "--commands", metavar="N", help=f"Approximate number of commands per program, {COMMANDS}.",
        callback=lambda n: COMMANDS.check("--commands", n))] = 300,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Compare RTL and model on random programs: every DRAM byte, every command's issue and finish.

    Exit code 1 on a difference or when coverage stays below its minimum.

    \b
    Examples:
      gemmule fuzz --config tiny --programs 50 --seed 1
    """
    out = Output(json)
    device = read_config(config)

    from gemmule.io.progress import say
    from gemmule.sim.fuzz.run import fuzz as run_fuzz

    summary = run_fuzz(device, programs=programs, seed=seed, commands=commands, progress=say)
    out.print(
        f"{summary.programs:,} programs, {summary.commands:,} commands ({summary.commands / summary.programs:.0f} "
        f"a program), {summary.cycles:,} cycles: {summary.byte_differences} byte differences, "
        f"{summary.cycle_differences} cycle differences")
    _print_coverage(out, summary.coverage)
    if summary.missing:
        out.print(f"coverage below its minimum, run more --programs: {', '.join(summary.missing)}")
    out.print("PASSED" if summary.ok else "FAILED: " + ("differences" if summary.failures else "coverage"))
    out.write("fuzz", device, {
        "seed": seed, "programs": summary.programs,
        "commands": summary.commands, "cycles": summary.cycles, "seconds": summary.seconds,
        "byte_differences": summary.byte_differences, "cycle_differences": summary.cycle_differences,
        "coverage": summary.coverage, "missing": summary.missing, "failures": summary.failures,
    })
    if not summary.ok:
        raise typer.Exit(1)


def _print_coverage(out: Output, coverage: dict[str, Any]) -> None:
    """One row a kind of command, its modes with their counts; then everything else that was counted."""
    from rich.table import Table

    table = Table("command", "count", "modes", box=None, pad_edge=False)
    for kind, counts in coverage["commands"].items():
        modes = ", ".join(f"{mode} {count}" for mode, count in counts.items() if mode != "all")
        table.add_row(kind, str(counts["all"]), modes)
    out.console.print(table)
    for name, value in coverage.items():
        if name != "commands":
            text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            out.print(f"{name}: {text}")
