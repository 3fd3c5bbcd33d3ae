"""``gemmule run model``: passes of an imported model, with cycles, traffic and what each layer and operation takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ConfigOption,
    FigureOption,
    FusionOption,
    JsonOption,
    Output,
    SeedOption,
    TraceOption,
    choice,
    conditions,
    read_config,
    write_trace,
)
from gemmule.sw.commands.shared.energy import EnergyOption, read_energy
from gemmule.sw.commands.shared.prune import ScheduleOption
from gemmule.sw.commands.shared.texts import read_text
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ACTIVATION, ATTENTION, BACKENDS, DEFAULT, MODELS_FOLDER, PHASES, SOFTMAX, check_choice
from gemmule.sw.models.published import PUBLISHED

if TYPE_CHECKING:
    from gemmule.compiler.files.model_file import ModelFile
    from gemmule.compiler.ir import Network, TokenPruning
    from gemmule.config import Config
    from gemmule.isa import Command
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.workloads.passes import EncoderPasses, Passes

__all__ = ["model"]


def _instead(option: str, known: tuple[str, ...], text: str) -> Any:
    """An option that changes what the file says."""
    return typer.Option(
        option, help=text, metavar="|".join(known), show_default=False, autocompletion=lambda: list(known),
        callback=lambda value: value and check_choice(option, value, known))


MODEL_PHASES = ("auto", *PHASES, "encode")


def model(
    file: Annotated[Path, typer.Argument(
        metavar="FILE", help="A model file written by `gemmule import`; or encoder, or smollm2.")],
    config: ConfigOption = "base",
    phase: Annotated[str, choice(
        "--phase", MODEL_PHASES, "decode (one pass after --seq cached positions), prefill (--seq tokens, in passes) "
        "or, for encoders only, encode (a sequence of --seq tokens); auto: decode or encode.",
    )] = "auto",
    seq: Annotated[int, typer.Option(
        "--seq", metavar="N", help="Cached positions, or tokens of the prefill, per sequence.")] = 128,
    rows: Annotated[int, typer.Option("--rows", metavar="M", help="New rows per pass and sequence.")] = 1,
    batch: Annotated[int, typer.Option("--batch", metavar="B", help="Sequences per pass, each with its "
                                                                    "own cache.")] = 1,
    attention: Annotated[str | None, _instead(
        "--attention", ATTENTION, "Attention, instead of the file's: exact, standard (the same numbers through DRAM) "
        "or online (in blocks of keys).")] = None,
    softmax: Annotated[str | None, _instead(
        "--softmax", SOFTMAX, "Exponential of softmax, instead of the file's (docs/studies.md).")] = None,
    activation: Annotated[str | None, _instead(
        "--activation", ACTIVATION, "Form of activation functions, instead of the file's, which must be table.",
    )] = None,
    fusion: FusionOption = "on",
    prune: ScheduleOption = None,
    backend: Annotated[str, choice(
        "--backend", BACKENDS, "model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    effort: Annotated[int, typer.Option(
        "--effort", metavar="N", min=1, max=64,
        help="Number of fitting mappings to simulate; the one with the fewest cycles is used. 1: the first "
             "that fits.")] = 1,
    timing_only: Annotated[bool, typer.Option("--timing-only", help="Compute cycles without data "
                                                                    "(model only).")] = False,
    trace: TraceOption = None,
    figure: FigureOption = None,
    text: Annotated[Path | None, typer.Option(
        "--text", metavar="TEXTFILE", show_default=False,
        help="For classifiers: use up to --seq tokens from the beginning of this UTF-8 text instead of random tokens, "
        "and print the labels. '-': standard input.")] = None,
    energy: EnergyOption = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Run passes of an imported model on the device; compare the output with the integer interpreter's.

    Tokens and, for decode, the cached keys and values are random, unless --text is given. Exit code 1 if a number
    differs. FILE may be encoder, the bundled one, which classifies packages of Python's standard library.

    \b
    Examples:
      gemmule run model model.safetensors --seq 32
      gemmule run model model.safetensors --seq 100 --batch 8
      gemmule run model model.safetensors --phase prefill --seq 32 --rows 8 --config edge
      gemmule run model bert.safetensors --seq 128
      gemmule run model encoder --text program.py
      gemmule run model bert.safetensors --seq 256 --prune schedule.yaml
      gemmule run model smollm2 --seq 900 --prune examples/pruning/half.yaml
    """
    if timing_only and backend != "model":
        raise InputError("--timing-only needs --backend model, not rtl; drop one of the two")
    if text and timing_only:
        raise InputError("--text needs the data, which --timing-only leaves out; drop one of the two")
    if file.is_dir() and str(file) not in PUBLISHED:
        raise InputError(f"{file} is a directory: `gemmule import {file} --calibrate TEXTFILE --out FILE` first")
    out, device, prices = Output(json), read_config(config), read_energy(energy)

    from gemmule.io.progress import say
    from gemmule.sw.device.timeline import timeline_of
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.models.choices import activation_name, attention_of, choose, softmax_name
    from gemmule.sw.reports.energy import energy_record
    from gemmule.sw.reports.figures import check_figure, run_figure
    from gemmule.sw.workloads.labels import first_window
    from gemmule.sw.workloads.pruned_passes import check_pruned
    from gemmule.sw.workloads.token_pruning import load_schedule, schedule_record

    if figure:
        check_figure(figure)
    words = read_text(text, f"--text {text}") if text else None
    loaded = _loaded(file)
    pruning = load_schedule(prune, encoder=loaded.network.graph.encoder)
    network, standard = choose(loaded.network, attention, softmax, activation), attention == "standard"
    phase = _phase(phase, network.graph.encoder, str(file))
    rows = _checked_rows(phase, seq, rows, batch, network.graph.whole_positions)
    if isinstance(pruning, Pruning):
        check_pruned(pruning, phase=phase, seq=seq, rows=rows, batch=batch, attention=attention_of(network, standard),
                     fusion=fusion)
    tokens = first_window(loaded, str(file), words, seq, "--text") if words is not None else None
    ran = (_encoded if phase == "encode" else _decoded)(_Work(
        network=network, device=device, phase=phase, seq=seq, rows=rows, batch=batch, standard=standard,
        fused=fusion == "on", effort=effort, pruning=pruning, backend=backend, seed=seed, timing_only=timing_only,
        tokens=tokens, labels=loaded.labels,
        name=loaded.sha256 if network is loaded.network else f"{loaded.sha256} {attention} {softmax} {activation}"))
    say(f"compiled in {ran.compile_seconds:.2g} s, simulated in {ran.seconds:.2g} s")
    record = ran.passes.record() | ran.pruned | {
        "file": str(file), "phase": phase, "seq": ran.seq, "rows": ran.rows, "batch": batch, "backend": backend,
        "attention": attention_of(network, standard), "softmax": softmax_name(network),
        "activation": activation_name(network), "fusion": fusion, "seed": seed,
        "prune": schedule_record(pruning),
        "compile_seconds": ran.compile_seconds, "simulation_seconds": ran.seconds,
        "labels": ran.labels, "output_equals_interpreter": None if timing_only else ran.passes.equal,
        "energy": energy_record(
            ran.passes.events, device, prices, tokens=(ran.rows if phase == "decode" else ran.seq) * batch,
            operations=2 * ran.passes.macs)}
    out.print(f"{conditions(device)}; seed {seed}", style="dim")
    _print(out, device, record)
    out.write("run-model", device, record)
    if trace or figure:
        timeline = timeline_of("pass", ran.passes.results, ran.commands, device)
        write_trace(trace, timeline, device)
        if figure:
            run_figure(figure, f"{file.name}, {phase} at {ran.seq:,}: {record['cycles']:,} cycles", timeline, device)
    if record["output_equals_interpreter"] is False:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What is to run."""

    network: Network
    name: str
    """Of the network with what was chosen, for the programs that are kept."""
    device: Config
    phase: str
    seq: int
    rows: int
    batch: int
    standard: bool
    fused: bool
    effort: int
    pruning: Pruning | TokenPruning | None
    backend: str
    seed: int
    timing_only: bool
    tokens: list[int] | None
    """Of a text; None: random ones."""
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """What has run: the passes, and of how many rows."""

    passes: Passes | EncoderPasses
    pruned: dict[str, Any]
    """What a schedule did."""
    commands: Sequence[Command]
    seq: int
    rows: int
    compile_seconds: float
    seconds: float
    labels: dict[str, float] | None = None


def _encoded(work: _Work) -> _Ran:
    """A sequence through an encoder."""
    from gemmule.compiler.ir import Rows, TokenPruning
    from gemmule.compiler.kept import compile_encoder_kept
    from gemmule.io.progress import stderr
    from gemmule.sw.workloads.labels import shares
    from gemmule.sw.workloads.passes import EncoderPasses, encoding_cycles

    begin, seq, labels = time.perf_counter(), work.seq, None
    pruning = work.pruning if isinstance(work.pruning, TokenPruning) else None
    how: dict[str, Any] = {"sequence": seq, "standard": work.standard, "fused": work.fused}
    with stderr.status("compiling"):
        program = compile_encoder_kept(work.network, work.name, work.device, pruning=pruning, **how)
        dense = compile_encoder_kept(work.network, work.name, work.device, **how) if pruning else None
    compiled = time.perf_counter()
    with (stderr.status(f"running on {work.backend}"),
          EncoderPasses(program, work.network, work.backend, work.seed, work.timing_only) as passes):
        if work.tokens is None:
            passes.run(seq)
        else:
            seq = len(work.tokens)
            passes.run_rows(Rows.chain(work.tokens))
            labels = shares(work.network, passes.output, work.labels)
    pruned = passes.pruned() | ({"cycles_dense": encoding_cycles(dense, work.network, seq)} if dense else {})
    return _Ran(passes=passes, pruned=pruned, commands=program.commands, seq=seq, rows=seq, labels=labels,
                compile_seconds=compiled - begin, seconds=time.perf_counter() - compiled)


def _decoded(work: _Work) -> _Ran:
    """A pass behind a cache, or a prompt in passes."""
    from gemmule.compiler.kept import compile_kept
    from gemmule.io.progress import stderr
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.workloads.pruned_passes import beside, compiled_for, passes_of

    begin, seq, rows = time.perf_counter(), work.seq, work.rows
    pruning = work.pruning if isinstance(work.pruning, Pruning) else None
    compiling = partial(
        compile_kept, work.network, work.name, work.device, batch=work.batch, effort=work.effort, fused=work.fused,
        standard=work.standard, rows=min(rows, seq) if work.phase == "prefill" else rows)
    with stderr.status("compiling"):
        program = compiling(**compiled_for(pruning)) if pruning else compiling()
        others = beside(work.network, work.name, program, pruning, compiling)
    compiled = time.perf_counter()
    how = work.backend, work.seed, work.timing_only
    with (stderr.status(f"running on {work.backend}"),
          passes_of(program, work.network, pruning, others, *how) as passes):
        if work.phase == "decode":
            passes.fill_cache(seq)
            passes.run(rows, 1)
        else:
            for at in range(0, seq, rows):
                count = min(rows, seq - at)
                passes.run(count, 1 if at + count == seq else 0)
    return _Ran(passes=passes, pruned=passes.pruned(), commands=program.commands, seq=seq, rows=rows,
                compile_seconds=compiled - begin, seconds=time.perf_counter() - compiled)


def _loaded(file: Path) -> ModelFile:
    """A file's network, a published one's, or the bundled encoder.

    Raises:
        InputError: it is none of these.
    """
    from gemmule.sw.models.bundled import ENCODER, bundled_file
    from gemmule.sw.models.quantised import is_published, read_model

    bundled = str(file) == ENCODER and not file.exists()
    if not bundled and not file.exists() and not is_published(str(file)):
        raise InputError(f"{file} must be a file that `gemmule import` wrote, {', '.join(PUBLISHED)}, or {ENCODER}, "
                         "the bundled one; there is no such file")
    return read_model(bundled_file(MODELS_FOLDER / DEFAULT, ENCODER) if bundled else file)


def _checked_rows(phase: str, seq: int, rows: int, batch: int, most: int) -> int:
    """Rows of a pass, an encoder's being the sequence; ``most``: positions of the network.

    Raises:
        InputError: numbers out of range.
    """
    if phase == "encode":
        rows = seq
        if batch != 1:
            raise InputError(f"--batch must be 1 for an encoder, which takes a sequence a pass, not {batch}")
    low, high = (0, most - rows) if phase == "decode" else (1, most)
    if not low <= seq <= high:
        raise InputError(f"--seq must be from {low} to {high} (the model sees {most:,} positions), not {seq}")
    return rows


def _phase(phase: str, encoder: bool, file: str) -> str:
    """The phase, or the one that suits the network."""
    if phase == "auto":
        return "encode" if encoder else "decode"
    if (phase == "encode") is not encoder:
        raise InputError(f"--phase must be {'encode' if encoder else 'prefill or decode'} for {file}, "
                         f"{'an encoder' if encoder else 'a decoder'}, not {phase}")
    return phase


def _print(out: Output, device: Config, r: dict[str, Any]) -> None:
    from rich.table import Table

    from gemmule.sw.reports.energy import energy_line
    from gemmule.sw.reports.schedules import pruned_line

    what = f"{r['rows']} rows behind {r['seq']}" if r["phase"] == "decode" else f"{r['seq']} tokens, {r['rows']} a pass"
    if r["phase"] == "encode":
        what = f"a sequence of {r['seq']} tokens"
    what += f", of {r['batch']} sequences" if r["batch"] > 1 else ""
    out.print(f"{r['phase']}, {what}, on {r['backend']}: {r['cycles']:,} cycles ({r['milliseconds']:.3g} ms at "
              f"{device.host.clock_mhz} MHz), {r['roofline_fraction']:.1%} of the memory roofline, "
              f"{r['utilization']:.1%} of peak MACs")
    out.print(f"program of {r['program_commands']:,} commands ({r['program_bytes']:,} bytes), {r['commands']:,} run; "
              f"attention's scores are {r['scores']}")
    table = Table(box=None, pad_edge=False)
    for name in ("operation", "cycles of the mesh", "of the vector unit", "bytes of weights"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for part in r["operators"]:
        table.add_row(part["name"], *(f"{part[key]:,}" for key in ("matrix_cycles", "vector_cycles", "weight_bytes")))
    out.console.print(table)
    if r["energy"]:
        out.print(energy_line(r["energy"]))
    if r["kept_rows_by_layer"]:
        out.print(pruned_line(r))
    if r["labels"]:
        out.print("the text is of: " + ", ".join(f"{name} {share:.1%}" for name, share in r["labels"].items()))
    if r["output_equals_interpreter"] is not None:
        out.print("the output equals the integer interpreter's" if r["output_equals_interpreter"]
                  else "the output differs from the integer interpreter's",
                  style=None if r["output_equals_interpreter"] else "red")
