"""BERT-base by shape at 128 and 512, and one of its layers with data, attention exact and online.

    python -m benchmarks.encoder --out docs/results
    python -m benchmarks.encoder --backend rtl        # the layers on the RTL: every byte and cycle

The whole network counts from start to interrupt: embedding, norms, softmax, GELU, residuals, requantisation; its parts
from the first product's issue to the last one's finish, of the second layer. The layer's hidden rows are compared with
the integer interpreter's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, machine, show, write
from gemmule.compiler.ideal import ideal
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.config import Config, load_config
from gemmule.isa import Unit
from gemmule.sim.result import Result
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.workloads.passes import EncoderPasses
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder

BERT = {"hidden": 768, "inner": 3072, "heads": 12, "vocab": 30522, "positions": 512}
REPEATS = 5
BLOCK = 64
"""Keys of a block of online attention: two of the layer's sequence."""
PARTS = {"key": "heads", "value": "heads", "query": "heads", "attention": "attention", "output": "output",
         "up": "mlp", "down": "mlp"}
"""The part of a layer that each operation's products are of."""


def parts(program: EncoderProgram, result: Result, sequence: int) -> dict[str, float]:
    """Share of peak of each part of the second layer."""
    spans: list[tuple[str, int, int]] = []
    for place, unit, issue, finish in zip(result.places, result.units, result.issue, result.finish, strict=True):
        if unit != Unit.MATRIX or issue < 0:
            continue
        part = PARTS[program.commands[place].note.partition(":")[0].rpartition(".")[2]]
        if not spans or spans[-1][0] != part:
            spans.append((part, int(issue), int(finish)))
        spans[-1] = (part, spans[-1][1], int(finish))
    hidden, inner = BERT["hidden"], BERT["inner"]
    macs = {"heads": 3 * hidden ** 2, "attention": 2 * sequence * hidden, "output": hidden ** 2,
            "mlp": 2 * hidden * inner}
    return {part: sequence * macs[part] / program.config.dim ** 2 / (end - begin)
            for part, begin, end in spans[len(macs):2 * len(macs)]}


def whole(config: Config, sequence: int, layers: int) -> dict[str, Any]:
    """BERT-base by shape, timing only."""
    network = random_encoder(EncoderSizes(layers=layers, **BERT), 0, weights=False)
    begin = time.perf_counter()
    program = compile_encoder(network, config, sequence=sequence)
    compiled, seconds = time.perf_counter() - begin, []
    with EncoderPasses(program, network, "model", 0, True) as passes:
        for _ in range(REPEATS):
            begin = time.perf_counter()
            passes.run(sequence)
            seconds.append(time.perf_counter() - begin)
        result = passes.results[-1]
    needed = ideal(network.graph, sequence, 0, wanted=0, tokens=False)
    return {"program": f"BERT-base, sequence {sequence}", "layers": layers, "commands": len(program.commands),
            "commands run": len(result.issue), "cycles": int(result.cycles),
            "share of peak": needed.macs / (result.cycles * config.dim ** 2),
            **{f"share of peak, {part}": share for part, share in parts(program, result, sequence).items()},
            "DRAM bytes": sum(result.dram_bytes.values()), "compile seconds": compiled,
            "simulation seconds": float(np.median(seconds))}


def layer(config: Config, sequence: int, way: str, rtl: RtlDevice | None, seed: int) -> dict[str, Any]:
    """One layer with data, attention exact or online."""
    network = random_encoder(EncoderSizes(layers=1, **BERT | {"vocab": 500}), seed)
    network = network if way == "exact" else network.with_softmax(None, BLOCK)
    program = compile_encoder(network, config, sequence=sequence)
    cycles = EncoderBench(program, network, *([rtl] if rtl else [])).run(random_rows(network, sequence))
    macs = ideal(network.graph, sequence, 0, wanted=0, tokens=False).macs
    return {"program": f"a layer with its ends, sequence {sequence}, attention {way}", "cycles": cycles,
            "share of peak": macs / (cycles * config.dim ** 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sequences", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--sequence", type=int, default=128, help="of the layer with data")
    parser.add_argument("--backend", choices=["model", "rtl"], default="model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    console.print(f"seed {args.seed}")
    rtl = RtlDevice(config) if args.backend == "rtl" else None
    try:
        tables = {
            "whole": [whole(config, sequence, args.layers) for sequence in args.sequences],
            "layer": [layer(config, args.sequence, way, rtl, args.seed) for way in ("exact", "online")]}
    finally:
        if rtl:
            rtl.close()
    for rows in tables.values():
        show(f"on {config.name}" + (", RTL and model equal in every byte and cycle" if rtl else ""), rows)
    write(args.out / f"encoder_{config.name}.json", {
        "command": f"python -m benchmarks.encoder --config {args.config} --layers {args.layers} --sequences "
                   f"{' '.join(map(str, args.sequences))} --sequence {args.sequence} --backend "
                   f"{args.backend} --seed {args.seed}",
        "machine": machine(), **tables})


if __name__ == "__main__":
    main()
