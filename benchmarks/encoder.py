"""BERT-base by shape at 128 and 512, one of its layers with data, and attention by online softmax.

    python -m benchmarks.encoder --out docs/results
    python -m benchmarks.encoder --backend rtl        # the layer and online attention on the RTL: every byte and cycle

The whole network counts from start to interrupt: embedding, norms, softmax, GELU, residuals, requantisation; its parts
from the first product's issue to the last one's finish, of the second layer. The layer's hidden rows are compared with
the integer interpreter's. Online softmax runs at --sequence, and one head of it at --long; it counts from the first
product's issue to the last context's write. "Exposed" are cycles in which the vector unit works and the matrix unit
has nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, machine, show, write
from gemmule.compiler.encoder import compile_encoder
from gemmule.compiler.encoder_program import EncoderProgram
from gemmule.compiler.exposed import exposed_vector
from gemmule.compiler.ideal import ideal
from gemmule.compiler.online_attention import compile_online_attention, online_attention
from gemmule.compiler.quantize import to_mult_shift
from gemmule.config import Config, load_config
from gemmule.isa import Unit
from gemmule.sim.result import Result
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.passes import EncoderPasses
from tests.compiler.encoder_bench import EncoderBench, random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder

BERT = {"hidden": 768, "inner": 3072, "heads": 12, "vocab": 30522, "positions": 512}
REPEATS = 5
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


def layer(config: Config, sequence: int, rtl: RtlDevice | None, seed: int) -> dict[str, Any]:
    """One layer with data."""
    network = random_encoder(EncoderSizes(layers=1, **BERT | {"vocab": 500}), seed)
    program = compile_encoder(network, config, sequence=sequence)
    cycles = EncoderBench(program, network, *([rtl] if rtl else [])).run(random_rows(network, sequence))
    macs = ideal(network.graph, sequence, 0, wanted=0, tokens=False).macs
    return {"program": f"a layer with its ends, sequence {sequence}", "cycles": cycles,
            "share of peak": macs / (cycles * config.dim ** 2)}


def online(config: Config, heads: int, rows: int, causal: bool, rtl: RtlDevice | None, seed: int) -> dict[str, Any]:
    """Attention alone, by online softmax."""
    random, columns = np.random.default_rng(seed), BERT["hidden"] // BERT["heads"]
    q, k, v = (random.integers(-128, 128, (heads, rows, columns)).astype(np.int8) for _ in range(3))
    # Scores with a deviation of two octaves (random bytes deviate by 74).
    score = np.stack(to_mult_shift(np.full(heads, 2048 / (74 ** 2 * columns ** 0.5))), axis=1)
    scale = np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)
    made = compile_online_attention(config, heads, rows, rows, columns, score=score, scale=scale, causal=causal)
    case, simulator = made.launch("attention", made.fill(q, k, v), made.registers(), seed=seed), Simulator(config)
    if rtl:
        report = cosim(case, simulator, rtl)
        if not report.ok:
            raise SystemExit(report.text)
        result = report.expected
    else:
        simulator.load(case)
        result = simulator.run()
    golden = online_attention(q, k, v, score, scale, causal=causal, block=made.plan.block)
    name = f"{'causal ' if causal else ''}attention, online softmax, {heads} x {rows} keys in blocks of "
    name += str(made.plan.block)
    if result.fault or not np.array_equal(made.read_output(simulator.read_dram), golden):
        raise SystemExit(f"{name}: the context differs from the golden")
    first = result.issue[result.units == Unit.MATRIX][0]
    cycles, exposed = int(result.finish[result.units == Unit.VECTOR][-1] - first + 1), exposed_vector(result)
    return {"program": name, "cycles": cycles, "share of peak": made.macs / (cycles * config.dim ** 2),
            "exposed vector cycles": exposed, "DRAM bytes": sum(result.dram_bytes.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sequences", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--sequence", type=int, default=128, help="of the layer with data and of online attention")
    parser.add_argument("--long", type=int, default=1024, help="sequence of the last online row")
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
            "layer": [layer(config, args.sequence, rtl, args.seed)],
            "online": [online(config, heads, rows, causal, rtl, args.seed)
                       for heads, rows in ((BERT["heads"], args.sequence), (1, args.long))
                       for causal in (False, True)]}
    finally:
        if rtl:
            rtl.close()
    for rows in tables.values():
        show(f"on {config.name}" + (", RTL and model equal in every byte and cycle" if rtl else ""), rows)
    write(args.out / f"encoder_{config.name}.json", {
        "command": f"python -m benchmarks.encoder --config {args.config} --layers {args.layers} --sequences "
                   f"{' '.join(map(str, args.sequences))} --sequence {args.sequence} --long {args.long} --backend "
                   f"{args.backend} --seed {args.seed}",
        "machine": machine(), **tables})


if __name__ == "__main__":
    main()
