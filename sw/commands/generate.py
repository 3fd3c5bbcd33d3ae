"""``gemmule generate``: text by speculative decoding on the simulated accelerator."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gemmule.sw import text
from gemmule.sw.commands.common import (
    ConfigOption,
    JsonOption,
    SeedOption,
    conditions,
    console,
    read_config,
    write_json,
)
from gemmule.sw.decoding.generate import Generation
from gemmule.sw.device import BACKENDS
from gemmule.sw.report import generation_json, print_generation
from gemmule.sw.session import METHODS, Session

__all__ = ["generate"]

PROMPT = '''def read_lines(path):
    """Return the lines of a file."""
    with open(path) as file:
'''


def _run(session: Session, label: str, method: str, prompt: list[int], max_new_tokens: int,
         num_speculative_tokens: int, stop: frozenset[int]) -> Generation:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=max_new_tokens)
        return session.generate(
            method, prompt, max_new_tokens, num_speculative_tokens, stop,
            lambda new: bar.advance(task, len(new)))


def generate(
    config: ConfigOption = "base",
    json: JsonOption = None,
    prompt: Annotated[str, typer.Option("--prompt", help="Text to continue.")] = PROMPT,
    method: Annotated[str, typer.Option("--method", help=f"Decoding method: {', '.join(METHODS)}.")] = "draft",
    backend: Annotated[str, typer.Option(
        "--backend", help="model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="Tokens to generate.")] = 64,
    num_speculative_tokens: Annotated[int, typer.Option(
        "--num-speculative-tokens", help="Tokens drafted per step.")] = 3,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after the end-of-file token.")] = False,
    baseline: Annotated[bool, typer.Option(
        help="Also run autoregressive decoding on the model and compare.")] = True,
    seed: SeedOption = 0,
) -> None:
    """Generate text with a bundled model and report where the cycles go.

    Greedy decoding: the seed changes nothing and is recorded for later methods.

    Example: gemmule generate --prompt "import os" --method draft --num-speculative-tokens 4
    """
    device_config = read_config(config)
    ids = text.encode(prompt)
    stop = frozenset() if ignore_eos else frozenset({text.EOS})
    arguments = (ids, max_new_tokens, num_speculative_tokens, stop)
    if backend not in BACKENDS:
        raise text.InputError(f"--backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    with Session(device_config, backend) as session:
        run = _run(session, f"{method} on {backend}", method, *arguments)
    reference = run if method == "ar" else None
    if baseline and method != "ar":
        with Session(device_config) as session:
            reference = _run(session, "ar on model", "ar", *arguments)
    record: dict[str, Any] = generation_json(run, reference) | {
        "prompt": prompt, "method": method, "backend": backend, "config": device_config.name, "seed": seed,
        "num_speculative_tokens": num_speculative_tokens if method == "draft" else 0,
    }
    console.print(f"[dim]{conditions(device_config)}; seed {seed}[/dim]")
    print_generation(console, prompt, run, reference, method, backend)
    write_json(json, record)
    if reference is not None and reference.tokens != run.tokens:
        console.print("[red]tokens differ from autoregressive decoding[/red]")
        raise typer.Exit(1)
