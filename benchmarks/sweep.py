"""A sweep that is interrupted and gone on with, and the same on a local Dask cluster: nothing lost, the same table.

    python -m benchmarks.sweep --out docs/results

examples/sweeps/grid.yaml, 216 configurations with two workloads, by the command on two processes; SIGINT comes when
half of the points are there. Needs the extra dask.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gemmule import __version__
from gemmule.io.files import write_atomically
from gemmule.sw.sweeps.sweep import Store, points
from gemmule.sw.sweeps.sweep_file import read_sweep

GRID = Path("examples/sweeps/grid.yaml").resolve()
JOBS = 2


def _start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "gemmule", "sweep", str(GRID), "--db", "grid.sqlite", "--jobs", str(JOBS), *options]
    return subprocess.Popen(line, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))


def measure() -> dict[str, Any]:
    """Three runs of the command."""
    every = points(read_sweep(GRID))
    with tempfile.TemporaryDirectory() as name:
        folder, begin = Path(name), time.perf_counter()
        first, half = _start(folder, "--run", "local"), len(every) // 2
        store = Store(folder / "grid.sqlite")
        while first.poll() is None and len(store.done("local")) < half:
            time.sleep(0.2)
        os.kill(first.pid, signal.SIGINT)
        code, kept = first.wait(), len(store.done("local"))
        before = store.rows("local", every)
        for options in (("--run", "local", "--json", "local.json"),
                        ("--run", "dask", "--engine", "dask", "--compare", "local", "--json", "dask.json")):
            if _start(folder, *options).wait():
                sys.exit(f"gemmule sweep {' '.join(options)} failed")
        local, dask = (json.loads((folder / f"{run}.json").read_text()) for run in ("local", "dask"))
        after = store.rows("local", every)
        seconds = time.perf_counter() - begin
    return {"schema": "gemmule/benchmark-sweep/1", "version": __version__, "grid": GRID.name, "jobs": JOBS,
            "configurations": len({point.fields for point in every}), "points": len(every),
            "interrupted_exit_code": code,
            "kept": kept, "kept_rows_unchanged": all(row in after for row in before), "resumed": local["evaluated"],
            "rows": len(local["rows"]), "errors": sum(row["error"] is not None for row in local["rows"]),
            "dask_evaluated": dask["evaluated"], "dask_differing": len(dask["differing"]), "seconds": seconds}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    record = measure()
    print(record)
    write_atomically(args.out / "sweep.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
