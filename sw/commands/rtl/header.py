"""``gemmule header``: registers, counters and commands of a device as a C header."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, read_config
from gemmule.sw.reports.files import check_writable, write_file

__all__ = ["header"]


def header(
    config: ConfigOption = "base",
    out: Annotated[Path, typer.Option(
        "--out", metavar="FILE", callback=lambda path: check_writable("--out", path),
        help="The header; its folder is created if necessary.")] = Path("build/driver/gemmule.h"),
    json: JsonOption = None,
) -> None:
    """Write a device's registers, counters, fault codes and command fields as a C header.

    Made from the definitions that the RTL is made from; C99, without includes.

    \b
    Examples:
      gemmule header --config tiny --out build/gemmule.h
    """
    output, device = Output(json), read_config(config)

    from gemmule.sw.driver.header import header_text, sections

    text = header_text(device)
    write_file(out, text, "--out")
    constants = sum(map(len, sections(device).values()))
    output.print(f"{out}: {constants} constants, {len(text.encode()):,} bytes; configuration {device.identity:#010x}")
    output.write("header", device, {
        "path": str(out), "bytes": len(text.encode()), "constants": constants, "configuration": device.identity})
