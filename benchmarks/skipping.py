"""Weights that meet only zeros: how many there are, what passes of 1 to 16 rows save by not loading them.

    python -m benchmarks.skipping --out docs/results/skipping.json

The bundled targets on `base`, whose MLPs have a squared ReLU, on texts that training did not see: the first prompt of
each category of `gemmule bench`, whose tokens go on as rows of a pass behind 96, 128 and 160 cached ones, by a program
that loads all weights and by one that does not (`gemmule generate --skip-zeros`). Both must give the same token.
*Zeros* are columns of an MLP's inner rows that are 0 in every row of the pass, *not loaded* the part of the down
projection's weights that the pass did not load: bytes of both programs' passes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show, write
from gemmule import __version__
from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Activation, Cache, IntegerInterpreter, Linear, Network, Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.quantize.listed import listed
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.limits import CATEGORIES
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.categories import load_categories

ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST, BEGIN, STEP, PLACES = 16, 96, 32, 3
MODELS = ("default", "small")


class Device:
    """A compiled network on the model of the device."""

    def __init__(self, network: Network, rows: int) -> None:
        self.program: ModelProgram = compile_network(network, load_config("base"), rows=rows, tokens=True)
        self.model = Simulator(self.program.config, dram_bytes=self.program.size)
        self.model.write_dram(0, self.program.fill(network))

    def run(self, tokens: list[int], position: int) -> tuple[int, int, int]:
        """One pass: its last token, its cycles and the bytes that it loaded."""
        rows, program = Rows.chain(tokens, position), self.program
        step = program.step(rows, 1)
        for address, content in step.inputs:
            self.model.write_dram(address, content)
        self.model.load(program.launch("pass", NO_DRAM, step.registers))
        result = self.model.run()
        return program.tokens_of(self.model.read_dram, rows, 1)[0], result.cycles, int(result.dram_bytes["load"])


def zero_columns(network: Network, tokens: list[int], position: int, cache: Cache) -> float:
    """Share of the inner rows' columns that are 0 in every row; the rows do not stay in the cache."""
    inner = {node.name for node in network.graph.nodes if isinstance(node, Activation)}
    shares: list[float] = []
    IntegerInterpreter(network).forward(Rows.chain(tokens, position), cache, lambda name, value: shares.append(
        float((value == 0).all(axis=0).mean())) if name in inner else None)
    cache.truncate(position)
    return float(np.mean(shares))


def measure(name: str) -> list[dict[str, Any]]:
    """Rows of the table, of one model."""
    network, pair = bundled_model("target", name).network, bundled_pair(name)
    skipping = listed(network)
    weights = sum(node.columns * node.depth for node in skipping.graph.nodes
                  if isinstance(node, Linear) and node.listed)
    plain, sparse = Device(network, MOST), Device(skipping, MOST)
    found: dict[int, list[tuple[float, float, int, int]]] = defaultdict(list)
    for category in CATEGORIES:
        tokens = pair.encode(load_categories()[category][0].text)
        while len(tokens) < BEGIN + STEP * PLACES:
            tokens += tokens
        cache = Cache(network.graph)
        for at in range(0, BEGIN + STEP * (PLACES - 1), MOST):
            part = tokens[at:at + MOST]
            plain.run(part, at)
            sparse.run(part, at)
            IntegerInterpreter(network).forward(Rows.chain(part, at), cache)
            position = at + MOST
            if position < BEGIN or (position - BEGIN) % STEP:
                continue
            for rows in ROWS:
                some = tokens[position:position + rows]
                (token, before, all_bytes), (same, after, bytes_) = (
                    device.run(some, position) for device in (plain, sparse))
                assert token == same, (name, category, position, rows)
                found[rows].append((zero_columns(network, some, position, cache), (all_bytes - bytes_) / weights,
                                    before, after))
    return [_row(name, rows, numbers) for rows, numbers in found.items()]


def _row(name: str, rows: int, numbers: list[tuple[float, float, int, int]]) -> dict[str, Any]:
    zeros, saved, before, after = (np.array(column) for column in zip(*numbers, strict=True))
    speedups = before / after
    return {"model": name, "rows": rows, "zeros": float(zeros.mean()), "not_loaded": float(saved.mean()),
            "share_of_zeros": float(saved.mean() / zeros.mean()), "cycles": int(np.median(before)),
            "cycles_skipping": int(np.median(after)), "speedup": float(np.median(speedups)),
            "least": float(speedups.min()), "most": float(speedups.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write JSON here")
    args = parser.parse_args()
    rows = [row for name in MODELS for row in measure(name)]
    show("weights that meet only zeros, base", rows)
    if args.out:
        write(args.out, {"version": __version__, "begin": BEGIN, "rows": rows})


if __name__ == "__main__":
    main()
