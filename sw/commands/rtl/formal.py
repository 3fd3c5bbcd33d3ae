"""``gemmule formal``: what is proved of the units of the RTL, and the planted faults that must be found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import JsonOption, Output
from gemmule.sw.errors import InputError
from gemmule.sw.limits import PROVED, check_choice

if TYPE_CHECKING:
    from gemmule.hw.formal.prove import Result
    from gemmule.hw.formal.target import Target

__all__ = ["formal"]

ROOT = Path("build/formal")


def formal(
    target: Annotated[list[str] | None, typer.Option(
        "--target", metavar="|".join(PROVED), autocompletion=lambda: list(PROVED), show_default=False,
        callback=lambda names: [check_choice("--target", name, PROVED) for name in names or ()],
        help="Prove this one; can be given more than once. Default: all.")] = None,
    json: JsonOption = None,
) -> None:
    """Prove properties of the units of the RTL, and show that each proof notices a planted fault.

    Every target is a real component of the device with free inputs. Its properties are checked for some cycles after a
    reset and, where induction closes, proved for all time. Then each property is checked again on hardware with a fault
    planted, and must fail. Traces of failures are kept under build/formal. Exit code 1: something failed. Needs the
    optional dependencies named formal (docs/formal.md).

    \b
    Examples:
      gemmule formal --target queue --target issue
      gemmule formal --json build/formal.json
    """
    out, begin = Output(json), time.monotonic()

    from gemmule.hw.flow.tools import SynthError
    from gemmule.hw.formal.solve import Solver
    from gemmule.hw.formal.targets import TARGETS

    results: dict[str, Result] = {}
    try:
        solver = Solver()
        solver.check()
        for name in dict.fromkeys(target or TARGETS):
            results[name] = _prove(TARGETS[name], solver)
            _lines(out, results[name])
    except SynthError as error:
        raise InputError(str(error)) from None
    _table(out, results)
    passed, seconds = all(result.passed for result in results.values()), time.monotonic() - begin
    out.print(_sum(results, seconds))
    out.write("formal", None, {
        "tools": solver.versions(), "targets": {name: _fields(result) for name, result in results.items()},
        "passed": passed, "seconds": round(seconds, 1)})
    if not passed:
        raise typer.Exit(1)


def _prove(target: Target, solver: Any) -> Result:
    from gemmule.hw.formal.prove import prove
    from gemmule.io.progress import stderr

    with stderr.status(target.name) as status:
        return prove(target, ROOT / target.name, solver=solver,
                     progress=lambda step: status.update(f"{target.name}: {step}"))


def _lines(out: Output, result: Result) -> None:
    """Of a target what is wrong with it."""
    name = result.target.name
    for failed in result.failed:
        out.print(f"{name}: fails: {failed}")
    for cover in result.unreached:
        out.print(f"{name}: not reached within {result.target.reach} cycles: {cover}")
    for finding in result.findings:
        if not finding.found:
            out.print(f"{name}: {finding.name}: " + (
                f"the planted fault is not found: {finding.fault}" if finding.fault else "no fault is planted"))


def _table(out: Output, results: dict[str, Result]) -> None:
    from rich.table import Table

    table = Table("target", "unit", "property", "proved", "planted fault", box=None, pad_edge=False)
    table.add_column("found in", justify="right")
    table.add_column("seconds", justify="right")
    for name, result in results.items():
        for i, finding in enumerate(result.findings):
            first = i == 0
            proof = finding.proof if finding.proof != "bounded" else f"for {finding.depth} cycles"
            table.add_row(name if first else "", result.target.unit if first else "", finding.name, proof,
                          finding.fault or "none", f"{finding.found_in} cycles" if finding.found else "not found",
                          f"{result.seconds:.0f}" if first else "")
    out.console.print(table)


def _sum(results: dict[str, Result], seconds: float) -> str:
    findings = [finding for result in results.values() for finding in result.findings]
    always = sum(finding.proof == "for all time" for finding in findings)
    bounded = sum(finding.proof == "bounded" for finding in findings)
    failing = len(findings) - always - bounded
    trusted = sum(len(result.trusted) for result in results.values())
    return (f"{len(findings)} properties: {always} proved for all time, {bounded} for some cycles, {failing} fail; "
            f"{sum(finding.found for finding in findings)} planted faults found; {trusted} assumptions trusted; "
            f"{seconds:.0f} s")


def _fields(result: Result) -> dict[str, Any]:
    target = result.target
    return {
        "unit": target.unit, "device": target.preset, "sizes": target.sizes,
        "properties": [{
            "name": finding.name, "text": finding.text, "proof": str(finding.proof), "depth": finding.depth,
            "fault": finding.fault, "found": finding.found, "found_in": finding.found_in}
            for finding in result.findings],
        "lemmas": len(result.lemmas), "trusted": {each.name: each.text for each in result.trusted},
        "unreached": list(result.unreached), "failed": list(result.failed), "passed": result.passed,
        "seconds": round(result.seconds, 1)}
