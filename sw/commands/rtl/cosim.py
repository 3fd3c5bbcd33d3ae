"""``gemmule cosim``: one program on the RTL and on the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.commands.shared.common import (
    ConfigOption,
    JsonOption,
    Output,
    SeedOption,
    ShapeOption,
    read_config,
    write_trace,
)
from gemmule.sw.errors import InputError
from gemmule.sw.limits import POSITION, ROWS, parse_shape
from gemmule.sw.reports.files import check_writable

if TYPE_CHECKING:
    from gemmule.isa import Command

__all__ = ["cosim"]

KNOWN = ("gemm", "target", "draft")


def cosim(
    context: typer.Context,
    program: Annotated[str, typer.Argument(
        metavar="PROGRAM", help="gemm (a product), or target or draft (one pass of a bundled model).",
        autocompletion=lambda: list(KNOWN))] = "gemm",
    config: ConfigOption = "base",
    shape: ShapeOption = "64x128x64",
    rows: Annotated[int, typer.Option(
        "--rows", metavar="N", help=f"New rows (tokens) of a model's pass, {ROWS}; fewer on devices with small "
                                    "memories.",
        callback=lambda n: ROWS.check("--rows", n))] = 4,
    position: Annotated[int, typer.Option(
        "--position", metavar="N", callback=lambda n: POSITION.check("--position", n),
        help=f"Cached rows before a model's pass, {POSITION}; together with the new rows at most {POSITION.high + 1}.",
    )] = 32,
    waves: Annotated[bool, typer.Option(
        "--waves", help="Keep a waveform (FST, with a layout for GTKWave) and a trace of the RTL run for "
                         "ui.perfetto.dev in build/waves, even if there is no difference.")] = False,
    wave: Annotated[Path | None, typer.Option(
        "--wave", metavar="FILE.fst", show_default=False, callback=lambda path: check_writable("--wave", path),
        help="As --waves, with this file as the waveform; layout and trace are beside it.")] = None,
    trace: Annotated[Path | None, typer.Option(
        "--trace", metavar="FILE", show_default=False, callback=lambda path: check_writable("--trace", path),
        help="Write the commands of the RTL run as a trace for ui.perfetto.dev; FILE.gz is compressed.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Run one program on RTL and model; compare every DRAM byte, every command's cycles and all counters.

    Exit code 1 on a difference; the first one is shown, and a waveform of the program is kept.

    \b
    Examples:
      gemmule cosim gemm --shape 60x50x30 --config tiny
      gemmule cosim target --rows 4 --position 32
      gemmule cosim gemm --shape 8x8x8 --config tiny --wave build/product.fst
    """
    if wave is not None and wave.suffix != ".fst":
        raise InputError(f"--wave must name a file that ends in .fst, not {str(wave)!r}; GTKWave's fst2vcd makes a VCD")
    if program not in KNOWN:
        raise InputError(f"PROGRAM must be {', '.join(KNOWN[:-1])} or {KNOWN[-1]}, not {program!r}")
    others = ("rows", "position") if program == "gemm" else ("shape",)
    for name in others:
        if (source := context.get_parameter_source(name)) and source.name != "DEFAULT":
            raise InputError(f"--{name} is not for {program}; leave it out")
    out = Output(json)
    device = read_config(config)

    from gemmule.compiler.layout import WeightFormat
    from gemmule.sim.rtl.cosim import cosim as compare
    from gemmule.sim.rtl.device import RtlDevice
    from gemmule.sim.rtl.waveform import record_waveform
    from gemmule.sim.simulator import Simulator
    from gemmule.sw.device.timeline import timeline_of
    from gemmule.sw.workloads.estimate import estimate
    from gemmule.sw.workloads.programs import decode_launch, product

    if program == "gemm":
        sizes = parse_shape(shape)
        estimate(device, sizes, WeightFormat(), "ws", backend="rtl").announce(f"{shape} on rtl", "use a smaller shape")
        case = product(device, *sizes, seed).case
    else:
        case = decode_launch(program, device, rows, position, seed)
    simulator = Simulator(device, dram_bytes=len(case.dram))
    with RtlDevice(device) as rtl:
        report = compare(case, simulator, rtl)
    if report.text:
        out.print(report.text)
    out.print(
        f"{case.name} on {device.name}, seed {seed}: {len(report.expected.issue):,} commands, model "
        f"{report.expected.cycles:,} cycles, RTL {report.seen.cycles:,}; {report.byte_differences} byte "
        f"differences, {report.cycle_differences} cycle differences, {report.counter_differences} counter differences")
    waveform = None
    timeline = timeline_of(case.name, [report.seen], _commands(case.image), device)
    if waves or wave or not report.ok:
        try:
            waveform = record_waveform(case, device, path=wave)
        except OSError as error:
            raise InputError(
                f"--waves needs a working folder that can be written: {error.strerror}: {error.filename!r}") from None
        trace = trace or waveform.path.with_suffix(".json.gz")
        for text in (f"waveform: {waveform.path}", f"layout: {waveform.layout}", f"to open: {waveform.command}"):
            out.console.print(text, markup=False, soft_wrap=True)
    write_trace(trace, timeline, device)
    out.write("cosim", device, {
        "program": case.name, "seed": seed, "commands": len(report.expected.issue),
        "cycles_model": report.expected.cycles, "cycles_rtl": report.seen.cycles,
        "byte_differences": report.byte_differences, "cycle_differences": report.cycle_differences,
        "counter_differences": report.counter_differences, "waveform": str(waveform.path) if waveform else None,
        "layout": str(waveform.layout) if waveform else None, "trace": str(trace) if trace else None,
    })
    if not report.ok:
        raise typer.Exit(1)


def _commands(image: bytes) -> list[Command]:
    """Commands of a program, each with the name of its operation, as a trace shows it."""
    from gemmule.isa import COMMAND_BYTES, decode, disassemble

    words = (image[at:at + COMMAND_BYTES] for at in range(0, len(image), COMMAND_BYTES))
    found = [decode(int.from_bytes(word, "little")) for word in words]
    return [replace(command, note=disassemble(command).split()[0]) for command in found]
