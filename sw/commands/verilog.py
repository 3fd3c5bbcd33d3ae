"""``gemmule verilog``: the RTL of a configuration as Verilog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmule.sw.commands.common import ConfigOption, JsonOption, Output, read_config
from gemmule.sw.errors import InputError

__all__ = ["verilog"]


def verilog(
    config: ConfigOption = "base",
    out: Annotated[Path, typer.Option(
        "--out", help="Folder for the Verilog and its manifest.")] = Path("build/verilog"),
    unit: Annotated[str, typer.Option("--unit", help="One unit alone instead of the whole device.")] = "",
    lint: Annotated[bool, typer.Option("--lint", help="Also lint it with Verilator, all warnings on.")] = False,
    json: JsonOption = None,
) -> None:
    """Write the device (or one unit) as Verilog with a manifest of its ports.

    \b
    Examples:
      gemmule verilog --config tiny --out build/verilog --lint
    """
    output = Output(json)
    device = read_config(config)

    from gemmule.hw.flow.lint import WAIVERS, LintError
    from gemmule.hw.flow.lint import lint as run_lint
    from gemmule.hw.flow.verilog import UNITS, generate, generate_unit

    if unit and unit not in UNITS:
        raise InputError(f"--unit must be one of {', '.join(sorted(UNITS))}, not {unit!r}")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, not the file {str(out)!r}")
    try:
        path = generate_unit(unit, device, out) if unit else generate(device, out)
    except OSError as error:
        raise InputError(f"--out must be a writable folder, not {str(out)!r}: {error.strerror}") from None
    output.print(f"{path}: {path.stat().st_size:,} bytes")
    if lint:
        try:
            run_lint(path, unit or "gemmule")
        except LintError as error:
            output.print(str(error))
            raise typer.Exit(1) from None
        output.print(f"lint: clean with -Wall and the waivers of {WAIVERS.name}")
    output.write("verilog", device, {
        "path": str(path), "bytes": path.stat().st_size, "lint": "clean" if lint else None})
