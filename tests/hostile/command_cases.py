"""Values of options and paths that must be refused.

Those refused only after a program was compiled are in tests/sw/test_cli.py: the first compilation takes a minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from .runner import Case

GEMM = ("run", "gemm", "--timing-only", "--config", "tiny")
SHAPES = ("", "x", "4x4", "4x4x4x4", "0x4x4", "-4x4x4", "4 x4x4", "4x4x4\n", "0x10x10x4", "4x4x1e3", "٣x٣x٣",
          "9999999999x1x1", "4X4X4", "4x4x4;id", "\udcff")


def touch(name: str, content: bytes = b"") -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


ARGUMENTS: dict[str, tuple[tuple[str, ...], str, Callable[[Path], None] | None]] = {
    "huge product": ((*GEMM, "--shape", "999999999x999999999x999999999"), "must be", None),
    "negative seed": ((*GEMM, "--seed", "-1"), "--seed must be", None),
    "seed of text": ((*GEMM, "--seed", "1; id"), "seed", None),
    "dataflow": (("run", "gemm", "--dataflow", "rs"), "--dataflow must be one of ws, os", None),
    "weights": (("run", "gemm", "--weights", "int16"), "--weights must be one of int8, int4", None),
    "group size": (("run", "gemm", "--weights", "int4", "--group-size", "-16"), "a group of scales must span", None),
    "backend": (("generate", "--backend", "../model"), "--backend must be one of model, rtl", None),
    "no prompt": (("generate", "--prompt", ""), "--prompt must hold at least one character", None),
    "prompt of no text": (("generate", "--prompt", "\udcff" * 9), "--prompt must be UTF-8 text", None),
    "no such command": (("genrate",), "genrate", None), "no such option": (("generate", "--colour"), "--colour", None),
    "programs": (("fuzz", "--programs", "0"), "--programs must be", None),
    "commands": (("fuzz", "--commands", "3000000000"), "--commands must be", None),
    "unit": (("verilog", "--unit", "../top"), "--unit must be one of", None),
    "program": (("cosim", "conv"), "PROGRAM must be", None),
    "no program": (("disasm", "none.bin"), "PROGRAM must be a file", None),
    "folder as program": (("disasm", "."), "PROGRAM must be a file", None),
    "pipe as program": (("disasm", "pipe"), "PROGRAM must be a file", lambda at: os.mkfifo(at / "pipe")),
    "device as program": (("disasm", "/dev/zero"), "PROGRAM must be a file", None),
    "long shape": ((*GEMM, "--shape", "9" * 5000 + "x1x1"), "--shape must be MxKxN", None),
    "long dataflow": (("run", "gemm", "--dataflow", "w" * 5000), "--dataflow must be one of", None),
    "long method": (("generate", "--method", "a" * 5000), "--method must be one of", None),
    "long seed": ((*GEMM, "--seed", "7" * 5000), "", None),
    "long command": (("g" * 5000,), "", None), "long program": (("disasm", "p" * 5000), "File name too long", None),
    "empty program": (("disasm", "a.bin"), "a.bin must hold commands of 32 bytes each, not 0", touch("a.bin")),
    "cut program": (("disasm", "a.bin"), "a.bin must hold commands of 32 bytes", touch("a.bin", b"\0" * 33)),
    "no commands": (("disasm", "a.bin"), "a.bin: command 0: unit must be from 0 to 5", touch("a.bin", b"\x07" * 32)),
    "all ones": (("disasm", "a.bin"), "a.bin: command 0", touch("a.bin", b"\xff" * 64)),
    "JSON into a folder": ((*GEMM, "--json", "."), "--json must name a writable file", None),
    "JSON below a file": ((*GEMM, "--json", "file/x.json"), "--json must name a writable file", touch("file", b"x")),
    "JSON below a device": ((*GEMM, "--json", "/dev/null/x.json"), "--json must name a writable file", None),
    "Verilog into a file": (("verilog", "--config", "tiny", "--out", "file"), "--out must be a folder",
                            touch("file", b"x")),
}


def cases() -> Iterator[Case]:
    """All of them."""
    for shape in SHAPES:
        label = shape if len(shape) < 20 else f"{shape[:8]}.. of {len(shape)}"
        yield Case(label=f"shape: {label!a}", arguments=("gemmule", *GEMM, "--shape", shape), says="")
    for label, (arguments, says, make) in ARGUMENTS.items():
        yield Case(label=f"command: {label}", arguments=("gemmule", *arguments), says=says, make=make)
