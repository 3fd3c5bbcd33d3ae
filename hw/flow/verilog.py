"""Verilog of the device or of any single unit, as text."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import amaranth
from amaranth.back import verilog
from amaranth.lib.wiring import Component

import gemmule
from gemmule.config import Config
from gemmule.hw.command.claims import Claims
from gemmule.hw.command.dispatch import Dispatch
from gemmule.hw.command.entries import Entries
from gemmule.hw.command.extents import Extents
from gemmule.hw.command.fetch import Fetch
from gemmule.hw.command.hulls import Hulls
from gemmule.hw.command.issue import Issue
from gemmule.hw.command.legal import Legal
from gemmule.hw.command.resolve import Resolve
from gemmule.hw.device.control import Control
from gemmule.hw.device.counters import Counters
from gemmule.hw.device.csr import CsrBlock
from gemmule.hw.device.read_arbiter import ReadArbiter
from gemmule.hw.device.top import Gemmule
from gemmule.hw.device.watchdog import Watchdog
from gemmule.hw.flow.combinational import settling
from gemmule.hw.flow.names import Modules, plain
from gemmule.hw.matrix.matrix import Matrix
from gemmule.hw.memory.accumulator import Accumulator
from gemmule.hw.memory.scratchpad import Scratchpad
from gemmule.hw.move.load import Load
from gemmule.hw.move.store import Store
from gemmule.hw.select.select import Select
from gemmule.hw.vector.vector import Vector
from gemmule.io.files import write_atomically
from gemmule.timing import Timing

__all__ = ["TOP", "UNITS", "Ports", "Verilog", "folded", "generate", "ports_of", "verilog_of", "without_collection",
           "without_folders"]

TOP = "gemmule"
Ports = dict[str, dict[str, str | int]]
"""Direction and width of every port by its name."""
Factory = Callable[[Config, Timing | None], Component]


def _timed(kind: type) -> Factory:
    return lambda config, timing: kind(config=config, timing=timing)


def _plain(kind: type) -> Factory:
    return lambda config, timing: kind(config=config)


UNITS: Mapping[str, Factory] = {
    TOP: _timed(Gemmule),
    "csr": _plain(CsrBlock), "control": _timed(Control), "counters": _plain(Counters), "watchdog": _plain(Watchdog),
    "fetch": _timed(Fetch), "legal": lambda config, timing: Legal(), "hulls": _plain(Hulls),
    "entries": _plain(Entries), "extents": lambda config, timing: Extents(),
    "resolve": _plain(Resolve), "dispatch": _plain(Dispatch),
    "claims": _timed(Claims), "issue_logic": _timed(Issue), "read_arbiter": _plain(ReadArbiter),
    "load": _timed(Load), "store": _timed(Store), "matrix": _timed(Matrix), "vector": _timed(Vector),
    "select": _timed(Select),
    "scratchpad": _plain(Scratchpad), "accumulator": _plain(Accumulator),
}
"""Everything that can be exported alone; the module carries the same name."""


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Elaboration makes millions of objects that stay: looking for cycles among them takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Verilog:
    """What a component became."""

    text: str
    """All modules, names as :mod:`gemmule.hw.flow.names` makes them, without a word on tools or versions."""
    ports: Ports
    modules: Modules
    yosys: str
    """Version of the Yosys that wrote it."""


_INTERNAL = re.compile(r"^ *\(\* (?:generator|top|\\amaranth\.\w+ ) .*\*\)\n", re.MULTILINE)
"""Attributes that say how Amaranth made something."""


def without_folders(text: str) -> str:
    """Text in which paths of sources are without folders of this machine: ``gemmule/hw/device/top.py``."""
    for package in (gemmule, amaranth):
        root = Path(str(package.__file__)).resolve().parent
        text = text.replace(f"{root}/", f"{root.name}/")
        for link in root.iterdir():  # gemmule/hw and so on may be links
            if link.is_symlink():
                text = text.replace(f"{link.resolve()}/", f"{root.name}/{link.name}/")
    return text


def ports_of(component: Component) -> Ports:
    """The ports that a component's Verilog has, clock and reset first."""
    ports: Ports = {"clk": {"direction": "input", "width": 1}, "rst": {"direction": "input", "width": 1}}
    for path, member, value in component.signature.flatten(component):
        width = len(value.as_value() if hasattr(value, "as_value") else value)
        ports["__".join(map(str, path))] = {
            "direction": "output" if member.flow.name == "Out" else "input", "width": width}
    return ports


def verilog_of(component: Component, name: str, *, sources: bool = False) -> Verilog:
    """SystemVerilog of a component.

    ``always @*`` blocks may stay unknown from time 0 in simulators, ``always_comb`` may not; for simulators with
    events each of them assigns once (:mod:`gemmule.hw.flow.combinational`). A logical not of a vector, which Yosys
    makes of ``x == 0``, becomes the reduction it means.

    Parameters
    ----------
    sources: an attribute ``src`` with file and line of the Python at every statement.
    """
    with without_collection():
        written = verilog.convert(component, name=name, strip_internal_attrs=not sources, emit_src=sources)
    tool = re.match(r"/\* Generated by .*?Yosys (\S+).* \*/\n+", written)
    assert tool, written[:200]
    text = settling(written[tool.end():].replace("always @*", "always_comb").replace(" = ! ", " = ~| "))
    text, modules = plain(without_folders(_INTERNAL.sub("", text)) if sources else text)
    return Verilog(text, ports_of(component), modules, tool[1])


_REPEATED = re.compile(r"(?<![\w$\\.\]])((?:\\\S+ |[A-Za-z_]\w*)(?: ?\[\d+\])?)(?:, \1(?=[,\s}])){2,}")
"""The same bit or word three times or more in a concatenation."""


def folded(text: str) -> str:
    """Verilog with replications where Yosys writes a bit many times, as for a sign.

    Verilator makes a shift of every bit of a concatenation and one subtraction of a replication.
    """
    return _REPEATED.sub(lambda match: f"{{{match[0].count(', ') + 1}{{{match[1]}}}}}", text)


def generate(config: Config, out_dir: Path | str, timing: Timing | None = None) -> Path:
    """Write ``gemmule_<config>.sv`` for a simulator: what :mod:`gemmule.hw.flow.export` writes, without its header.

    Long concatenations are :func:`folded`.
    """
    path = Path(out_dir) / f"{TOP}_{config.name}.sv"
    write_atomically(path, folded(verilog_of(UNITS[TOP](config, timing), TOP).text))
    return path
