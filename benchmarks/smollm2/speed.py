"""Cycles of passes of SmolLM2 against what the bus needs, timing alone: no data, so any context costs the same to try.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.common import show
from benchmarks.smollm2.model import BITS, pair_of
from gemmule.config import load_config
from gemmule.sw.passes import Passes

__all__ = ["CONFIG", "CONTEXTS", "ROWS", "speed"]

CONFIG = "base"
CONTEXTS, ROWS = (64, 512, 1024), (1, 8, 16)
Record = dict[str, Any]


def speed(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: a row for each pass."""
    config = load_config(CONFIG)
    record.update(config=CONFIG, bus_bytes=config.bus_bytes, clock_mhz=config.host.clock_mhz)
    passes = record.setdefault("passes", [])
    for bits in BITS:
        if any(p["weights"] == bits for p in passes):
            continue
        placed = pair_of(bits).target(config, 0, rows=max(ROWS), prefill=0)
        for context in CONTEXTS:
            for rows in ROWS:
                with Passes(placed.program, placed.network, "model", 0, True) as run:
                    run.fill_cache(context)
                    run.run(rows, rows)
                    found = run.record()
                passes.append({
                    "weights": bits, "context": context, "rows": rows, "cycles": found["cycles"],
                    "roofline_fraction": found["roofline_fraction"], "dram_bytes": found["dram_bytes"],
                    "tokens_per_second": 1e6 * config.host.clock_mhz / (
                        found["cycles"] + config.host.launch_cycles + config.host.step_cycles) if rows == 1 else None})
        save()
    one = {(p["weights"], p["context"]): p["cycles"] for p in passes if p["rows"] == 1}
    for p in passes:
        p["over_one_row"] = p["cycles"] / one[p["weights"], p["context"]]
    show(f"passes on {CONFIG}, {config.bus_bytes} bytes a cycle", passes)
    record["median_roofline_fraction"] = statistics.median(
        p["roofline_fraction"] for p in passes if p["rows"] == 1)
