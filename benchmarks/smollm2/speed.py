"""Cycles of passes of SmolLM2 against what the bus needs, timing alone: no data, so any context costs the same to try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.common import show
from benchmarks.smollm2.model import BITS, model_path, pair_of
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Network
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.narrow import chosen_program
from gemmule.config import load_config
from gemmule.sw.workloads.passes import Passes

__all__ = ["CONFIG", "CONTEXTS", "speed"]

CONFIG = "base"
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8000)
FEW, MOST_ROWS = 4, 16
BEHIND = 500
"""Tokens behind which programs are compared, which all of them take."""
Record = dict[str, Any]


def speed(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: passes by the programs that sessions take, and a row by each of them.

    16 rows: of a session with passes of as many.
    """
    config = load_config(CONFIG)
    record.update(config=CONFIG, bus_bytes=config.bus_bytes, clock_mhz=config.host.clock_mhz)
    passes, programs = record.setdefault("passes", []), record.setdefault("programs", [])
    for bits in BITS:
        if any(p["weights"] == bits for p in programs):
            continue
        passes[:] = [p for p in passes if p["weights"] != bits]
        pair, file = pair_of(bits), load_model(model_path(bits))
        session, wide = (pair.target(config, 0, rows=rows, prefill=0) for rows in (None, MOST_ROWS))
        least = 0
        for context in CONTEXTS:
            for rows, placed in {1: session, FEW: session, session.program.max_rows: session, MOST_ROWS: wide}.items():
                cached = placed.program.graph.prefix + context
                program = chosen_program(placed.narrow, rows, cached) or placed.program
                made, one = _pass(program, file.network, context, rows), _pass(program, file.network, context, 1)
                least = made["cycles"] if rows == 1 else least
                passes.append({"weights": bits, **made, "over_one_row": made["cycles"] / least,
                               "over_one_row_of_its_program": made["cycles"] / one["cycles"]})
        programs += [{"weights": bits, "most_rows": program.max_rows, "positions": program.max_positions,
                      "scores": program.scores,
                      **_pass(program, file.network, BEHIND, 1)}
                     for program in (*session.narrow, session.program)]
        save()
    show(f"passes on {CONFIG}, {config.bus_bytes} bytes a cycle", passes)
    show(f"a row behind {BEHIND} tokens, by program", programs)


def _pass(program: ModelProgram, network: Network, context: int, rows: int) -> Record:
    """Timing alone; every row is answered."""
    with Passes(program, network, "model", 0, True) as run:
        run.fill_cache(context)
        run.run(rows, rows)
        found, config = run.record(), program.config
    whole = found["cycles"] + config.host.launch_cycles + config.host.step_cycles
    return {"context": context, "rows": rows, "cycles": found["cycles"], "dram_bytes": found["dram_bytes"],
            "roofline_fraction": found["roofline_fraction"],
            "tokens_per_second": 1e6 * config.host.clock_mhz / whole if rows == 1 else None}
