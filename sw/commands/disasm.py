"""``gemmule disasm``: a readable listing of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gemmule.compiler.gemm import compile_gemm
from gemmule.isa import COMMAND_BYTES, Command, IsaError, decode, disassemble, encode_program
from gemmule.sw.commands.common import ConfigOption, JsonOption, parse_shape, read_config, write_file, write_json
from gemmule.sw.programs import bundled_program
from gemmule.sw.text import InputError

__all__ = ["disasm"]


def _from_file(path: Path) -> list[Command]:
    if not path.is_file():
        raise InputError(f"PROGRAM must be a file, target, draft or MxKxN, not {str(path)!r}")
    image = path.read_bytes()
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


def disasm(
    program: Annotated[str, typer.Argument(
        help="target or draft (bundled models), MxKxN (a product), or a program image file.")] = "target",
    config: ConfigOption = "base",
    out: Annotated[Path | None, typer.Option("--save-image", help="Also write the program image here.")] = None,
    json: JsonOption = None,
) -> None:
    """Print the listing of a compiled program or of a program image.

    Example: gemmule disasm 64x64x64 --config tiny
    """
    device = read_config(config)
    commands: Sequence[Command]
    if program in ("target", "draft"):
        commands = bundled_program(program, device).commands
    elif re.fullmatch(r"[0-9]+x[0-9]+x[0-9]+", program):
        commands = compile_gemm(device, *parse_shape(program)).commands
    else:
        commands = _from_file(Path(program))
    lines = [f"{i:5d}  {disassemble(command)}" for i, command in enumerate(commands)]
    if out is not None:
        write_file(out, encode_program(commands), "--save-image")
    print("\n".join(lines))
    write_json(json, {"commands": len(commands), "listing": lines})
