"""Cycles of a pass over K rows, those of one row being 1: what verifying K - 1 drafts costs, on each preset.

    python -m benchmarks.verify_rows --out docs/results --plot docs/img/verify_rows.svg

By time alone, on a decoder of Llama's form whose sizes go with the preset's DIM, behind --context cached rows, K from 1
to 4 * DIM. Rows that a program does not take in one pass go in several. Weights go through the mesh tile by tile, and
up to DIM rows take a tile as long as one does; as long as loading the weights takes longer than that, further rows are
free as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.common import show, write
from gemmule.compiler.compile import compile_network
from gemmule.config import Config, load_config
from gemmule.sw.limits import PRESETS
from gemmule.sw.workloads.passes import Passes
from tests.compiler.integer_networks import Sizes, random_network

WIDTH, INNER, LAYERS = 8, 4, 1
"""Columns of the residual stream over DIM, of the MLP over those; layers."""
TIMES = 4
"""Rows at most, over DIM."""
ROWS = {"tiny": 4, "edge": 16, "base": 64}
"""The most that a program of the preset takes a pass: memories bound it, and the bits of a row's mask."""


def sizes(config: Config) -> Sizes:
    """A decoder for the preset: heads of two rows of the scratchpad."""
    hidden = WIDTH * config.dim
    return Sizes(family="llama", hidden=hidden, inner=INNER * hidden, layers=LAYERS, heads=WIDTH // 2,
                 kv_heads=WIDTH // 2, head_dim=2 * config.dim, vocab=2 * hidden, positions=256)


def measure(config: Config, context: int) -> dict[str, Any]:
    """Cycles by rows, 1 to 4 * DIM."""
    network, most = random_network(sizes(config), 1, weights=False), ROWS[config.name]
    program = compile_network(network, config, rows=most, context=context + TIMES * config.dim, tokens=True)
    cycles = []
    for count in range(1, TIMES * config.dim + 1):
        with Passes(program, network, "model", 0, True) as run:
            run.fill_cache(context)
            for first in range(0, count, most):
                rows = min(most, count - first)
                run.run(rows, rows)
            cycles.append(run.cycles)
    return {"config": config.name, "dim": config.dim, "rows_of_a_pass": most, "context": context, "cycles": cycles,
            "over_one_row": [count / cycles[0] for count in cycles]}


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """The curves, rows in multiples of DIM."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "gemmule"  # equal figures are equal files
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for part in found:
        rows = [count / part["dim"] for count in range(1, len(part["cycles"]) + 1)]
        axes.plot(rows, part["over_one_row"], label=f"{part['config']} (DIM {part['dim']})")
    axes.set_xlabel("rows of a pass, over DIM")
    axes.set_ylabel("cycles, over those of one row")
    axes.set_xticks(range(TIMES + 1))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=16)
    parser.add_argument("--plot", type=Path, help="also draw the curves; needs matplotlib")
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    found = [measure(load_config(name), args.context) for name in PRESETS]
    show(f"cycles of K rows over those of one, behind {args.context} cached rows", [
        {"config": part["config"], **{
            name: part["over_one_row"][count - 1] for name, count in (
                ("2", 2), ("4", 4), ("DIM / 2", part["dim"] // 2), ("DIM", part["dim"]), ("DIM + 1", part["dim"] + 1),
                ("2 DIM", 2 * part["dim"]), ("4 DIM", 4 * part["dim"]))}} for part in found])
    write(args.out / "verify_rows.json", {"command": "python -m benchmarks.verify_rows", "parts": found})
    if args.plot:
        plot(found, args.plot)


if __name__ == "__main__":
    main()
