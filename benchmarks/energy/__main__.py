"""Derive the table of energies: docs/results/energy.json and sim/energy/sky130.yaml.

    python -m benchmarks.energy --out docs/results/energy.json --table sim/energy/sky130.yaml

Maps ``tiny`` to gates of sky130 (20 minutes of a core, kept in build/synth), runs programs on the gates with every
change of every net counted (10 minutes, kept in build/energy), fits prices to the directed ones, and compares the
others. The DRAM of every run must hold the model's bytes at its end.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show, write
from benchmarks.energy import fit as fitting
from benchmarks.energy.liberty import cells_of
from benchmarks.energy.measure import CLOCK_MHZ, Measured, measure
from benchmarks.energy.netlist import Netlist, read_netlist
from benchmarks.energy.programs import directed, held_out, mixed
from benchmarks.energy.registers import flip_flops_of
from gemmule import __version__
from gemmule.config import PRESETS, Config, load_config
from gemmule.hw.flow.standard.library import LIBRARIES
from gemmule.hw.flow.standard.mapped import map_cells
from gemmule.hw.flow.tools import Tools
from gemmule.hw.flow.verilog import TOP
from gemmule.io.files import write_atomically
from gemmule.io.progress import say
from gemmule.sim.energy.table import EVENTS
from gemmule.sim.launch import Launch
from gemmule.sim.simulator import Simulator

WORK = Path("build/energy")
PROCESS = "SkyWater 130 nm, typical, 1.8 V, 25 C, before layout, without clock gating; DRAM: HBM2"
SOURCES = {
    "fitted": "fitted to gates of tiny: python -m benchmarks.energy",
    "clock": "flip-flops of tiny, their clock by ngspice: python -m benchmarks.energy",
    "memory": "a line through OpenRAM's macros for sky130 of 1 and 2 KiB (VLSIDA, sky130_sram_macros, datasheet.info)",
    "dram": "HBM2 with activation and I/O, 3.92 pJ a bit: O'Connor and others, Fine-Grained DRAM, MICRO 2017",
}


def _events(case: Launch, config: Config) -> dict[str, int]:
    """What the model counts."""
    model = Simulator(config, dram_bytes=len(case.dram))
    model.load(case)
    return model.run().events


def _decimal(value: float) -> str:
    """pJ with six decimals at most."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return f'"{text or 0}"'


def table_text(prices: dict[str, float], flip_flop_pj: float, flip_flops: dict[str, int]) -> str:
    """The table as YAML."""
    lines = ["# Energy per event in pJ; docs/energy.md. Written by `python -m benchmarks.energy`.", "name: sky130",
             f'process: "{PROCESS}"',
             "# Of a device that is no preset: fixed + per_dim * dim + per_pe * dim**2.", "flip_flops:",
             *(f"  {name}: {count}" for name, count in flip_flops.items()), "events:"]
    for event, (part, per) in EVENTS.items():
        memory, dram = part in ("scratchpad", "accumulator"), part == "DRAM"
        kind = "memory" if memory else "dram" if dram else "clock" if event == "cycle" else "fitted"
        pj = _decimal(prices[event]) if not memory and not dram else (
            _decimal(fitting.ACCESS_PJ) if memory else f'"{fitting.DRAM_BIT_PJ}"')
        lines += [f"  {event}:", f"    pj: {pj}"]
        lines += [f"    pj_per_flip_flop: {_decimal(flip_flop_pj)}"] if event == "cycle" else []
        lines += [f"    pj_per_bit: {_decimal(fitting.ACCESS_BIT_PJ)}"] if memory else []
        lines += [f'    per: "{per}"', f'    source: "{SOURCES[kind]}"']
    return "\n".join(lines) + "\n"


def _rule(counts: dict[str, int]) -> dict[str, int]:
    """Flip-flops by ``dim``: least squares of relative errors over presets, none below 0."""
    dims = np.array([load_config(name).dim for name in counts], dtype=float)
    taken = np.array(list(counts.values()), dtype=float)
    found, _ = fitting.nnls(np.stack([np.ones(len(dims)), dims, dims ** 2], axis=1) / taken[:, None],
                            np.ones(len(dims)))
    return dict(zip(("fixed", "per_dim", "per_pe"), (round(float(value)) for value in found), strict=True))


def _errors(found: list[fitting.Error]) -> list[dict[str, Any]]:
    return [{"program": one.name, "cycles": one.cycles, "clock_pj": round(one.clock), "logic_pj": round(one.logic),
             "logic_priced_pj": round(one.logic_priced), "memories_pj": round(one.memories),
             "memories_priced_pj": round(one.memories_priced), "error_of_logic": round(one.of_logic, 4),
             "error": round(one.of_all, 4)} for one in found]


def main() -> None:
    """Measure, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/energy.json"))
    parser.add_argument("--table", type=Path, help="the YAML file to write as well")
    parser.add_argument("--native", action="store_true", help="Yosys from PATH instead of the wheel")
    options = parser.parse_args()
    config, library, tools = load_config("tiny"), LIBRARIES["sky130"], Tools(options.native)
    mapped = map_cells(TOP, config, library, Path("build/synth"), tools=tools, progress=lambda step: say(step[:60]))
    source = mapped.folder / "netlist.v"
    netlist = read_netlist(source, cells_of(library.there()))
    key = hashlib.sha256(source.read_bytes() + library.there().read_bytes()).hexdigest()[:12]
    WORK.mkdir(parents=True, exist_ok=True)
    cases = [*((False, case) for case in (*directed(config), *mixed(config))),
             *((True, case) for case in held_out(config))]
    programs = measure(netlist, config, cases, WORK / f"{key}.jsonl")
    events = {case.name: _events(case, config) for _, case in cases}
    counts = {name: flip_flops_of(load_config(name), WORK / name, tools) for name in PRESETS}
    record, table = derive(config, netlist, programs, events, counts)
    record["yosys"] = tools.version("yosys")
    write(options.out, record)
    if options.table:
        write_atomically(options.table, table)
    show("held out", [{name: row[name] for name in ("program", "cycles", "error_of_logic", "error")}
                      for row in record["held_out"]])


def derive(config: Config, netlist: Netlist, programs: list[Measured], events: dict[str, dict[str, int]],
           counts: dict[str, int]) -> tuple[dict[str, Any], str]:
    """The record, and the table as YAML."""
    train, test = ([one for one in programs if one.held_out is held] for held in (False, True))
    prices = fitting.fit(train, events)
    leakage = netlist.leakage_nw / CLOCK_MHZ * 1e-3
    mapped = len(netlist.flip_flops)
    counts = {name: round(count * mapped / counts["tiny"]) for name, count in counts.items()}
    rule = _rule(counts)
    widths = {name: bits * config.dim for name, bits in (
        ("spm_read", 8), ("spm_write", 8), ("acc_read", 32), ("acc_write", 32))}
    record = {
        "schema": "gemmule/benchmark-energy/1", "version": __version__, "config": config.name, "process": PROCESS,
        "cells": sum(netlist.kinds.values()), "flip_flops": mapped, "clock_pj_per_cycle": round(netlist.clock_pj, 2),
        "leakage_nw": round(netlist.leakage_nw, 1), "leakage_clock_mhz": CLOCK_MHZ,
        "latest_ns": max(one.latest_ns for one in programs),
        "access_pj": fitting.ACCESS_PJ, "access_bit_pj": fitting.ACCESS_BIT_PJ,
        "macros": {name: {"words": words, "bits": bits, "period_ns": period, "read_mw": reads, "write_mw": writes}
                   for name, (words, bits, period, reads, writes) in fitting.PUBLISHED.items()},
        "prices_pj": {event: round(price, 6) for event, price in prices.items()},
        "flip_flops_by_preset": counts, "flip_flops_rule": rule,
        "fitted": _errors(fitting.errors_of(train, events, prices, widths)),
        "held_out": _errors(fitting.errors_of(test, events, prices, widths)),
        "accesses": {one.name: one.accesses for one in programs}}
    text = table_text(prices | {"cycle": prices["cycle"] + leakage}, netlist.clock_pj / mapped, rule | counts)
    return record, text


if __name__ == "__main__":
    main()
