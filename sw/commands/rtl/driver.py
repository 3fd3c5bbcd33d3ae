"""``gemmule driver``: a decoder for a host in C, and the driver run against the device's Verilog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ConfigOption,
    JsonOption,
    ModelOption,
    Output,
    WeightsOption,
    choice,
    conditions,
    read_config,
)
from gemmule.sw.commands.shared.texts import read_prompt
from gemmule.sw.errors import InputError
from gemmule.sw.limits import BACKENDS, SMALL, new_tokens

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.sw.driver.bench import BenchRun
    from gemmule.sw.driver.decoder import Reference
    from gemmule.sw.driver.soc_run import SocRun

__all__ = ["driver"]

WAITS = ("irq", "poll", "both")


def driver(
    config: ConfigOption = "edge",
    model: ModelOption = SMALL,
    weights: WeightsOption = None,
    network: Annotated[str, choice("--network", ("target", "draft"), "Which of the model's networks decodes.")]
    = "target",
    rows: Annotated[int | None, typer.Option(
        "--rows", metavar="N", min=1, max=64, show_default=False,
        help="Rows of a launch at most. Default: as many as go well.")] = None,
    answers: Annotated[str, choice(
        "--answers", ("tokens", "logits"), "What the device gives back: greedy tokens, or logits, among which the "
                                           "driver chooses.")] = "tokens",
    prompt: Annotated[str | None, typer.Option(
        "--prompt", metavar="TEXT", show_default=False, help="The prompt in the image. Default: a few lines of "
                                                             "Python.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(
        "--prompt-file", metavar="FILE", show_default=False, help="Read the prompt from a file; '-': standard input.",
    )] = None,
    max_new_tokens: Annotated[int, typer.Option(
        "--max-new-tokens", metavar="N", help="Tokens that --run and --soc generate.")] = 8,
    out: Annotated[Path, typer.Option(
        "--out", metavar="FOLDER", help="Folder for header, driver, testbench and image; created if necessary.",
    )] = Path("build/driver"),
    run: Annotated[bool, typer.Option(
        "--run", help="Also build the testbench around the device's Verilog (a minute or more, once), decode with the "
                      "driver in it, and compare with --backend.")] = False,
    soc: Annotated[bool, typer.Option(
        "--soc", help="Also run it as firmware of a small system with a RISC-V core, which prints the tokens on its "
                      "UART (extra soc and riscv64-unknown-elf-gcc), and compare.")] = False,
    wait: Annotated[str, choice("--wait", WAITS, "How the driver notices that a launch has ended.")] = "both",
    backend: Annotated[str, choice("--backend", BACKENDS, "What --run and --soc are compared with.")] = "model",
    json: JsonOption = None,
) -> None:
    """Write a decoder and a bare-metal driver in C; with --run, decode with it on the Verilog under Verilator.

    The run must give the tokens, launches and device cycles of `gemmule generate --method ar`; otherwise exit code 1.

    \b
    Examples:
      gemmule driver --config edge --out build/driver
      gemmule driver --config tiny --network draft --rows 4 --run
      gemmule driver --config tiny --network draft --rows 4 --soc
    """
    output, device = Output(json), read_config(config)
    words, source = read_prompt(prompt, prompt_file)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, not the file {str(out)!r}")

    from gemmule.sw.driver.decoder import placed_decoder, token_texts
    from gemmule.sw.driver.decoder_image import decoder_image
    from gemmule.sw.driver.export import export_driver
    from gemmule.sw.models.pair import open_pair

    pair = open_pair(model, None, weights)
    given = pair.encode(words)
    new_tokens(pair.positions).check("--max-new-tokens", max_new_tokens)
    if len(given) + max_new_tokens > pair.positions:
        raise InputError(f"{source}: prompt and new tokens must be at most {pair.positions} together, not "
                         f"{len(given)} + {max_new_tokens}; shorten the prompt")
    placed = placed_decoder(pair, network, device, rows=rows, answers=answers)
    image = decoder_image(placed, prompt=given, ends=sorted(pair.ends), texts=token_texts(pair.tokenizer, pair.vocab))
    try:
        files = export_driver(device, out, image)
    except OSError as error:
        raise InputError(f"--out must be a writable folder, not {str(out)!r}: {error.strerror}") from None
    output.print(f"{files[-1]}: {pair.name} {network}, {len(given)} prompt tokens, {len(image):,} bytes; "
                 f"{len(files) - 1} files of the driver and its testbench beside it")
    record: dict[str, Any] = {
        "model": pair.name, "network": network, "answers": answers, "prompt_tokens": len(given),
        "files": [str(path) for path in files], "image_bytes": len(image), "runs": None, "soc": None, "backend": None,
        "tokens": None, "text": None, "device_cycles": None, "launches": None, "equal": None}
    if run or soc:
        from gemmule.sw.driver.decoder import reference

        runs = _runs(device, files[-1], max_new_tokens, wait) if run else {}
        system = _system(device, files[-1], max_new_tokens) if soc else None
        expected = reference(placed, backend, given, max_new_tokens, pair.ends)
        record |= _told(runs, system, expected, backend) | {"text": pair.decode(expected.tokens, given)}
        output.print(conditions(device), style="dim")
        output.print(f"{words}{record['text']}")
        _table(output, runs, system, expected, backend)
    output.write("driver", device, record)
    if record["equal"] is False:
        output.print(f"the driver's run differs from --backend {backend}", style="red")
        raise typer.Exit(1)


def _runs(device: Config, image: Path, tokens: int, wait: str) -> dict[str, BenchRun]:
    """The driver in the testbench, by how it waits."""
    from gemmule.sw.driver.bench import WAITS as ALL
    from gemmule.sw.driver.bench import build_bench, run_bench

    bench = build_bench(device)
    return {kind: run_bench(bench, image, tokens=tokens, wait=kind) for kind in (ALL if wait == "both" else (wait,))}


def _system(device: Config, image: Path, tokens: int) -> SocRun:
    from gemmule.sw.driver.soc_run import build_soc, run_soc

    return run_soc(build_soc(device), device, image, tokens=tokens)


def _told(runs: dict[str, BenchRun], system: SocRun | None, expected: Reference, backend: str) -> dict[str, Any]:
    every: list[BenchRun | SocRun] = [*runs.values(), *([system] if system else [])]
    return {
        "backend": backend, "tokens": expected.tokens, "device_cycles": expected.device_cycles,
        "launches": expected.launches,
        "runs": [{"wait": wait, "tokens": run.tokens, "launches": run.launches, "device_cycles": run.device_cycles,
                  "host_cycles": run.cycles - run.device_cycles, "last_launch": run.last_launch}
                 for wait, run in runs.items()],
        "soc": {"tokens": system.tokens, "launches": system.launches, "device_cycles": system.device_cycles,
                "host_cycles": system.cycles - system.device_cycles, "interrupts": system.interrupts}
        if system else None,
        "equal": all((run.tokens, run.launches, run.device_cycles) == (
            expected.tokens, expected.launches, expected.device_cycles) for run in every)}


def _table(output: Output, runs: dict[str, BenchRun], system: SocRun | None, expected: Reference,
           backend: str) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("run")
    for name in ("tokens", "launches", "device cycles", "host cycles"):
        table.add_column(name, justify="right")
    every: dict[str, BenchRun | SocRun] = {f"driver in C, {wait}": run for wait, run in runs.items()}
    every |= {"RISC-V system": system} if system else {}
    for name, run in every.items():
        table.add_row(name, f"{len(run.tokens)}", f"{run.launches}", f"{run.device_cycles:,}",
                      f"{run.cycles - run.device_cycles:,}")
    table.add_row(f"--backend {backend}", f"{len(expected.tokens)}", f"{expected.launches}",
                  f"{expected.device_cycles:,}", "")
    output.console.print(table)
