"""``gemmule run gemm``: one product on the device, with cycles, utilisation and traffic."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import typer

from gemmule.compiler.gemm import compile_gemm
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.tile import DATAFLOWS
from gemmule.resolve import FAULTS
from gemmule.sim.result import Result
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator
from gemmule.sw.commands.common import (
    ConfigOption,
    JsonOption,
    SeedOption,
    ShapeOption,
    conditions,
    console,
    parse_shape,
    read_config,
    write_json,
)
from gemmule.sw.device import BACKENDS, Device, DeviceError, open_device
from gemmule.sw.programs import product
from gemmule.sw.text import InputError

__all__ = ["run_app"]

run_app = typer.Typer(help="Run a workload on the device.", no_args_is_help=True)


@run_app.callback()
def _group() -> None:
    """Run a workload on the device."""


@run_app.command("gemm")
def gemm(
    shape: ShapeOption = "512x768x768",
    config: ConfigOption = "base",
    dataflow: Annotated[str, typer.Option(
        "--dataflow", help="ws (weights stay in the mesh) or os (sums stay).")] = "ws",
    weights: Annotated[str, typer.Option("--weights", help="int8 or int4 (packed).")] = "int8",
    group_size: Annotated[int, typer.Option(
        "--group-size", help="K elements per int4 scale: DIM times a power of two; 0: none.")] = 0,
    backend: Annotated[str, typer.Option("--backend", help="model or rtl.")] = "model",
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Cycles without data (model only).")] = False,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """C[M,N] = requantised A[M,K] B[K,N], int8 from DRAM and back; the result is checked against numpy.

    Example: gemmule run gemm --shape 512x768x768 --timing-only

    Example: gemmule run gemm --shape 1x768x3072 --weights int4 --group-size 64
    """
    device = read_config(config)
    sizes = parse_shape(shape)
    if backend not in BACKENDS:
        raise InputError(f"--backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    for option, value, known in (("--dataflow", dataflow, DATAFLOWS), ("--weights", weights, ("int8", "int4"))):
        if value not in known:
            raise InputError(f"{option} must be one of {', '.join(known)}, not {value!r}")
    form = WeightFormat(int(weights.removeprefix("int")), group_size)
    if timing_only and backend != "model":
        raise InputError("--timing-only needs --backend model, not rtl; drop one of the two")
    if timing_only:
        program = compile_gemm(device, *sizes, weights=form, dataflow=dataflow)
        case = program.launch(f"gemm {shape}", NO_DRAM, program.registers())
        simulator = Simulator(device, dram_bytes=1)
        target: Device = simulator
        run: Callable[[], Result] = partial(simulator.run, timing_only=True)
    else:
        work = product(device, *sizes, seed, weights=form, dataflow=dataflow)
        program, case = work.program, work.case
        target = open_device(backend, device, len(case.dram))
        run = target.run
    target.load(case)
    if isinstance(target, Simulator):
        target.run(timing_only=True)  # loads the compiled engine: the second run is timed
    begin = time.perf_counter()
    result: Result = run()
    seconds = time.perf_counter() - begin
    if result.fault:
        raise DeviceError(f"device fault {FAULTS[result.fault]} at command {result.fault_index}")
    correct = None
    if not timing_only:
        correct = bool(np.array_equal(program.read_output(target.read_dram), work.expected))
    target.close()
    ideal = roofline_cycles(program.roofline_bytes, device)
    record = {
        "shape": shape, "dataflow": dataflow, "weights": weights, "group_size": group_size,
        "config": device.name, "backend": backend, "seed": seed, "commands": len(result.issue),
        "mapping": program.plan.describe(device.dim),
        "cycles": result.cycles, "utilization": program.utilization(result.cycles),
        "dram_bytes": program.dram_bytes, "roofline_cycles": ideal, "roofline_fraction": ideal / result.cycles,
        "simulation_seconds": seconds, "correct": correct, "counters": result.counters,
    }
    console.print(f"[dim]{conditions(device)}; seed {seed}[/dim]")
    console.print(
        f"{shape} {dataflow} {weights} on {backend}: {result.cycles:,} cycles, "
        f"{record['utilization']:.1%} of peak MACs, "
        f"{record['roofline_fraction']:.1%} of the memory roofline, {program.dram_bytes:,} DRAM bytes, "
        f"{len(result.issue)} commands")
    console.print(f"  mapping: {program.plan.describe(device.dim)}")
    for unit, split in result.counters.items():
        console.print(f"  {unit}: " + ", ".join(f"{k} {v:,}" for k, v in split.items()))
    console.print(f"simulated in {seconds:.4f} s ({result.cycles / seconds:,.0f} cycles per second)")
    if correct is not None:
        console.print("result equals numpy" if correct else "[red]result differs from numpy[/red]")
    write_json(json, record)
    if correct is False:
        raise typer.Exit(1)
