"""Configurations that must be refused: attacks on the parser, surprises of YAML, wrong files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from .runner import Case

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9))
"""Nine to the tenth strings, when its aliases are followed."""

CONTENT: dict[str, tuple[str | bytes, str]] = {
    "alias bomb": (BOMB, ":1: anchors and aliases (&a) are not taken"),
    "alias": ("dim: &a 8\nbus_bytes: *a", ":1: anchors"),
    "alias to itself": ("&a dram: *a", ":1: anchors"),
    "merge key": ("<<: {dim: 8}", ":1: keys must be field names, not '<<'"),
    "tag int": ('dim: !!int "abc"', ":1: tags such as '!!int' are not taken"),
    "tag object": ("dim: !!python/object/apply:os.system [id]", ":1: tags such as '!!python/object/apply:os.system'"),
    "tag name": ("dim: !!python/name:os.system", ":1: tags"), "tag binary": ("name: !!binary aGk=", ":1: tags"),
    "tag declared": ("%TAG ! tag:evil,2000:\n---\ndim: !x 8", ":3: tags"), "set": ("!!set {dim, preload}", ":1: tags"),
    "digits": ("dim: " + "9" * 5000, ":1: dim must have at most 18 digits, not 5,000"),
    "negative digits": ("dram:\n  banks: -" + "9" * 5000, ":2: dram.banks must have at most 18 digits"),
    "brackets": ("dim: " + "[" * 60000, ":1: dim must be one value, not a list"),
    "braces": ("{" * 60000, ":1: keys must be field names"),
    "braces in keys": ("? " * 30000, "keys must be field names"),
    "indentation": ("".join(" " * i + "dram:\n" for i in range(340)), ":9: fields must be nested at most 8 deep"),
    "dashes": ("- " * 30000, ":1: must hold fields, such as dim: 16, not a list"),
    "64 KiB and more": ("#" * 65537, "must hold at most 65,536 bytes, not 65,537"),
    "a gigabyte": (b"", "must hold at most 65,536 bytes, not 1,073,741,824"),
    "many fields": ("".join(f"k{i}: 1\n" for i in range(7000)), ":1: k0: unknown key"),
    "binary": (bytes(range(256)), "must be UTF-8 text; byte 128 is not"),
    "an executable": (b"\x7fELF\x02\x01\x01\0\0", ":1: the character U+007F is not text"),
    "NUL": ("dim: 8\nname: a\0b", ":2: the character U+0000 is not text"),
    "escape": ("dim: 8\x1b[31m", ":1: the character U+001B is not text"),
    "escaped escape": ('name: "\\e[31mred"', ":1: name must be 1 to 32 letters"),
    "UTF-16": ("dim: 8".encode("utf-16"), "must be UTF-8 text; byte 0 is not"),
    "UTF-16 without mark": ("dim: 8".encode("utf-16-le"), ":1: the character U+0000 is not text"),
    "surrogate": (b"name: \xed\xa0\x80", "must be UTF-8 text"),
    "overlong": (b"dim: \xc0\xb8", "must be UTF-8 text"),
    "beyond Unicode": ('name: "\\UFFFFFFFF"', "not YAML"),
    "tab": ("dram:\n\tlatency: 8", ":2: not YAML: found character '\\t'"),
    "open quote": ("dim: '8", ":1: not YAML"), "open list": ("dim: [8", ":1: dim must be one value"),
    "two colons": ("dim: 8: 9", ":1: not YAML"), "bad directive": ("%YAML 9.9\n---\ndim: 8", ":1: not YAML"),
    "long version": (f"%YAML {'1' * 5000}.1\n---\ndim: 8", "not YAML"),
    "empty": ("", "must hold fields, such as dim: 16; it is empty"), "comments": ("# dim: 8\n", "it is empty"),
    "documents": ("dim: 8\n---\ndim: 16", ":2: a second document begins"), "list": ("[dim, 8]", "not a list"),
    "text": ("dim 8", ":1: must hold fields, such as dim: 16, not 'dim 8'"),
    "long text": ("x" * 60000, ":1: must hold fields"), "long key": (f"? {'x' * 60000}\n: 1", ":1: xxx"),
    "long name": ("name: " + "x" * 60000, ":1: name must be 1 to 32 letters"),
    "date": ("name: 2026-02-28", ":1: name must be a plain decimal integer, not '2026-02-28'; put text in quotes"),
    "impossible date": ("name: 2026-02-31", ":1: name must be a plain decimal integer, not"),
    "impossible time": ("name: 2026-02-28 25:61:61", ":1: name must be"),
    "octal": ("dim: 010", ":1: dim must be a plain decimal integer"), "new octal": ("dim: 0o20", ":1: dim must be a"),
    "sexagesimal": ("dim: 1:30", ":1: dim must be a plain"), "hexadecimal": ("dim: 0x10", ":1: dim must be a plain"),
    "binary number": ("dim: 0b10000", ":1: dim must be a plain"), "underscore": ("dim: 1_6", ":1: dim must be a plain"),
    "float": ("dim: 16.0", ":1: dim must be a plain"), "exponent": ("dim: 1e400", ":1: dim must be a plain"),
    "nan": ("dim: .nan", ":1: dim must be a plain"), "inf": ("dim: -.inf", ":1: dim must be a plain"),
    "other digits": ("dim: ١٦", ":1: dim must be an integer, not '١٦'"),
    "yes": ("comparison_modes: yes", ":1: comparison_modes must be written true or false"),
    "off": ("comparison_modes: off", ":1: comparison_modes must be written true or false"),
    "one": ("comparison_modes: 1", ":1: comparison_modes must be true or false, not 1"),
    "truth as number": ("dim: true", ":1: dim must be an integer, not true"),
    "no value": ("dim:", ":1: dim has no value"), "null": ("dim: null", ":1: dim has no value"),
    "quoted number": ("dim: '16'", ":1: dim must be an integer, not '16'"),
    "key twice": ("dim: 8\nbus_bytes: 8\ndim: 16", ":3: dim stands twice, first in line 1"),
    "nested key twice": ("dram:\n  banks: 8\n  banks: 4", ":3: dram.banks stands twice, first in line 2"),
    "number as key": ("8: dim", ":1: keys must be field names, not '8'"),
    "unknown key": ("dim: 16\nbus_byte: 8", ":2: bus_byte: unknown key; did you mean bus_bytes?"),
    "private key": ("model_config: {extra: allow}", ":1: model_config: unknown key"),
    "dunder key": ("__class__: {a: 1}", ":1: __class__: unknown key"),
    "value for fields": ("dram: 60", ":1: dram must hold fields of its own, not 60"),
    "fields for value": ("dim: {a: 1}", ":1: dim must be an integer"),
    "out of range": ("\n\ndim: 3", ":3: dim must be a power of two from 2 to 64, not 3"),
    "nested out of range": ("dram:\n  latency: 1", ":2: dram.latency must be at least 4 cycles, not 1"),
    "a rule over two": ("# small\ndim: 8", ":2: bus_bytes must not exceed dim = 8, not 16"),
    "large": ("host: {clock_mhz: 999999999999999999}", ":1: host.clock_mhz must be from 1 to 10**9"),
    "path as name": ("name: ../../evil", ":1: name must be 1 to 32 letters"),
    "preset's name": ("dim: 8\nname: base\nbus_bytes: 8", ":2: name must not be base, a preset with other fields"),
    "preset's name in capitals": ("name: TINY", ":1: name must not be TINY, a preset"),
}


def _write(content: str | bytes, label: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / "my.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if label == "a gigabyte":
            os.truncate(path, 1 << 30)  # takes no room
    return make


def _write_controls(folder: Path) -> None:
    (folder / "a\nb.yaml").write_text("dim: 3")


def _command(path: str) -> tuple[str, ...]:
    return ("gemmule", "run", "gemm", "--shape", "2x2x2", "--timing-only", "--config", path)


PATHS: dict[str, tuple[str, str, Callable[[Path], None] | None]] = {
    "folder": (".", "must be a regular file, not a folder", None),
    "pipe": ("pipe", "must be a regular file, not a pipe", lambda at: os.mkfifo(at / "pipe")),
    "endless device": ("/dev/zero", "/dev/zero: must be a regular file", None),
    "standard input": ("/dev/stdin", "/dev/stdin: must be a regular file", None),
    "memory": ("/proc/self/mem", "/proc/self/mem: cannot be read", None),
    "endless link": ("loop.yaml", "loop.yaml: cannot be read", lambda at: (at / "loop.yaml").symlink_to("loop.yaml")),
    "link to nothing": ("gone.yaml", "gone.yaml: cannot be read", lambda at: (at / "gone.yaml").symlink_to("x")),
    "no file": ("none.yaml", "'none.yaml' is neither a preset (tiny, edge, base) nor a YAML file", None),
    "no path": ("", "'' is neither a preset", None), "long path": ("x" * 5000, "is neither a preset", None),
    "path of controls": ("a\nb\x1b[31m.yaml", "'a\\nb\\x1b[31m.yaml' is neither a preset", None),
    "file of controls": ("a\nb.yaml", "a\\nb.yaml:1: dim must be", _write_controls),
    "below a file": ("file/my.yaml", "is neither a preset", lambda at: (at / "file").touch()),
}


def cases() -> Iterator[Case]:
    """All of them."""
    for label, (content, says) in CONTENT.items():
        yield Case(label=f"yaml: {label}", arguments=_command("my.yaml"), names="my.yaml", says=says,
                   make=_write(content, label))
    for label, (path, says, make) in PATHS.items():
        yield Case(label=f"path: {label}", arguments=_command(path), says=says, make=make)
