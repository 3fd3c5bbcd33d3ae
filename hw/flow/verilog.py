"""Verilog of the device or of any single unit, written only when it changed."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from amaranth.back import verilog
from amaranth.lib.wiring import Component

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
from gemmule.hw.matrix.matrix import Matrix
from gemmule.hw.memory.accumulator import Accumulator
from gemmule.hw.memory.scratchpad import Scratchpad
from gemmule.hw.move.load import Load
from gemmule.hw.move.store import Store
from gemmule.hw.select.select import Select
from gemmule.hw.vector.vector import Vector
from gemmule.timing import Timing

__all__ = ["TOP", "UNITS", "generate", "generate_unit", "manifest_of", "text_of", "without_collection"]

TOP = "gemmule"
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


def text_of(component: Component, name: str) -> tuple[str, dict[str, dict[str, str | int]]]:
    """SystemVerilog of a component and its ports: name to direction and width.

    ``always @*`` blocks may stay unknown from time 0 in simulators, ``always_comb`` may not. A
    logical not of a vector, which Yosys makes of ``x == 0``, becomes the reduction it means.
    """
    ports: dict[str, dict[str, str | int]] = {
        "clk": {"direction": "input", "width": 1}, "rst": {"direction": "input", "width": 1},
    }
    for path, member, value in component.signature.flatten(component):
        width = len(value.as_value() if hasattr(value, "as_value") else value)
        ports["__".join(map(str, path))] = {
            "direction": "output" if member.flow.name == "Out" else "input", "width": width}
    with without_collection():
        text = verilog.convert(component, name=name, strip_internal_attrs=True, emit_src=False)
    return text.replace("always @*", "always_comb").replace(" = ! ", " = ~| "), ports


def manifest_of(text: str, ports: Mapping[str, object], name: str, config: Config, timing: Timing) -> str:
    """JSON that says what a Verilog file is."""
    return json.dumps({
        "module": name, "config": config.model_dump(), "timing": vars(timing), "ports": ports,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }, indent=2) + "\n"


def _write(path: Path, text: str) -> None:
    """Replace a file at once, and only if its text differs."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(partial, 0o644)
    os.replace(partial, path)


def generate_unit(name: str, config: Config, out_dir: Path | str, timing: Timing | None = None) -> Path:
    """Write one entry of :data:`UNITS` as ``<name>_<config>.sv`` with its manifest."""
    if name not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {name!r}")
    timing = timing or Timing.of(config)
    text, ports = text_of(UNITS[name](config, timing), name)
    path = Path(out_dir) / f"{name}_{config.name}.sv"
    _write(path, text)
    manifest = "manifest.json" if name == TOP else f"{name}.manifest.json"
    _write(path.with_name(manifest), manifest_of(text, ports, name, config, timing))
    return path


def generate(config: Config, out_dir: Path | str, timing: Timing | None = None) -> Path:
    """Write ``gemmule_<config>.sv`` (module ``gemmule``) and ``manifest.json``; returns the former."""
    return generate_unit(TOP, config, out_dir, timing)
