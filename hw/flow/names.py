"""Plain names for modules and instances in the Verilog that Amaranth and Yosys write.

A module is named there after its path, ``\\gemmule.core.issue$221``, with a number where an instance has the name of
a signal, and the numbers differ from configuration to configuration. Here it is ``gemmule_core_issue``, and the
instance is ``u_issue``. Names of signals stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["Modules", "instances", "module_texts", "plain"]

_HEAD = re.compile(r"^module (?:\\(\S+) |(\w+))", re.MULTILINE)
_INSTANCE = re.compile(r"^  \\(\S+)  (?:\\(\S+) |(\w+)) \($", re.MULTILINE)
_PLAIN = re.compile(r"^  (\w+) (\w+) \($", re.MULTILINE)
_TEXT = re.compile(r"^(?:\(\*.*\*\)\n)*module (\w+).*?^endmodule\n", re.MULTILINE | re.DOTALL)

Modules = dict[str, str]
"""Path of every module (``gemmule.core.issue``) by its plain name."""


def _unique(name: str, taken: set[str]) -> str:
    """``name`` or, if it is taken, ``name`` with the first free number; taken from now on."""
    chosen, number = name, 2
    while chosen in taken:
        chosen, number = f"{name}_{number}", number + 1
    taken.add(chosen)
    return chosen


def _legal(name: str) -> str:
    return re.sub(r"\W", "_", re.sub(r"\$\d+(?=\.|$)", "", name))


def plain(text: str) -> tuple[str, Modules]:
    """Verilog with plain names of modules and instances, and the paths of the modules.

    An instance whose name was escaped, because a signal has it too or because it is a word of the language, gets
    ``u_`` before it. Nothing else changes: not the order of modules, nor a line of what is in them.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for escaped, simple in _HEAD.findall(text):
        names[escaped or simple] = _unique(_legal(escaped or simple), taken)

    def instance(found: re.Match[str]) -> str:
        return f"  {names[found[1]]} {found[3] or 'u_' + _legal(found[2])} ("

    def head(found: re.Match[str]) -> str:
        return f"module {names[found[1] or found[2]]}"

    renamed = _INSTANCE.sub(instance, _HEAD.sub(head, text))
    return renamed, {name: re.sub(r"\$\d+(?=\.|$)", "", path) for path, name in names.items()}


def module_texts(text: str) -> dict[str, str]:
    """The text of every module by its name, attributes before it included; of Verilog with plain names."""
    return {found[1]: found[0] for found in _TEXT.finditer(text)}


def instances(text: str, top: str) -> Iterator[tuple[str, str]]:
    """Every instance below ``top`` as its path (``core.u_issue``) and its module, in the order of the text."""
    inside = {name: _PLAIN.findall(body) for name, body in module_texts(text).items()}

    def walk(module: str, path: str) -> Iterator[tuple[str, str]]:
        for kind, name in inside.get(module, ()):
            if kind in inside:
                yield path + name, kind
                yield from walk(kind, f"{path}{name}.")

    yield from walk(top, "")
