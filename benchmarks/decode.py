"""Decoding passes of the bundled target: cycles by rows and context, and what bounds them.

    python benchmarks/decode.py --config base --out docs/results
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import console, show, write

from gemmule.compiler.ideal import ideal
from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sim.roofline import roofline_cycles
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.ledger import Ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    session = Session(config)
    target = session.target
    rows: list[dict[str, Any]] = []
    for position in (0, 32, 64, 128, 224):
        one = 0
        for count in (1, 2, 4, 8, 16):
            ledger = Ledger(config)
            target.charging(ledger).forward(Rows.chain(list(range(2, 2 + count)), position))
            one = one or ledger.device_cycles
            least = ideal(target.program.graph, count, position, wanted=count, tokens=True)
            rows.append({
                "context": position, "rows": count, "cycles": ledger.device_cycles,
                "over 1 row": ledger.device_cycles / one, "DRAM bus busy": ledger.dram_bound,
                "of roofline": roofline_cycles(least.bytes, config) / ledger.device_cycles,
            })
    show(f"one pass of the bundled target on {config.name}", rows)
    worst = max(row["over 1 row"] for row in rows if row["rows"] == 8)
    console.print(f"8 rows / 1 row: at most {worst:.3f}")
    write(args.out / f"decode_{config.name}.json", {"command": "python benchmarks/decode.py", "rows": rows})


if __name__ == "__main__":
    main()
