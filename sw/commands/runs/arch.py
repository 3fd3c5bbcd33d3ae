"""``gemmule run arch``: a known architecture by shape alone, with cycles by layer and operation, and over a length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ActivationOption,
    AttentionOption,
    ConfigOption,
    FusionOption,
    JsonOption,
    Output,
    SoftmaxOption,
    choice,
    conditions,
    read_config,
)
from gemmule.sw.commands.shared.prune import ScheduleOption
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ARCHITECTURES, BITS, LAYER_SEARCHES, PHASES, SWEPT, check_choice

if TYPE_CHECKING:
    from gemmule.compiler.importers.architectures import Architecture
    from gemmule.config import Config
    from gemmule.sw.workloads.architectures import Work

__all__ = ["arch"]

NAMES = ", ".join(ARCHITECTURES)
ARCH_PHASES = ("auto", *PHASES, "encode")


def arch(
    name: Annotated[str, typer.Argument(
        metavar="NAME", help=f"One of {NAMES}.", autocompletion=lambda: list(ARCHITECTURES),
        callback=lambda value: check_choice("NAME", value, ARCHITECTURES))],
    config: ConfigOption = "base",
    phase: Annotated[str, choice(
        "--phase", ARCH_PHASES, "decode (one pass after --seq cached positions), prefill (--seq tokens, in passes) "
        "or, for encoders only, encode (a sequence of --seq tokens); auto: decode or encode.",
    )] = "auto",
    seq: Annotated[int, typer.Option(
        "--seq", metavar="N", help="Cached positions, or tokens of the prefill, per sequence.")] = 128,
    rows: Annotated[int, typer.Option(
        "--rows", metavar="M", min=0,
        help="New rows per pass and sequence; 0: 1 for decode, for prefill 16 or what the device takes.")] = 0,
    batch: Annotated[int, typer.Option("--batch", metavar="B", help="Sequences per pass, each with its "
                                                                    "own cache.")] = 1,
    bits: Annotated[str, choice("--bits", BITS, "Weights of the layers: int8, or int4 in groups.")] = "int8",
    head_bits: Annotated[str, choice(
        "--head-bits", BITS, "Weights of the logits, which `gemmule import` keeps at int8.")] = "int8",
    group: Annotated[int, typer.Option(
        "--group", metavar="N",
        help="Rows of depth that share an int4 scale, a power of two; 0: 32, or the mesh's rows if it has more.")] = 0,
    context: Annotated[int, typer.Option(
        "--context", metavar="N",
        help="Maximum number of positions of the program; 0: the network's context, for prefill its tokens.")] = 0,
    effort: Annotated[int, typer.Option(
        "--effort", metavar="N", min=1, max=64,
        help="Number of fitting mappings to simulate; the one with the fewest cycles is used. 1: the first "
             "that fits.")] = 1,
    attention: AttentionOption = "exact",
    softmax: SoftmaxOption = "exact",
    activation: ActivationOption = "table",
    fusion: FusionOption = "on",
    search: Annotated[str, choice(
        "--search", LAYER_SEARCHES,
        "Mapping of an encoder's layer: the first that fits, or each fused phase's optimum by branch and bound, "
        "certified on the simulator.")] = "first",
    prune: ScheduleOption = None,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Show what the search tried, what each bound cut, what won, and why "
                          "the rest lost.")] = False,
    sweep: Annotated[str | None, typer.Option(
        "--sweep", metavar="|".join(SWEPT), autocompletion=lambda: list(SWEPT),
        callback=lambda value: value and check_choice("--sweep", value, SWEPT),
        help="Run prefill and decode, or encode, over several values of: positions, rows of a pass, layers, or "
             "columns.")] = None,
    values: Annotated[str, typer.Option(
        "--values", metavar="A,B,..", help="Values of --sweep. Default: some around the network's own.")] = "",
    figure: Annotated[Path | None, typer.Option(
        "--figure", metavar="FILE", help="Draw cycles by operation (SVG, PNG or PDF; extra figures).")] = None,
    json: JsonOption = None,
) -> None:
    """Time a known network from its published shape: no weights, exact cycles.

    The importers of `gemmule import` read its config.json. Its program is compiled like an imported model's and run
    without data; compiled programs are kept in the cache.

    \b
    Examples:
      gemmule run arch gpt2 --seq 512
      gemmule run arch llama-68m --phase prefill --seq 64 --bits int4
      gemmule run arch llama-68m --sweep seq --values 64,256,1024
      gemmule run arch bert-base --search branch-and-bound --explain
      gemmule run arch gpt2 --seq 960 --prune examples/pruning/half.yaml
    """
    if explain and search == "first":
        raise InputError("--explain needs a --search that simulates, not first: use --search branch-and-bound")
    if values and not sweep:
        raise InputError("--values needs --sweep: say which length they are")
    if prune and sweep:
        raise InputError("--prune goes without --sweep, whose prompts are not pruned: leave one out")
    out, device = Output(json), read_config(config)

    from gemmule.compiler.importers.architectures import architecture
    from gemmule.io.progress import say, stderr
    from gemmule.sw.reports.figures import check_figure, operators_figure, sweep_figure
    from gemmule.sw.workloads.architectures import Work, run_architecture
    from gemmule.sw.workloads.token_pruning import load_schedule

    found = architecture(name)
    work = Work(phase=phase, seq=seq, rows=rows, batch=batch, bits=bits, head_bits=head_bits, group=group,
                context=context, effort=effort, search=search, attention=attention, softmax=softmax,
                activation=activation, fusion=fusion, pruning=load_schedule(prune, encoder=found.graph().encoder))
    if figure:
        check_figure(figure)
    with stderr.status(f"compiling and timing {name}"):
        record = run_architecture(found, device, work)
    say(f"compiled in {record['compile_seconds']:.2g} s, simulated in {record['simulation_seconds']:.2g} s")
    points = _sweep(found, device, work, sweep, values) if sweep else None
    out.print(conditions(device), style="dim")
    _print(out, device, record)
    if explain:
        out.lines(record["search"]["explained"])
    if points:
        _print_sweep(out, str(sweep), points)
    if figure:
        if points:
            sweep_figure(figure, name, str(sweep), points)
        else:
            operators_figure(figure, name, record)
    out.write("run-arch", device, record | {"sweep": points})


def _sweep(found: Architecture, device: Config, work: Work, what: str, text: str) -> list[dict[str, Any]]:
    """Decode and prefill at each value."""
    from gemmule.io.progress import stderr
    from gemmule.sw.workloads.architectures import sweep_values, swept

    values = sweep_values(found, work, what, text)
    points = []
    phases = ("encode",) if found.graph().encoder else ("decode", "prefill")
    for value in values:
        for phase in phases:
            with stderr.status(f"{phase}, {what} {value}"):
                points.append(swept(found, device, replace(work, phase=phase), what, value))
    return points


def _print(out: Output, device: Config, r: dict[str, Any]) -> None:
    from rich.table import Table

    from gemmule.sw.reports.schedules import pruned_line

    what = {"decode": f"{r['rows']} row{'s' * (r['rows'] > 1)} behind {r['seq']}",
            "prefill": f"{r['seq']} tokens, {r['rows']} a pass",
            "encode": f"a sequence of {r['seq']} tokens"}[r["phase"]]
    what += f", of {r['batch']} sequences" if r["batch"] > 1 else ""
    bits = r["bits"] if r["bits"] == r["head_bits"] else f"{r['bits']}, logits {r['head_bits']}"
    out.print(f"{r['architecture']} ({r['parameters']:,} parameters, {bits}), {r['phase']}, {what}: "
              f"{r['cycles']:,} cycles ({r['milliseconds']:.3g} ms at {device.host.clock_mhz} MHz), "
              f"{r['tokens_per_second']:.3g} tokens per second with the host's part")
    out.print(f"{r['roofline_fraction']:.1%} of the memory roofline, {r['utilization']:.1%} of peak MACs; "
              f"{r['dram_bytes']:,} bytes from and to DRAM")
    out.print(f"program of {r['program_commands']:,} commands ({r['program_bytes']:,} bytes), {r['commands']:,} run in "
              f"{r['passes']:,} pass{'es' * (r['passes'] > 1)}; attention's scores are {r['scores']}")
    if r["kept_rows_by_layer"]:
        out.print(pruned_line(r))
    if r["search"]:
        found = r["search"]["phases"]
        gain = sum(part["cycles_first"] for part in found) / sum(part["cycles"] for part in found) - 1
        certified = "each certified" if all(part["certified"] for part in found) else "not all certified"
        out.print(f"mapping of a layer's phases by {r['search']['method']}, {certified}: {gain:.2%} fewer cycles than "
                  f"the first that fits, found in {sum(part['search_seconds'] for part in found):.2g} s")
    table = Table(box=None, pad_edge=False)
    for name in ("operation", "cycles", "of the mesh", "of the vector unit", "MACs", "bytes needed"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for part in (part for part in r["operators"] if part["cycles"] or part["network_bytes"]):
        table.add_row(part["name"], *(f"{part[key]:,}" for key in (
            "cycles", "matrix_cycles", "vector_cycles", "macs", "network_bytes")))
    out.console.print(table)


def _print_sweep(out: Output, what: str, points: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in (what, "phase", "cycles", "ms", "cycles a token", "M MACs", "MB needed", "operations a byte",
                 "of roofline", "of peak"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for p in points:
        millions = (f"{p[key] / 1e6:,.1f}" for key in ("macs", "network_bytes"))
        table.add_row(f"{p['value']:,}", p["phase"], f"{p['cycles']:,}", f"{p['milliseconds']:.3g}",
                      f"{p['cycles_per_token']:,.0f}", *millions, f"{p['operations_per_byte']:.2f}",
                      f"{p['roofline_fraction']:.1%}", f"{p['utilization']:.1%}")
    out.console.print(table)
    for value in dict.fromkeys(p["value"] for p in points if p["phase"] == "decode"):
        decode, prefill = ({p["phase"]: p for p in points if p["value"] == value}[phase]
                           for phase in ("decode", "prefill"))
        out.print(f"{what} {value:,}: a generated token takes "
                  f"{decode['cycles_per_token'] / prefill['cycles_per_token']:.2f} times the cycles of a prompt token")
