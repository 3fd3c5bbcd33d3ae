"""Verilator's C++ rewritten in place, before it is compiled."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from gemmule.sim.rtl.activity.emit import emit
from gemmule.sim.rtl.activity.order import arrange
from gemmule.sim.rtl.activity.parse import parse

__all__ = ["HEADER", "rewrite"]

HEADER = "gate.h"
_TABLE = re.compile(r"^extern const .*;\n", re.MULTILINE)
_INCLUDE = '#include "Vtop__pch.h"\n'
_HEAD = ("    Vtop__Syms* const __restrict vlSymsp VL_ATTR_UNUSED = vlSelf->vlSymsp;\n"
         "    auto& vlSelfRef = std::ref(*vlSelf).get();\n")


def rewrite(folder: Path) -> int:
    """Let the simulator in ``folder`` skip what cannot change; the number of groups that it now has.

    Cycles and values stay what they are. One model at a time in a process, with one clock.

    Raises:
        UnknownCodeError: Verilator's text has another form than expected; nothing has been changed.
    """
    model = parse(folder)
    done = emit(model, arrange(model.statements))
    share = sum(map(len, done.groups)) / len(model.functions)
    bodies: list[list[str]] = [[done.begin], *([] for _ in model.functions[1:])]
    written = 0
    for text in done.groups:
        bodies[min(int(written / share), len(bodies) - 1)].append(text)
        written += len(text)
    pieces = defaultdict(list)
    for function, parts in zip(model.functions, bodies):
        pieces[function.path].append((function, "".join(parts)))
    texts = {path: path.read_text(encoding="utf-8") for path in folder.glob("Vtop___024root__*.cpp")}
    tables = sorted({line for text in texts.values() for line in _TABLE.findall(text)})
    (folder / HEADER).write_text("#pragma once\n" + "".join(tables) + done.header, encoding="utf-8")
    for path, changes in pieces.items():
        text = texts[path]
        for function, body in sorted(changes, key=lambda change: -change[0].begin):
            text = text[:function.begin] + _HEAD + body + text[function.end:]
        first = path == model.functions[0].path
        include = f'{_INCLUDE}#include "{HEADER}"\n' + (done.definition if first else "")
        path.write_text(text.replace(_INCLUDE, include, 1), encoding="utf-8")
    return len(done.groups)
