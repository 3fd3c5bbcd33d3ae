"""Flip-flops of a device in standard cells, counted before mapping: registers, and memories too small for macros."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from amaranth.back import rtlil

from gemmule.config import Config
from gemmule.hw.flow.standard.macros import LEAST_BITS
from gemmule.hw.flow.standard.mapped import collect_script
from gemmule.hw.flow.tools import Tools
from gemmule.hw.flow.verilog import TOP, UNITS, without_collection
from gemmule.timing import Timing

__all__ = ["flip_flops_of"]

_MODULE = re.compile(r"^module \\(\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
_CELL = re.compile(r"^  cell (\S+) \S+\n(.*?)^  end\n", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"parameter \\(\w+) (?:\d+')?([01x]+|\d+)$", re.MULTILINE)


def _own(kind: str, body: str) -> int:
    """Flip-flops of a cell."""
    values = dict(_PARAMETER.findall(body))
    if "dff" in kind:
        return int(values["WIDTH"])
    if kind != "$mem_v2" or not int(values["WR_PORTS"]):
        return 0
    bits = int(values["SIZE"]) * int(values["WIDTH"])
    clocked = values["RD_CLK_ENABLE"].count("1") >= int(values["RD_PORTS"])
    return 0 if bits >= LEAST_BITS and clocked else bits


def flip_flops_of(config: Config, folder: Path, tools: Tools) -> int:
    """A few per cent more than mapping leaves, which drops constant ones; ``folder`` is for Yosys' files."""
    folder.mkdir(parents=True, exist_ok=True)
    with without_collection():
        text = rtlil.convert(UNITS[TOP](config, Timing.of(config)), name=TOP, emit_src=False)
    (folder / "design.il").write_text(text)
    (folder / "collect.ys").write_text(collect_script(text, TOP, config.dim))
    tools.run("yosys", ["-q", "-l", "collect.log", "collect.ys"], folder, "collect.log", lambda step: None)
    modules: dict[str, tuple[int, Counter[str]]] = {}
    for name, body in _MODULE.findall((folder / "collected.il").read_text()):
        cells = _CELL.findall(body)
        modules[name] = (sum(_own(kind, cell) for kind, cell in cells),
                         Counter(kind[1:] for kind, _ in cells if kind.startswith("\\")))

    def total(name: str) -> int:
        own, within = modules[name]
        return own + sum(count * total(kind) for kind, count in within.items() if kind in modules)

    return total(TOP)
