"""Cycles of passes of SmolLM2 against what the bus needs, timing alone: no data, so any context costs the same to try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.common import show
from benchmarks.smollm2.model import BITS, model_path, pair_of
from gemmule.compiler.ir import Network
from gemmule.compiler.kept import compile_kept
from gemmule.compiler.mapping.search import default_effort
from gemmule.compiler.model_file import load_model
from gemmule.compiler.model_program import ModelProgram
from gemmule.config import load_config
from gemmule.sw.passes import Passes

__all__ = ["CONFIG", "CONTEXTS", "ROWS", "SMALLER", "speed"]

CONFIG = "base"
CONTEXTS = (64, 512, 1024)
ROWS = (1, 8, 16)
SMALLER = ((4, 640), (4, 1088), (2, 1088))
"""(rows, positions) of programs that are made for less than the model sees, whose scores stay on the device."""
BEHIND = 512
"""Tokens behind which they are compared."""
Record = dict[str, Any]


def speed(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: passes of the program that sessions use (16 rows: of one that takes as many), other programs."""
    config = load_config(CONFIG)
    record.update(config=CONFIG, bus_bytes=config.bus_bytes, clock_mhz=config.host.clock_mhz)
    passes, programs = record.setdefault("passes", []), record.setdefault("programs", [])
    for bits in BITS:
        if any(p["weights"] == bits for p in programs):
            continue
        passes[:] = [p for p in passes if p["weights"] != bits]
        pair, file = pair_of(bits), load_model(model_path(bits))
        placed = pair.target(config, 0, prefill=0).program, pair.target(config, 0, rows=max(ROWS), prefill=0).program
        for context in CONTEXTS:
            made = [_pass(placed[rows > placed[0].max_rows], file.network, context, rows) for rows in ROWS]
            passes += [{"weights": bits, **one, "over_one_row": one["cycles"] / made[0]["cycles"]} for one in made]
        smaller = [compile_kept(file.network, file.sha256, config, rows=rows, context=most, tokens=True,
                                effort=default_effort(file.network.graph)) for rows, most in SMALLER]
        programs += [{"weights": bits, "most_rows": program.max_rows, "positions": most, "scores": program.scores,
                      **_pass(program, file.network, BEHIND, 1)}
                     for program, most in zip((*placed, *smaller), (*[file.network.graph.whole_positions] * 2,
                                                                    *(most for _, most in SMALLER)), strict=True)]
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
