"""``gemmule disasm``: a readable listing of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, read_config
from gemmule.sw.errors import InputError
from gemmule.sw.limits import parse_shape
from gemmule.sw.reports.files import write_file

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.isa import Command

__all__ = ["disasm"]


MOST_BYTES = (2**24 - 1) * 32
"""Of a program: commands of 32 bytes, counted in 24 bits."""


def _from_file(path: Path) -> list[Command]:
    from gemmule.isa import COMMAND_BYTES, IsaError, decode

    if not path.is_file():
        raise InputError(f"PROGRAM must be a file, target, draft or MxKxN, not {str(path)!r}")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} must hold at most {MOST_BYTES} bytes, not {path.stat().st_size}")
    try:
        image = path.read_bytes()
    except OSError as error:
        raise InputError(f"PROGRAM must be a file that can be read, not {str(path)!r}: {error.strerror}") from None
    if not image or len(image) % COMMAND_BYTES:
        raise InputError(
            f"{path} must hold commands of {COMMAND_BYTES} bytes each, not {len(image)} bytes")
    commands = []
    for i in range(0, len(image), COMMAND_BYTES):
        try:
            commands.append(decode(int.from_bytes(image[i:i + COMMAND_BYTES], "little")))
        except IsaError as error:
            raise InputError(f"{path}: command {i // COMMAND_BYTES}: {error}") from None
    return commands


def _compiled(program: str, device: Config) -> Sequence[Command]:
    from gemmule.compiler.layout import WeightFormat
    from gemmule.compiler.programs.product import compile_product
    from gemmule.sw.workloads.estimate import estimate, patiently
    from gemmule.sw.workloads.programs import bundled_program

    if program in ("target", "draft"):
        return bundled_program(program, device).program.commands
    sizes = parse_shape(program, "PROGRAM")
    cost = estimate(device, sizes, WeightFormat(), "ws")
    cost.announce(program, "a smaller shape is quicker")
    with patiently("compiling the product", cost.compiling):
        return compile_product(device, *sizes).commands


def disasm(
    program: Annotated[str, typer.Argument(
        metavar="PROGRAM",
        help="target or draft (bundled models), MxKxN (a product), or a program image file.")] = "target",
    config: ConfigOption = "base",
    image: Annotated[Path | None, typer.Option("--save-image", metavar="FILE",
        help="Also write the program image to this file: 32 bytes per command.")] = None,
    json: JsonOption = None,
) -> None:
    """Print the listing of a compiled program or of a program image.

    An image is listed from its fields alone, so --config has no effect on it.

    \b
    Examples:
      gemmule disasm 8x8x8 --config tiny
      gemmule disasm target --save-image build/target.bin
    """
    out = Output(json)
    device = read_config(config)
    known = program in ("target", "draft") or re.fullmatch(r"[0-9]+x[0-9]+x[0-9]+", program)
    commands = _compiled(program, device) if known else _from_file(Path(program))

    from gemmule.isa import disassemble, encode_program

    lines = [f"{i:5d}  {disassemble(command)}" for i, command in enumerate(commands)]
    if image is not None:
        write_file(image, encode_program(commands), "--save-image")
    out.lines(lines)
    out.write("disasm", device if known else None, {"commands": len(commands), "listing": lines})
