"""Fill the tables of docs/energy.md from docs/results and from the table that ships.

    python -m benchmarks.energy_page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.config import load_config
from gemmule.sim.energy.table import ATTO, EVENTS, load_energy
from gemmule.sw.reports.markdown import fill_page, table

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "energy.md"
OSU_FLIP_FLOP_UM2 = 96
"""Area of DFFPOSX1, the only flip-flop of that library that mapping takes."""


def _result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "results" / "energy.json").read_text())
    return found


def events() -> str:
    """Every event with its price on ``base``."""
    prices, base = load_energy(), load_config("base")
    return table(("part", "event", "pJ", "of", "source"), [
        (part, f"`{event}`", f"{prices.price(event, base) / ATTO:,.4g}", what,
         prices.prices[event].source.partition(":")[0]) for event, (part, what) in EVENTS.items()])


def _share(value: float) -> str:
    return f"{value:+.1%}"


def held() -> str:
    """Errors of programs that were not fitted."""
    found = _result()
    rows = [(row["program"], f"{row['cycles']:,}", f"{row['clock_pj'] / 1000:,.0f}", f"{row['logic_pj'] / 1000:,.1f}",
             f"{row['memories_pj'] / 1000:,.1f}", _share(row["error_of_logic"]), _share(row["error"]))
            for row in found["held_out"]]
    fitted = found["fitted"]
    errors = [abs(row["error_of_logic"]) for row in fitted]
    most, mean = max(errors), sum(errors) / len(errors)
    return table(("program", "cycles", "clock, nJ", "logic, nJ", "memories, nJ", "error of logic", "error of all"),
                 rows) + (f"\n\nThe {len(fitted)} programs of the fit: error of logic {mean:.1%} in the mean, "
                          f"{most:.1%} at most; of all {max(abs(row['error']) for row in fitted):.1%} at most.")


def flops() -> str:
    """Flip-flops of the presets, by counting, by mapping and by the rule."""
    prices, found = load_energy(), _result()
    edge = json.loads((ROOT / "docs" / "results" / "cells_osu018_edge.json").read_text())
    registers = edge["units"]["gemmule"]["total"]["registers_um2"]
    mapped = {"tiny": f"{found['flip_flops']:,} (sky130)", "edge": f"{registers / OSU_FLIP_FLOP_UM2:,.0f} (osu018)"}
    return table(("device", "flip-flops", "after mapping", "by the rule", "clock, pJ per cycle"), [
        (f"`{name}`", f"{count:,}", mapped.get(name, "-"), f"{prices.flip_flops_by_rule(load_config(name).dim):,}",
         f"{prices.price('cycle', load_config(name)) / ATTO:,.0f}")
        for name, count in found["flip_flops_by_preset"].items()])


PARTS: dict[str, Callable[[], str]] = {"events": events, "held": held, "flops": flops}


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
