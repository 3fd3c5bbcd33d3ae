"""What every command shares: options, where its words go, where its numbers go. Light to import."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.limits import (
    ACTIVATION,
    ATTENTION,
    BITS,
    COMPUTES,
    FUSION,
    MODELS,
    PRESETS,
    SEED,
    SIZE,
    SOFTMAX,
    check_choice,
    parse_shape,
)
from gemmule.sw.models.published import PUBLISHED
from gemmule.sw.reports.files import STDOUT, check_writable, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from gemmule.config import Config
    from gemmule.sw.device.timeline import Timeline

__all__ = [
    "ActivationOption", "AttentionOption", "ComputeOption", "ConfigOption", "FigureOption", "FusionOption",
    "HtmlOption", "JsonOption", "ModelOption", "Output", "SeedOption", "ShapeOption", "SoftmaxOption", "TraceOption",
    "SkipZerosOption", "WeightsOption", "choice", "conditions", "read_config", "write_trace",
]

def choice(option: str, known: tuple[str, ...], text: str) -> Any:
    """An option that takes one of ``known``: checked, completed by the shell, listed in the help."""
    return typer.Option(
        option, help=text, metavar="|".join(known), callback=lambda value: check_choice(option, value, known),
        autocompletion=lambda: list(known))


ConfigOption = Annotated[str, typer.Option(
    "--config", metavar="NAME|FILE", help=f"Device configuration: a preset ({', '.join(PRESETS)}) or a YAML file.",
    autocompletion=lambda: list(PRESETS))]
JsonOption = Annotated[Path | None, typer.Option(
    "--json", metavar="FILE", callback=lambda path: check_writable("--json", path),
    help="Also write the numbers to this file (docs/schemas), creating folders; '-': numbers to standard output, and "
         "text to standard error.")]
SeedOption = Annotated[int, typer.Option(
    "--seed", metavar="N", help=f"Seed of random data, {SEED}.", callback=lambda seed: SEED.check("--seed", seed))]
TraceOption = Annotated[Path | None, typer.Option(
    "--trace", metavar="FILE", show_default=False, callback=lambda path: check_writable("--trace", path),
    help="Also write every command of every unit as a trace for ui.perfetto.dev; FILE.gz is compressed.")]
HtmlOption = Annotated[Path | None, typer.Option(
    "--html", metavar="FILE", show_default=False, callback=lambda path: check_writable("--html", path),
    help="Also write the report as a page with figures.")]
FigureOption = Annotated[Path | None, typer.Option(
    "--figure", metavar="FILE", show_default=False,
    help="Also draw when each unit works and what it waits for otherwise (SVG, PNG or PDF; extra figures).")]
AttentionOption = Annotated[str, choice(
    "--attention", ATTENTION, "exact: scores and probabilities stay on the device; standard: the same numbers through "
    "DRAM; online: in blocks of keys with a running maximum.")]
SoftmaxOption = Annotated[str, choice(
    "--softmax", SOFTMAX, "Exponential of softmax: the device's own, or Softermax's or I-BERT's for comparison "
    "(devices with comparison_modes).")]
ActivationOption = Annotated[str, choice(
    "--activation", ACTIVATION, "Activation functions: a table of 256 bytes, one of 513 words with linear "
    "interpolation, or, for GELU, I-BERT's polynomial for comparison (devices with comparison_modes).")]
FusionOption = Annotated[str, choice(
    "--fusion", FUSION, "on: values stay on the device between operators; off (for comparison): each operator's "
    "result goes to DRAM and back. The output is the same.")]
WeightsOption = Annotated[str | None, typer.Option(
    "--weights", metavar="|".join(BITS), show_default=False, autocompletion=lambda: list(BITS),
    callback=lambda value: value if value is None else check_choice("--weights", value, BITS),
    help="Weights of target and draft: int8, or int4 in groups of 32 (converted from int8 if the model has those; the "
         "logits layer stays int8). Default: the model's own. A published model is quantised to these weights: int8, "
         "or int4 by the second-order method.")]
SkipZerosOption = Annotated[bool, typer.Option(
    "--skip-zeros", help="Do not load weights of the target's MLP that meet only zeros: behind ReLU and its square "
                          "most do. The text is the same. Values are computed on the device.")]
ModelOption = Annotated[str, typer.Option(
    "--model", metavar="|".join((*MODELS, *PUBLISHED, "FILE")), autocompletion=lambda: [*MODELS, *PUBLISHED],
    help="Bundled models: small (for RTL and quick tests), default, which is small if no other is installed, or tuned, "
         "which is default with a target that drafts for itself (layerskip, streaming). "
         f"Published models: {', '.join(f'{name} (the package {one.package})' for name, one in PUBLISHED.items())}, "
         "quantised once and kept in the cache. Or a file written by `gemmule import`.")]
ComputeOption = Annotated[str, choice(
    "--compute", COMPUTES, "Compute values on the simulated device, or with the integer interpreter and the timing of "
    "the same launches: the same numbers, several times as fast; not with --backend rtl or --launch draft or step. "
    "auto: the interpreter if possible and the model is large.")]
ShapeOption = Annotated[str, typer.Option(
    "--shape", metavar="MxKxN", callback=lambda text: "x".join(map(str, parse_shape(text))),
    help=f"Rows x inner x columns of C = A B, each {SIZE.low} to {SIZE.high:,}.")]


def read_config(source: str) -> Config:
    """:func:`gemmule.config.load_config`, imported when needed."""
    from gemmule.config import load_config

    return load_config(source)


def conditions(config: Config) -> str:
    """The reference conditions that every report prints."""
    dram, host = config.dram, config.host
    refresh = f"refresh {dram.refresh_cycles} in {dram.refresh_period}" if dram.refresh_period else "no refresh"
    return (
        f"{config.name}: {config.dim}x{config.dim} array, {config.bus_bytes / dram.beat_cycles:.3g} bytes per cycle, "
        f"{config.host.clock_mhz} MHz; DRAM latency {dram.latency}, {dram.banks} banks of {dram.row_bytes} byte "
        f"rows, miss {dram.row_miss}, turnaround {dram.turnaround}, {refresh}; host "
        f"{host.launch_cycles} cycles a launch, {host.step_cycles} a step"
    )


def write_trace(path: Path | None, timeline: Timeline | None, config: Config) -> None:
    """Write a trace, if one is wanted.

    Raises:
        InputError: the file cannot be written.
    """
    if path and timeline is not None:
        from gemmule.sw.reports.trace import trace_bytes

        write_file(path, trace_bytes(timeline, config, compressed=path.suffix == ".gz"), "--trace")


class Output:
    """Where one command's words and numbers go.

    Attributes:
        console: words: standard output, or standard error where ``--json -`` has the numbers on standard output.
    """

    def __init__(self, json: Path | None) -> None:
        self.json = json
        self.console: Console = _stdout() if json != STDOUT else _stderr()

    def print(self, text: str, *, style: str | None = None) -> None:
        """A line of the report, as it is (no markup)."""
        self.console.print(text, markup=False, style=style)

    def lines(self, lines: Sequence[str]) -> None:
        """A listing: never wrapped, whatever the width."""
        self.console.file.write("\n".join(lines) + "\n")
        self.console.file.flush()

    def write(self, command: str, config: Config | None, record: dict[str, Any]) -> None:
        """Write ``record`` behind the common head, if ``--json`` wants it; it must follow the command's schema."""
        if self.json is None:
            return
        from gemmule.sw.records import complete

        text = json.dumps(complete(command, config, record), indent=1) + "\n"
        if self.json == STDOUT:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            write_file(self.json, text, "--json")


def _stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _stderr() -> Console:
    from gemmule.io.progress import stderr

    return stderr
