"""``gemmule verilog``: the RTL of a configuration as Verilog."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, read_config
from gemmule.sw.errors import InputError

__all__ = ["verilog"]


def verilog(
    config: ConfigOption = "base",
    out: Annotated[Path, typer.Option(
        "--out", metavar="FOLDER", help="Folder for the Verilog and its manifest; created if necessary.",
    )] = Path("build/verilog"),
    unit: Annotated[str, typer.Option(
        "--unit", metavar="UNIT", help="One unit alone instead of the whole device, such as fetch, matrix or select "
                                       "(docs/verilog.md lists all).")] = "",
    split: Annotated[bool, typer.Option("--split", help="Write one file for each block, and a list of them.")] = False,
    source_attributes: Annotated[bool, typer.Option(
        "--source-attributes", help="Mark every statement with the line of Python it comes from.")] = False,
    lint: Annotated[bool, typer.Option("--lint", help="Also lint it with Verilator, with all warnings on.")] = False,
    json: JsonOption = None,
) -> None:
    """Write the device (or one unit) as Verilog with a manifest of its files and ports.

    \b
    Examples:
      gemmule verilog --config tiny --out build/verilog --lint
    """
    output = Output(json)
    device = read_config(config)

    from gemmule.hw.flow.export import export
    from gemmule.hw.flow.lint import WAIVERS, LintError
    from gemmule.hw.flow.lint import lint as run_lint
    from gemmule.hw.flow.verilog import TOP, UNITS
    from gemmule.io.progress import working

    if unit and unit not in UNITS:
        raise InputError(f"--unit must be one of {', '.join(sorted(UNITS))}, not {unit!r}")
    if split and unit not in ("", TOP):
        raise InputError(f"--split is for the whole device, not for --unit {unit}, which is one file: leave it out")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, not the file {str(out)!r}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):  # known before the device is made, which takes long
            pass
        with working(f"writing {unit or TOP} of {device.name} as Verilog"):
            made = export(device, out, unit=unit or TOP, split=split, sources=source_attributes,
                          source=Path(config).name)
    except OSError as error:
        raise InputError(f"--out must be a writable folder, not {str(out)!r}: {error.strerror}") from None
    path = made.filelist or made.files[0]
    files = f"{len(made.files)} files, " if split else ""
    output.print(f"{path}: {files}{made.bytes:,} bytes; {made.manifest.name} says what they are")
    if lint:
        try:
            run_lint(made.files, unit or TOP)
        except LintError as error:
            output.print(str(error))
            raise typer.Exit(1) from None
        output.print(f"lint: clean with -Wall and the waivers of {WAIVERS.name}")
    output.write("verilog", device, {
        "path": str(path), "files": [str(file) for file in made.files], "manifest": str(made.manifest),
        "bytes": made.bytes, "lint": "clean" if lint else None,
    })
