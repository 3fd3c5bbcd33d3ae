"""``gemmule run gemm``: one product on the device, with cycles, utilisation and traffic."""

from __future__ import annotations

import time
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.runs.arch import arch
from gemmule.sw.commands.runs.model import model
from gemmule.sw.commands.shared.common import (
    ConfigOption,
    FigureOption,
    JsonOption,
    Output,
    SeedOption,
    ShapeOption,
    TraceOption,
    choice,
    conditions,
    read_config,
    write_trace,
)
from gemmule.sw.commands.shared.energy import EnergyOption, read_energy
from gemmule.sw.commands.shared.search import choose
from gemmule.sw.errors import InputError
from gemmule.sw.limits import BACKENDS, DATAFLOWS, SEARCHES, WEIGHTS, parse_shape

if TYPE_CHECKING:
    from gemmule.compiler.layout import WeightFormat
    from gemmule.compiler.programs.product import ProductProgram
    from gemmule.config import Config
    from gemmule.sim.result import Result
    from gemmule.sw.commands.shared.search import Chosen

__all__ = ["run"]

run = typer.Typer(help="Run a workload on the device.", add_completion=False, rich_markup_mode=None)


@run.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Run a workload on the device."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


run.command("model")(model)
run.command("arch")(arch)


@run.command("gemm")
def gemm(
    shape: ShapeOption = "512x768x768",
    config: ConfigOption = "base",
    dataflow: Annotated[str, choice(
        "--dataflow", (*DATAFLOWS, "any"),
        "ws (weights stay in the mesh), os (sums stay in the mesh), or any (the better one).")] = "ws",
    weights: Annotated[str, choice("--weights", WEIGHTS, "int8 or int4 (packed).")] = "int8",
    group_size: Annotated[int, typer.Option(
        "--group-size", metavar="K",
        help="Rows of K that share an int4 scale: the configuration's dim times a power of two; 0: no scales.")] = 0,
    backend: Annotated[str, choice(
        "--backend", BACKENDS, "model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Compute cycles without data "
                                                                    "(model only).")] = False,
    search: Annotated[str, choice(
        "--search", SEARCHES,
        "How to choose the mapping: by a formula, or by cycles on the simulator; optuna and cp-sat need the extra "
        "search.")] = "formula",
    trials: Annotated[int | None, typer.Option(
        "--trials", metavar="N", min=1, max=10**6, show_default=False,
        help="Maximum number of mappings that a search simulates. Default: 96; exhaustive: as many as "
             "necessary.")] = None,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Show what was tried, which mapping won, and why the rest lost.")] = False,
    trace: TraceOption = None,
    figure: FigureOption = None,
    energy: EnergyOption = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Compute C[M,N] = requantised A[M,K] B[K,N], int8 operands and result in DRAM; check it against numpy.

    Exit code 1 if the result differs.

    \b
    Examples:
      gemmule run gemm --shape 20x33x17 --config tiny
      gemmule run gemm --shape 512x768x768 --timing-only
      gemmule run gemm --shape 1x768x3072 --weights int4 --group-size 64
      gemmule run gemm --shape 6x9x14 --config tiny --search exhaustive --explain
    """
    if trials is not None and search == "formula":
        raise InputError(f"--trials needs a --search that simulates, not formula; leave out --trials {trials}")
    if timing_only and backend != "model":
        raise InputError("--timing-only needs --backend model, not rtl; drop one of the two")
    out = Output(json)
    device, prices = read_config(config), read_energy(energy)
    sizes = parse_shape(shape)

    from gemmule.compiler.layout import WeightFormat
    from gemmule.sw.device.timeline import timeline_of
    from gemmule.sw.reports.energy import energy_record
    from gemmule.sw.reports.figures import check_figure, run_figure

    if figure:
        check_figure(figure)
    form = WeightFormat(int(weights.removeprefix("int")), group_size)
    chosen = choose(device, sizes, form, dataflow, search, trials)
    program, result, seconds, correct = _execute(device, sizes, form, chosen, backend, timing_only, seed)
    out.print(f"{conditions(device)}; seed {seed}", style="dim")
    record = _record(device, program, result) | {
        "shape": shape, "dataflow": program.mapping.dataflow, "search": chosen.record(explain), "weights": weights,
        "group_size": group_size, "backend": backend, "seed": seed, "simulation_seconds": seconds, "correct": correct,
        "energy": energy_record(result.events, device, prices, operations=2 * prod(sizes))}
    _print(out, device, program, record)
    if explain:
        out.lines(list(chosen.explained(program)))
    out.write("run-gemm", device, record)
    if trace or figure:
        timeline = timeline_of("product", [result], program.commands, device)
        write_trace(trace, timeline, device)
        if figure:
            run_figure(figure, f"{shape} {weights} on {device.name}: {result.cycles:,} cycles", timeline, device)
    if correct is False:
        raise typer.Exit(1)


def _execute(device: Config, sizes: tuple[int, int, int], form: WeightFormat, chosen: Chosen, backend: str,
             timing_only: bool, seed: int) -> tuple[ProductProgram, Result, float, bool | None]:
    """The program, what the device reports, seconds of the simulation, and whether the data are right."""
    import numpy as np

    from gemmule.compiler.program import NO_DRAM
    from gemmule.compiler.programs.product import compile_product
    from gemmule.io.progress import say
    from gemmule.resolve import FAULTS
    from gemmule.sim.simulator import Simulator
    from gemmule.sw.device.backends import DeviceError, open_device
    from gemmule.sw.workloads.estimate import estimate, patiently
    from gemmule.sw.workloads.programs import product

    flow, mapping = chosen.space.dataflows[0], chosen.mapping
    cost = estimate(device, sizes, form, flow, backend=backend, timing_only=timing_only)
    cost.announce(f"{'x'.join(map(str, sizes))} on {backend}", "--timing-only needs no data" if not timing_only and
                  cost.simulating > cost.compiling else "a smaller shape is quicker")
    with patiently("compiling the product", cost.compiling):
        if timing_only:
            program = compile_product(device, *sizes, weights=form, dataflow=flow, mapping=mapping)
            case = program.launch("gemm", NO_DRAM, program.registers())
        else:
            work = product(device, *sizes, seed, weights=form, dataflow=flow, mapping=mapping)
            program, case = work.program, work.case
    target = open_device(backend, device, 1 if timing_only else len(case.dram))
    try:
        target.load(case)
        with patiently(f"simulating on {backend}", cost.simulating):
            if isinstance(target, Simulator):
                target.run(timing_only=True)  # loads the compiled engine: the second run is timed
            begin = time.perf_counter()
            result = target.run(timing_only=True) if isinstance(target, Simulator) and timing_only else target.run()
            seconds = time.perf_counter() - begin
        if result.fault:
            raise DeviceError(f"device fault {FAULTS[result.fault]} at command {result.fault_index}")
        correct = None
        if not timing_only:
            correct = bool(np.array_equal(program.read_output(target.read_dram), work.expected))
    finally:
        target.close()
    rate = float(f"{result.cycles / seconds:.2g}")
    say(f"simulated in {seconds:.2g} s ({rate:,.0f} cycles per second)")
    return program, result, seconds, correct


def _record(device: Config, program: ProductProgram, result: Result) -> dict[str, Any]:
    """What the device and the program say, for ``--json``."""
    from gemmule.sim.roofline import roofline_cycles

    ideal = roofline_cycles(program.roofline_bytes, device)
    moved = sum(result.dram_bytes.values()) // device.bus_bytes * device.dram.beat_cycles / result.cycles
    macs = program.utilization(result.cycles)
    return {
        "commands": len(result.issue), "mapping": program.describe(),
        "clock_mhz": device.host.clock_mhz, "cycles": result.cycles,
        "milliseconds": result.cycles / device.host.clock_mhz / 1000,
        "utilization": macs, "dram_bytes": program.dram_bytes, "dram_bound": moved,
        "roofline_cycles": ideal, "roofline_fraction": ideal / result.cycles,
        "bound": "memory" if moved >= macs else "compute", "counters": result.counters,
    }


def _print(out: Output, device: Config, program: ProductProgram, record: dict[str, Any]) -> None:
    from gemmule.sw.reports.energy import energy_line
    from gemmule.sw.reports.terminal import counters_table

    r = record
    out.print(f"{r['shape']} {r['dataflow']} {r['weights']} on {r['backend']}: {r['cycles']:,} cycles "
              f"({r['milliseconds']:.3g} ms at {device.host.clock_mhz} MHz), {r['utilization']:.1%} of peak MACs, "
              f"{r['roofline_fraction']:.1%} of the memory roofline (each operand moved once)")
    out.print(f"{r['bound']}-bound: DRAM bus busy in {r['dram_bound']:.1%} of cycles ({r['dram_bytes']:,} bytes), "
              f"mesh in {r['utilization']:.1%} (MACs at its peak)")
    out.print(f"{r['commands']:,} commands; mapping: {r['mapping']}")
    out.console.print(counters_table(r["counters"]))
    if r["energy"]:
        out.print(energy_line(r["energy"]))
    if r["correct"] is not None:
        out.print("result equals numpy" if r["correct"] else "result differs from numpy",
                  style=None if r["correct"] else "red")
