"""``gemmule compile``: an imported model as a program, with what every pass made of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, read_config
from gemmule.sw.errors import InputError
from gemmule.sw.models.published import PUBLISHED
from gemmule.sw.reports.files import write_file

if TYPE_CHECKING:
    from gemmule.compiler.passes.notes import Notes
    from gemmule.compiler.programs.model_program import ModelProgram

__all__ = ["compile_"]


def compile_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model file written by `gemmule import`, or "
                                                              "smollm2.")],
    config: ConfigOption = "base",
    rows: Annotated[int, typer.Option("--rows", metavar="M", help="Maximum number of new rows in a pass.")] = 1,
    context: Annotated[int | None, typer.Option(
        "--context", metavar="N", show_default=False,
        help="Maximum number of positions, cached and new. Default: the model's context.")] = None,
    tokens: Annotated[bool, typer.Option(
        "--tokens/--logits", help="Return greedy tokens, chosen on the device, or logits.")] = True,
    effort: Annotated[int, typer.Option(
        "--effort", metavar="N", min=1, max=64,
        help="Number of fitting mappings to simulate; the one with the fewest cycles is used. 1: the first "
             "that fits.")] = 1,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Show which mappings were tried, why they were rejected, and which one "
                          "was chosen.")] = False,
    dump_passes: Annotated[bool, typer.Option(
        "--dump-passes", help="Print what every pass produced: graph, operators, items, rows, commands.")] = False,
    image: Annotated[Path | None, typer.Option("--save-image", metavar="FILE",
        help="Also write the program image to this file: 32 bytes per command.")] = None,
    json: JsonOption = None,
) -> None:
    """Compile an imported model for a device: one program for all passes, verified.

    \b
    Examples:
      gemmule compile model.safetensors --rows 8 --explain
      gemmule compile model.safetensors --config edge --dump-passes
    """
    if file.is_dir() and str(file) not in PUBLISHED:
        raise InputError(f"{file} is a directory: `gemmule import {file} --calibrate TEXTFILE --out FILE` first")
    out, device = Output(json), read_config(config)

    from gemmule.compiler.passes.notes import Notes, described
    from gemmule.compiler.search.decoder import compile_best
    from gemmule.io.progress import say, stderr
    from gemmule.sw.models.quantised import read_model

    network = read_model(file).network
    most = network.graph.whole_positions
    if context is not None and not 1 <= context <= most:
        raise InputError(f"--context must be from 1 to {most:,} (what the model sees), not {context}")
    notes = Notes() if explain or dump_passes else None
    begin = time.perf_counter()
    with stderr.status("compiling"):
        program = compile_best(network, device, effort=effort, rows=rows, context=context, tokens=tokens,
                               notes=notes)
    seconds = time.perf_counter() - begin
    if image is not None:
        write_file(image, program.image, "--save-image")
    say(f"compiled and verified in {seconds:.2g} s")
    if notes and dump_passes:
        for name, text in notes.passes.items():
            out.lines([f"== {name}", *text.splitlines(), ""])
    if notes and explain:
        _explain(out, notes)
    record = {
        "file": str(file), "rows": rows, "context": program.max_positions, "answers": "tokens" if tokens else "logits",
        "commands": len(program.commands), "program_bytes": len(program.image), "compile_seconds": seconds,
        "dram_bytes": program.size, "regions": {name: size for name, (_, size) in program.symbols.items()},
        "scores": program.scores,
        "mapping": described(notes.mapping) if notes and notes.mapping else None,
        "tried": [described(lost.mapping) | {"apart": lost.apart, "why": lost.why} for lost in notes.tried]
        if notes else None}
    _print(out, program, record)
    out.write("compile", device, record)


def _explain(out: Output, notes: Notes) -> None:
    """Every mapping that was tried, and the one that fits."""
    from gemmule.compiler.passes.notes import described

    assert notes.mapping is not None
    won = described(notes.mapping) | {"banks": "by class" if notes.apart else "shared"}
    for number, lost in enumerate(notes.tried, 1):
        there = described(lost.mapping) | {"banks": "by class" if lost.apart else "shared"}
        differs = ", ".join(f"{name} {value}" for name, value in there.items() if value != won.get(name))
        out.print(f"tried {number}: {differs or 'as below'}: {lost.why}")
    searched = any(lost.cycles is not None for lost in notes.tried)
    how = "the one of fewest cycles" if searched else "the first that fits, " + (
        f"number {len(notes.tried) + 1}" if notes.tried else "at once")
    out.print(f"takes {how}: "
              + ", ".join(f"{name} {value}" for name, value in won.items()))


def _print(out: Output, program: ModelProgram, r: dict[str, Any]) -> None:
    out.print(f"{r['rows']} new rows at most, context {r['context']:,}, {r['answers']}: {r['commands']:,} commands, "
              f"{r['program_bytes']:,} bytes; attention's scores are {r['scores']}")
    out.print(f"DRAM {r['dram_bytes']:,} bytes: "
              + ", ".join(f"{name} {size:,}" for name, size in r["regions"].items()))
