"""What every command shares: options, errors, JSON output."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gemmule.config import Config, load_config
from gemmule.sw.text import InputError

__all__ = [
    "ConfigOption", "JsonOption", "SeedOption", "ShapeOption", "conditions", "console", "parse_shape",
    "read_config", "write_json",
]

console = Console(highlight=False)

ConfigOption = Annotated[str, typer.Option(
    "--config", help="Device configuration: a preset (tiny, base) or a YAML file.")]
JsonOption = Annotated[Path | None, typer.Option(
    "--json", help="Also write the numbers to this JSON file.", dir_okay=False)]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of random data.", min=0)]
ShapeOption = Annotated[str, typer.Option("--shape", help="Rows x inner x columns: MxKxN.")]


def read_config(source: str) -> Config:
    return load_config(source)


def parse_shape(text: str) -> tuple[int, int, int]:
    """``MxKxN`` to three integers of at least 1.

    Raises:
        InputError: not three such integers.
    """
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
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


def write_json(path: Path | None, data: Mapping[str, Any]) -> None:
    """Write ``data`` through a temporary file and a rename; nothing when ``path`` is None.

    Raises:
        InputError: the folder cannot be written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
            json.dump(data, file, indent=1)
            file.write("\n")
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"--json must name a writable file, not {str(path)!r}: {error.strerror}") from None
