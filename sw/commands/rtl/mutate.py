"""``gemmule mutate``: faults planted in the RTL, and whether the checks notice them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, SeedOption, read_config
from gemmule.sw.commands.shared.earlier import Earlier, read_earlier
from gemmule.sw.commands.shared.mutants import by_unit, identity, in_turn, killers, survivor, total
from gemmule.sw.errors import InputError
from gemmule.sw.limits import COMMANDS, MINUTES, MUTANTS, PROGRAMS

__all__ = ["mutate"]

ROOT = Path("build/mutate")


def mutate(
    config: ConfigOption = "tiny",
    mutants: Annotated[int, typer.Option(
        "--mutants", metavar="N", help=f"Mutants per unit, {MUTANTS}.",
        callback=lambda n: MUTANTS.check("--mutants", n))] = 40,
    programs: Annotated[int, typer.Option(
        "--programs", metavar="N", help=f"Programs that a mutant must pass to survive, {PROGRAMS}, drawn as in gemmule "
                                        "fuzz.",
        callback=lambda n: PROGRAMS.check("--programs", n))] = 30,
    commands: Annotated[int, typer.Option(
        "--commands", metavar="N", help=f"Approximate number of commands per program, {COMMANDS}.",
        callback=lambda n: COMMANDS.check("--commands", n))] = 300,
    seed: SeedOption = 1,
    native: Annotated[bool, typer.Option(
        "--native", help="Run yosys from PATH instead of the wheel: faster, and with other mutants.")] = False,
    again: Annotated[Path | None, typer.Option(
        "--again", metavar="FILE", help="An earlier result (--json) on the same mutants: judge only those that it "
                                        "left open, with the checks that it did not run; its other "
                                        "verdicts stay.")] = None,
    minutes: Annotated[int | None, typer.Option(
        "--minutes", metavar="N", help=f"Stop judging mutants after this time, {MINUTES}; the remaining ones stay "
                                       "open. Results are kept, so a longer run continues from there.",
        callback=lambda n: None if n is None else MINUTES.check("--minutes", n))] = None,
    json: JsonOption = None,
) -> None:
    """Plant faults in the RTL, one at a time, and count those that programs and directed checks detect.

    Yosys draws the mutants from the flattened netlist, and all are built into one simulator. For mutants that survive a
    few programs, a proof is attempted that they change nothing; those without a proof face all checks. Results are kept
    under build/mutate, so an interrupted run continues where it stopped. Needs the optional dependencies named synth,
    or native tools (docs/synthesis.md).

    \b
    Examples:
      gemmule mutate --config tiny --mutants 40 --seed 1 --json build/mutants.json
      gemmule mutate --config tiny --again build/mutants.json --json build/mutants.json
    """
    out = Output(json)
    device = read_config(config)

    from gemmule.hw.flow.equal import prover
    from gemmule.hw.flow.mutate import build_mutants
    from gemmule.hw.flow.tools import SynthError, Tools
    from gemmule.hw.flow.trial import Trial
    from gemmule.io.progress import say, working
    from gemmule.sim.mutants import checks
    from gemmule.sim.mutants.campaign import Campaign

    tools, root, begin = Tools(native), ROOT / f"{device.name}-{mutants}-{seed}", time.monotonic()
    try:
        with working(f"drawing the mutants of {device.name} with Yosys"):
            netlist = build_mutants(device, mutants, seed, root, tools=tools)
        what, order = identity(device, seed, netlist), in_turn(netlist.mutants)
        by_number = {mutant.number: mutant for mutant in netlist.mutants}
        earlier = read_earlier(again, what, by_number) if again else Earlier({}, {}, frozenset(by_number), 0, 0)
        campaign = Campaign(
            device, checks.checks_of(device, seed, programs, commands,
                                     passed=earlier.programs if earlier.commands == commands else 0),
            Trial(netlist, root / "equal", tools), root, f"{what['netlist']} {tools.versions()} {prover()}",
            equal=earlier.equal, over=lambda: minutes is not None and time.monotonic() - begin > 60 * minutes)
        left = campaign.run([mutant.number for mutant in order if mutant.number in earlier.open])
    except SynthError as error:
        raise InputError(str(error)) from None
    equal = campaign.equal
    survivors = [mutant for mutant in order if mutant.number in equal or mutant.number in left]
    units = by_unit(netlist, {mutant.number for mutant in survivors}, equal)
    _table(out, units)
    for mutant in survivors:
        out.print(f"{mutant.unit} {mutant.number}: {mutant.mode} {mutant.place} ({', '.join(mutant.source[:2])}): "
                  f"{equal.get(mutant.number, 'open')}")
    say(f"{time.monotonic() - begin:.0f} s")
    out.write("mutate", device, {
        "seed": seed, "programs": programs, "commands": commands, "tools": tools.versions(),
        "netlist": what["netlist"], "units": units, "total": total(units),
        "killed_by": killers(earlier.killed_by, campaign.verdicts.values()),
        "survivors": [survivor(mutant, equal.get(mutant.number)) for mutant in survivors],
    })


def _table(out: Output, units: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("unit")
    for name in ("cells", "mutants", "killed", "proved equal", "open", "killed of the rest"):
        table.add_column(name, justify="right")
    for name, row in (*units.items(), ("all", total(units))):
        table.add_row(name, *(f"{row[what]:,}" for what in ("cells", "mutants", "killed", "equal", "open")),
                      f"{row['rate']:.1%}")
    out.console.print(table)
