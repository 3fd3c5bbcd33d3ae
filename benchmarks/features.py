"""What features that a device may lack cost: COMB, FF and DSP of `edge` with each switched off, and with all of them.

    python -m benchmarks.features --out docs/results/features_edge.json
    python -m benchmarks.features --page docs/results/features_edge.json

Only the units that a feature touches are synthesised again, for the ECP5, with the Yosys of the wheel; in a device they
are kept apart (`gemmule synth`). ``share``: of the COMB of the whole device. --page: fill the table of
docs/synthesis.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.common import show, write
from gemmule import __version__
from gemmule.config import Config, load_config
from gemmule.hw.flow.synth import Area, synthesize
from gemmule.sw.reports.markdown import fill_page, table

ROOT = Path(__file__).resolve().parents[1]
WORK, PAGE, WHOLE = ROOT / "build" / "features", ROOT / "docs" / "synthesis.md", ROOT / "docs/results/synth_edge.json"
UNITS = {"comparison_modes": ("vector", "legal"), "output_stationary": ("matrix", "legal"),
         "transposition": ("matrix", "legal"), "int4": ("matrix", "legal")}
"""Features that are fields of their own, and the units that they touch."""


def area(config: Config, unit: str) -> Area:
    """Of a unit; Yosys' answer is kept in build."""
    return synthesize(unit, config, WORK).total


def with_features(config: Config, **features: bool) -> Config:
    """The same device, named after what differs."""
    name = "-".join([config.name, *(f"{name}-{'on' if there else 'off'}" for name, there in features.items())])
    return config.model_copy(update={**features, "name": name if len(features) == 1 else f"{config.name}-plain"})


def measure(base: Config) -> dict[str, Any]:
    """A row a feature: what the device would save without it, or pays with it."""
    whole = json.loads(WHOLE.read_text())["whole"]["total"]["comb"]
    rows = []
    changes: list[tuple[str, tuple[str, ...], dict[str, bool]]] = [
        (name, units, {name: not getattr(base, name)}) for name, units in UNITS.items()]
    there = {name: False for name in UNITS if getattr(base, name)}
    changes.append((", ".join(there), tuple(dict.fromkeys(unit for name in there for unit in UNITS[name])), there))
    for name, units, change in changes:
        other, added = with_features(base, **change), next(iter(change.values()))
        pairs = [(area(base, unit), area(other, unit)) for unit in units]
        less, more = (sum((pair[i] for pair in (pairs if added else [one[::-1] for one in pairs])), Area())
                      for i in (0, 1))
        row = {"feature": name, "units": list(units)}
        for what in ("comb", "ff", "dsp", "bram"):
            row |= {f"{what}_without": getattr(less, what), f"{what}_with": getattr(more, what)}
        rows.append(row | {"share": (more.comb - less.comb) / whole})
        print(rows[-1], flush=True)
    return {"schema": "gemmule/benchmark-features/1", "version": __version__, "config": base.name,
            "config_sha256": base.sha256, "comb_whole": whole, "rows": rows}


def page(record: dict[str, Any]) -> str:
    """The table of the page."""
    return table(("feature", "units", "COMB with", "without", "of the device", "FF with", "without", "DSP with",
                  "without"),
                 [(", ".join(f"`{name}`" for name in row["feature"].split(", ")), ", ".join(row["units"]),
                   f"{row['comb_with']:,}", f"{row['comb_without']:,}", f"{row['share']:.1%}", f"{row['ff_with']:,}",
                   f"{row['ff_without']:,}", row["dsp_with"], row["dsp_without"]) for row in record["rows"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="edge")
    parser.add_argument("--out", type=Path, default=Path("build/features_edge.json"))
    parser.add_argument("--page", type=Path, help="fill the page from this record")
    options = parser.parse_args()
    if options.page:
        record = json.loads(options.page.read_text())
        fill_page(PAGE, {"features": lambda: page(record)})
        return
    record = measure(load_config(options.config))
    write(options.out, record)
    show(f"features of {record['config']}", [{
        "feature": row["feature"], "COMB with": row["comb_with"], "without": row["comb_without"],
        "share": f"{row['share']:.1%}", "FF with": row["ff_with"], "without ": row["ff_without"],
        "DSP with": row["dsp_with"], "without  ": row["dsp_without"]} for row in record["rows"]])


if __name__ == "__main__":
    main()
