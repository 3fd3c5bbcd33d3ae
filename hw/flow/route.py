"""Place and route of a synthesised unit or device, and its Fmax.

On the ECP5 four steps, each taken from the work folder if nothing before it has changed: a first placement for short
wires, a second one for short paths with the multipliers and block RAM at the sites that fit the first one best
(:mod:`gemmule.hw.flow.floorplan`), moves of what still stands in the wrong place
(:mod:`gemmule.hw.flow.placing.refine`), and the routing. The router is router1: it rips up what is in the way and ends;
router2 kept thousands of wires with two nets in the fullest place. On the Gowin part one run of nextpnr, as it comes:
it has no static placer there, and places in a way of its own what only this part has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmule.hw.flow.floorplan import assigned, fix
from gemmule.hw.flow.paths import Pair, delays_of, slowest
from gemmule.hw.flow.placing import arrivals, moves, placement
from gemmule.hw.flow.placing import refine as refinement
from gemmule.hw.flow.synth import FREQUENCY, HARNESS, WHEELS, Area, Synthesis, owner_of
from gemmule.hw.flow.target import Target
from gemmule.hw.flow.tools import Progress, SynthError, Tools

__all__ = ["PAIRS", "Route", "route", "route_of"]

PAIRS = 10
"""Pairs of units that are kept."""


@dataclass(frozen=True)
class Route:
    """A placed and routed design."""

    fmax_mhz: float
    used: Mapping[str, tuple[int, int]]
    """Resource to used and available, harness included."""
    path: Mapping[str, Any]
    """The slowest path: ``start``, ``end``, ``cells`` on it, ``logic_ns`` and ``routing_ns``."""
    pairs: Sequence[Pair] = ()
    """The slowest path of each of the ten slowest pairs of units, see :mod:`gemmule.hw.flow.paths`."""
    estimates: Mapping[str, float] = field(default_factory=dict)
    """Fmax by the estimate of wires, ``placed`` and ``refined``."""
    by_seed: Mapping[str, float] = field(default_factory=dict)
    """Fmax by the placer's seed, if there was more than one: this is the route of the median."""


def route_of(report: Mapping[str, Any]) -> Route:
    """Fmax, use of the part and the slowest path from nextpnr's JSON report."""
    (clock,) = report["fmax"]
    path = next(p["path"] for p in report["critical_paths"] if p["from"].endswith(clock) and p["to"].endswith(clock))
    delay = {kind: sum(hop["delay"] for hop in path if (hop["type"] == "routing") == (kind == "routing"))
             for kind in ("logic", "routing")}
    return Route(
        round(report["fmax"][clock]["achieved"], 1),
        {name: (use["used"], use["available"]) for name, use in report["utilization"].items() if use["used"]},
        {"start": path[0]["from"]["cell"], "end": path[-1]["to"]["cell"],
         "cells": sum(hop["type"] == "logic" for hop in path),
         **{f"{kind}_ns": round(ns, 2) for kind, ns in delay.items()}})


@dataclass(frozen=True)
class _Steps:
    """Runs of nextpnr in a work folder, each stamped with all that its result depends on."""

    folder: Path
    tools: Tools
    target: Target
    seed: int
    progress: Progress

    def run(self, name: str, before: str, arguments: Sequence[str], *results: str) -> str:
        """Run a step unless ``results`` are there already; returns its stamp, ``before`` being that of its input."""
        arguments = [*self.target.options, *arguments, "--freq", str(FREQUENCY), "--timing-allow-fail",
                     "--seed", str(self.seed), "--log", f"{name}.log", "-q"]
        nextpnr = self.target.nextpnr
        key = hashlib.sha256(f"{before} {self.tools.version(nextpnr)} {arguments}".encode()).hexdigest()
        stamp = self.folder / f"{name}_key"
        there = all((self.folder / result).is_file() for result in (*results, stamp.name))
        if not (there and stamp.read_text() == key):
            stamp.unlink(missing_ok=True)
            self.tools.run(nextpnr, arguments, self.folder, f"{name}.log", self.progress)
            stamp.write_text(key)
        return key

    def place(self, name: str, before: str, netlist: str, *options: str) -> str:
        """Place; ``name``.json is the result."""
        return self.run(name, before, ["--json", netlist, "--placer", "static", *options, "--no-route",
                                       "--write", f"{name}.json"], f"{name}.json")


def route(synthesis: Synthesis, target: Target, *, seeds: Sequence[int] = (1,), tools: Tools = WHEELS,
          progress: Progress = lambda step: None) -> Route:
    """Place and route a unit or device in its harness, once a seed: the median by Fmax, or the one below.

    Raises:
        SynthError: nextpnr is missing or failed, or the design does not fit the part.
    """
    tools.check(target.nextpnr)
    if importlib.util.find_spec("scipy") is None:
        raise SynthError("synth: scipy is not installed; pip install 'gemmule[synth]'")
    area = sum(synthesis.parts.values(), Area())
    for resource in ("comb", "ff", "dsp", "bram"):
        needed, there = getattr(area, resource), getattr(target, resource)
        if needed > there:
            raise SynthError(f"synth: the design does not fit {target.part}: it needs {needed} {resource.upper()} "
                             f"of {there}; use a smaller configuration")
    once = _route if target.family == "ecp5" else _in_one_run
    routes = {seed: once(synthesis, _Steps(synthesis.folder, tools, target, seed, progress)) for seed in seeds}
    by_fmax = sorted(routes.values(), key=lambda found: found.fmax_mhz)
    by_seed = {str(seed): found.fmax_mhz for seed, found in routes.items()} if len(seeds) > 1 else {}
    return replace(by_fmax[(len(seeds) - 1) // 2], by_seed=by_seed)


def _in_one_run(synthesis: Synthesis, steps: _Steps) -> Route:
    """As the tool does it by itself, with the harness's ports at the part's ``pins``."""
    folder, more = synthesis.folder, f"_{steps.seed}" if steps.seed > 1 else ""
    report, delays = f"report{more}.json", f"delays{more}.sdf"
    pins = "".join(f'IO_LOC "{port}" {pin};\n' for port, pin in steps.target.pins.items())
    (folder / "pins.cst").write_text(pins)
    steps.run(f"route{more}", (folder / "key").read_text() + pins, [
        "--json", "netlist.json", "--vopt", "cst=pins.cst", "--report", report, "--sdf", delays], report, delays)
    return _found(synthesis, report, delays)


def _found(synthesis: Synthesis, report: str, delays: str) -> Route:
    """What a report says, with the slowest pairs of units."""
    with (synthesis.folder / delays).open() as lines:
        pairs = slowest(delays_of(lines), lambda cell: owner_of(cell, synthesis.unit))
    return replace(route_of(json.loads((synthesis.folder / report).read_text())), pairs=tuple(pairs[:PAIRS]))


def _route(synthesis: Synthesis, steps: _Steps) -> Route:
    folder = synthesis.folder
    more = f"_{steps.seed}" if steps.seed > 1 else ""  # files of their own
    first, fixed, second, estimate, refined, report, delays = (f"{name}{more}" for name in (
        "first", "fixed", "second", "estimate", "refined", "report", "delays"))
    placed = steps.place(first, (folder / "key").read_text(), "netlist.json", "--no-tmdriv")
    netlist, sites = (json.loads((folder / name).read_text()) for name in ("netlist.json", f"{first}.json"))
    fix(netlist, HARNESS, assigned(sites, steps.target.sites))
    text = json.dumps(netlist)
    (folder / f"{fixed}.json").write_text(text)
    again = steps.place(second, hashlib.sha256(text.encode()).hexdigest() + placed, f"{fixed}.json")
    told = steps.run(estimate, again, ["--json", f"{second}.json", "--no-pack", "--no-place", "--no-route",
                                       "--sdf", f"{estimate}.sdf"], f"{estimate}.sdf")
    estimates = _refined(steps, told, second, estimate, refined)
    key = hashlib.sha256((folder / f"{refined}.json").read_bytes()).hexdigest()
    steps.run(f"route{more}", key, [
        "--json", f"{refined}.json", "--no-pack", "--no-place", "--router", "router1", "--report", f"{report}.json",
        "--sdf", f"{delays}.sdf"], f"{report}.json", f"{delays}.sdf")
    return replace(_found(synthesis, f"{report}.json", f"{delays}.sdf"), estimates=estimates)


def _refined(steps: _Steps, before: str, second: str, estimate: str, refined: str) -> dict[str, float]:
    """Refine a placement unless that was done; returns Fmax by estimate before and after, in MHz."""
    folder = steps.folder
    modules = [Path(path.__file__ or "").read_bytes() for path in (arrivals, moves, placement, refinement)]
    key = hashlib.sha256(before.encode() + b"".join(modules)).hexdigest()
    record, placed = folder / f"{refined}_estimates.json", folder / f"{refined}.json"
    if record.is_file() and placed.is_file() and (found := json.loads(record.read_text())).pop("key") == key:
        return {name: float(mhz) for name, mhz in found.items()}
    record.unlink(missing_ok=True)
    netlist = json.loads((folder / f"{second}.json").read_text())
    (top,) = (module for module in netlist["modules"].values() if int(module["attributes"].get("top", "0"), 2))
    with (folder / f"{estimate}.sdf").open() as lines:
        better = refinement.refine(top["cells"], delays_of(lines), steps.target.sites, progress=steps.progress)
    for name, bel in better.bels.items():
        top["cells"][name]["attributes"]["NEXTPNR_BEL"] = bel
    placed.write_text(json.dumps(netlist))
    found = {"placed": round(1e6 / better.before, 1), "refined": round(1e6 / better.after, 1)}
    record.write_text(json.dumps({"key": key, **found}))
    return found
