"""``gemmule mutate``: faults planted in the RTL, and whether the checks notice them."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, SeedOption, read_config
from gemmule.sw.commands.shared.earlier import Earlier, read_earlier, survivor
from gemmule.sw.errors import InputError
from gemmule.sw.limits import COMMANDS, MINUTES, MUTANTS, PROGRAMS

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.hw.flow.mutate import Mutant, Mutants
    from gemmule.sim.mutants.campaign import Verdict
    from gemmule.sim.mutants.recorded import Check

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

    from gemmule.hw.flow.equal import ATTEMPTS, prove, prover
    from gemmule.hw.flow.few import some_of
    from gemmule.hw.flow.mutate import build_mutants
    from gemmule.hw.flow.tools import SynthError, Tools
    from gemmule.io.progress import counting, say, working
    from gemmule.sim.mutants.campaign import campaign, checks_of
    from gemmule.sim.mutants.kept import Kept

    tools, root, begin = Tools(native), ROOT / f"{device.name}-{mutants}-{seed}", time.monotonic()
    try:
        with working(f"drawing the mutants of {device.name} with Yosys"):
            netlist = build_mutants(device, mutants, seed, root, tools=tools)
        by_number = {mutant.number: mutant for mutant in netlist.mutants}
        what = _what(device, seed, netlist)
        earlier = read_earlier(again, what, by_number) if again else Earlier({}, {}, frozenset(by_number), 0, 0)
        passed = earlier.programs if earlier.commands == commands else 0
        early, late, dram_bytes, key = checks_of(device, seed, programs, commands, passed=passed)
        verdicts: dict[int, Verdict] = {}

        def over() -> bool:
            return minutes is not None and time.monotonic() - begin > 60 * minutes

        def built(numbers: list[int], *, leaps: bool) -> Path:
            """These mutants in a simulator of their own; ``leaps``: its counts can leap."""
            with working("building the mutants in"):
                return some_of(netlist, numbers, leaps=leaps, tools=tools)

        def judge(numbers: list[int], checks: list[Check], kept: str, verilog: Path) -> list[int]:
            """Those that live through the checks."""
            alive: list[int] = []
            if over():
                return numbers
            with counting("mutants", len(numbers)) as tell:
                for i, verdict in enumerate(campaign(
                        device, verilog, numbers, checks, dram_bytes, root / kept, key), 1):
                    verdicts[verdict.number] = verdict
                    alive += [verdict.number] * (verdict.killed_by is None)
                    tell(i, f"{len(alive)} survive")
                    if over():
                        return [*alive, *numbers[i:]]
            return alive

        proofs = Kept(root / "proofs.jsonl", f"{what['netlist']} {tools.versions()} {prover()}")
        equal = dict(earlier.equal)

        def proved(numbers: list[int], attempts: Sequence[tuple[int, int]]) -> list[int]:
            """Those of which none of so many attempts proves that they change nothing."""
            open_ones = []
            with counting("survivors", max(1, len(numbers))) as tell:
                for i, number in enumerate(numbers, 1):
                    known = proofs.results.get(number, {"proof": None, "attempts": 0})
                    if not known["proof"] and known["attempts"] < len(attempts) and not over():
                        proof = prove(by_number[number], netlist.netlist, root / "equal",
                                      attempts=attempts[known["attempts"]:], tools=tools)
                        proofs.add(number, proof=proof, attempts=len(attempts))
                        known = proofs.results[number]
                    if known["proof"]:
                        equal[number] = known["proof"]
                    else:
                        open_ones.append(number)
                    tell(i, f"{len(equal)} proved to change nothing")
            return open_ones

        alive = [number for number in _turns(netlist.mutants) if number in earlier.open]
        if early and alive:
            alive = judge(alive, early, "early.jsonl", built(alive, leaps=False))
        alive = proved(alive, ATTEMPTS[:1])  # takes less than the other checks
        if alive:
            verilog = built(alive, leaps=True)
            for i, group in enumerate(late, 1):
                alive = judge(alive, group, f"late_{i}.jsonl", verilog)
        alive = proved(alive, ATTEMPTS)
    except SynthError as error:
        raise InputError(str(error)) from None
    survivors = [by_number[number] for number in _turns(netlist.mutants)
                 if number in equal or number in alive]
    units = _units(netlist.mutants, {mutant.number for mutant in survivors}, equal, netlist.cells)
    total = {what: sum(row[what] for row in units.values()) for what in ("cells", "mutants", "killed", "equal", "open")}
    total["rate"] = _rate(total["killed"], total["mutants"] - total["equal"])
    _table(out, units, total)
    for mutant in survivors:
        out.print(f"{mutant.unit} {mutant.number}: {mutant.mode} {mutant.place} ({', '.join(mutant.source[:2])}): "
                  f"{equal.get(mutant.number, 'open')}")
    say(f"{time.monotonic() - begin:.0f} s")
    out.write("mutate", device, {
        "seed": seed, "programs": programs, "commands": commands, "tools": tools.versions(),
        "netlist": what["netlist"], "units": units, "total": total,
        "killed_by": dict(Counter(earlier.killed_by) + Counter(
            _kind(verdict.killed_by) for verdict in verdicts.values() if verdict.killed_by)),
        "survivors": [survivor(mutant, equal.get(mutant.number)) for mutant in survivors],
    })


def _what(device: Config, seed: int, netlist: Mutants) -> dict[str, Any]:
    """What tells these mutants from others."""
    count = Counter(mutant.unit for mutant in netlist.mutants)
    return {"config_sha256": device.sha256, "seed": seed,
            "netlist": hashlib.sha256(netlist.verilog.read_bytes()).hexdigest(),
            "units": {unit: {"cells": cells, "mutants": count[unit]} for unit, cells in netlist.cells.items()}}


def _turns(mutants: tuple[Mutant, ...]) -> list[int]:
    """Numbers of the mutants, one of each unit in turn: what is known early is of all units."""
    seen: Counter[str] = Counter()
    turns = []
    for mutant in mutants:
        turns.append((seen[mutant.unit], mutant.number))
        seen[mutant.unit] += 1
    return [number for _, number in sorted(turns)]


def _rate(killed: int, of: int) -> float:
    return round(killed / of, 4) if of else 1.0


def _kind(check: str) -> str:
    """A check without its seed: programs are one kind."""
    return {"fuzz": "program", "probe": "probe", "broad": "broad program"}.get(check.partition("-")[0], check)


def _units(mutants: tuple[Mutant, ...], survivors: set[int], equal: dict[int, str],
           cells: Any) -> dict[str, dict[str, Any]]:
    """By unit: cells, mutants, killed, proved equal, open, and the share killed of those not proved equal."""
    found: dict[str, dict[str, Any]] = {}
    for unit, number in cells.items():
        own = [mutant.number for mutant in mutants if mutant.unit == unit]
        killed = sum(i not in survivors for i in own)
        same = sum(i in equal for i in own)
        found[unit] = {"cells": number, "mutants": len(own), "killed": killed, "equal": same,
                       "open": len(own) - killed - same, "rate": _rate(killed, len(own) - same)}
    return found


def _table(out: Output, units: dict[str, dict[str, Any]], total: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("unit")
    for name in ("cells", "mutants", "killed", "proved equal", "open", "killed of the rest"):
        table.add_column(name, justify="right")
    for name, row in (*units.items(), ("all", total)):
        table.add_row(name, *(f"{row[what]:,}" for what in ("cells", "mutants", "killed", "equal", "open")),
                      f"{row['rate']:.1%}")
    out.console.print(table)
