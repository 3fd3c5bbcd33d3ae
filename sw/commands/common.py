"""What every command shares: options, errors, JSON output."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gemmule.config import PRESETS, Config, load_config
from gemmule.sw.text import InputError

__all__ = [
    "ConfigOption", "JsonOption", "SeedOption", "ShapeOption", "check_json", "conditions", "console", "parse_shape",
    "read_config", "write_file", "write_json",
]

console = Console(highlight=False)

ConfigOption = Annotated[str, typer.Option(
    "--config", help=f"Device configuration: a preset ({', '.join(PRESETS)}) or a YAML file.")]
JsonOption = Annotated[Path | None, typer.Option(
    "--json", help="Also write the numbers to this JSON file.", callback=lambda path: check_json(path))]
SeedOption = Annotated[int, typer.Option(
    "--seed", help="Seed of random data.", callback=lambda seed: _check_seed(seed))]
ShapeOption = Annotated[str, typer.Option("--shape", help="Rows x inner x columns: MxKxN.")]


def read_config(source: str) -> Config:
    return load_config(source)


def _check_seed(seed: int) -> int:
    if seed < 0:
        raise InputError(f"--seed must be at least 0, not {seed}")
    return seed


def parse_shape(text: str) -> tuple[int, int, int]:
    """``MxKxN`` to three integers of at least 1.

    Raises:
        InputError: not three such integers.
    """
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", text)
    if not match or min(map(int, match.groups())) < 1:
        raise InputError(f"--shape must be MxKxN with integers of at least 1, not {text!r}; try 512x768x768")
    m, k, n = map(int, match.groups())
    return m, k, n


def conditions(config: Config) -> str:
    """The reference conditions that every report prints."""
    dram, host = config.dram, config.host
    return (
        f"{config.name}: {config.dim}x{config.dim} array, {config.bus_bytes} bytes per cycle, "
        f"{config.host.clock_mhz} MHz; DRAM latency {dram.latency}, {dram.banks} banks of {dram.row_bytes} byte "
        f"rows, miss {dram.row_miss}, refresh {dram.refresh_cycles} in {dram.refresh_period}; host "
        f"{host.launch_cycles} cycles a launch, {host.step_cycles} a step"
    )


def check_json(path: Path | None) -> Path | None:
    """Refuse a path that could not be written, before any work is done.

    Raises:
        InputError: it is a folder, or its folder cannot be made or written.
    """
    if path is None:
        return None
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--json must name a writable file, not {str(path)!r}: {error.strerror}") from None
    if path.is_dir() or not os.access(path.resolve().parent, os.W_OK):
        raise InputError(f"--json must name a writable file, not {str(path)!r}")
    return path


def write_file(path: Path, content: bytes, option: str) -> None:
    """Write through a temporary file beside the target and a rename; devices and pipes directly.

    Raises:
        InputError: the file cannot be written; ``option`` is named.
    """
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{option} must name a writable file, not {str(path)!r}: {error.strerror}") from None


def write_json(path: Path | None, data: Mapping[str, Any]) -> None:
    """Write ``data`` to the file of ``--json``; nothing when ``path`` is None."""
    if path is not None:
        write_file(path, (json.dumps(data, indent=1) + "\n").encode(), "--json")
