"""``gemmule cosim``: one program on the RTL and on the model."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmule.sim.rtl.cosim import cosim as compare
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.rtl.waveform import record_waveform
from gemmule.sim.simulator import Simulator
from gemmule.sw.commands.common import (
    ConfigOption,
    JsonOption,
    SeedOption,
    ShapeOption,
    console,
    parse_shape,
    read_config,
    write_json,
)
from gemmule.sw.programs import decode_launch, product
from gemmule.sw.text import InputError

__all__ = ["cosim"]


def cosim(
    program: Annotated[str, typer.Argument(help="gemm, target or draft (one pass of a bundled model).")] = "gemm",
    config: ConfigOption = "base",
    shape: ShapeOption = "64x128x64",
    rows: Annotated[int, typer.Option("--rows", help="New rows of a model's pass.")] = 4,
    position: Annotated[int, typer.Option("--position", help="Context length of a model's pass.")] = 32,
    waves: Annotated[bool, typer.Option(
        "--waves", help="Keep a waveform (FST, and a layout for GTKWave) even without a difference.")] = False,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Run one program on RTL and model; compare every DRAM byte, every command's cycles and all counters.

    Exit code 1 on a difference; the first one is shown, and a waveform of the program is kept.

    Example: gemmule cosim gemm --shape 60x50x30 --config tiny
    """
    device = read_config(config)
    if program == "gemm":
        case = product(device, *parse_shape(shape), seed).case
    elif program in ("target", "draft"):
        case = decode_launch(program, device, rows, position, seed)
    else:
        raise InputError(f"PROGRAM must be gemm, target or draft, not {program!r}")
    simulator = Simulator(device, dram_bytes=len(case.dram))
    with RtlDevice(device) as rtl:
        report = compare(case, simulator, rtl)
    if report.text:
        console.print(report.text, markup=False)
    console.print(
        f"{case.name} on {device.name}, seed {seed}: {len(report.expected.issue)} commands, model "
        f"{report.expected.cycles:,} cycles, RTL {report.seen.cycles:,}; {report.byte_differences} byte "
        f"differences, {report.cycle_differences} cycle differences, {report.counter_differences} counter differences")
    waveform = None
    if waves or not report.ok:
        try:
            waveform = record_waveform(case, device)
        except OSError as error:
            raise InputError(
                f"--waves needs a working folder that can be written: {error.strerror}: {error.filename!r}") from None
        for text in (f"waveform: {waveform.path}", f"layout: {waveform.layout}", f"to open: {waveform.command}"):
            console.print(text, markup=False, soft_wrap=True)
    write_json(json, {
        "program": case.name, "config": device.name, "seed": seed,
        "cycles_model": report.expected.cycles, "cycles_rtl": report.seen.cycles,
        "byte_differences": report.byte_differences, "cycle_differences": report.cycle_differences,
        "counter_differences": report.counter_differences, "waveform": str(waveform.path) if waveform else None,
        "layout": str(waveform.layout) if waveform else None,
    })
    if not report.ok:
        raise typer.Exit(1)
