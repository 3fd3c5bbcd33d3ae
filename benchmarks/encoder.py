"""Attention, two-pass and online, and one whole BERT-base encoder layer at sequence 128, checked against the golden.

    python benchmarks/encoder.py --config base --out docs/results
    python benchmarks/encoder.py --backend rtl          # the same programs on the RTL: every byte and cycle

Attention counts from the first product's issue to the last context's write, the layer from start to interrupt.
Online softmax runs at the same sequence, and one head of it at --long, where two-pass attention does not fit.
"Exposed" are cycles in which the vector unit works and the matrix unit has nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import console, show, write

from gemmule.compiler.attention import AttentionProgram, compile_attention
from gemmule.compiler.encoder import compile_encoder
from gemmule.compiler.encoder_reference import EncoderShape, attention, encode, random_layer
from gemmule.compiler.exposed import exposed_vector
from gemmule.compiler.online_attention import compile_online_attention, online_attention
from gemmule.compiler.program import FixedProgram
from gemmule.compiler.quantize import to_mult_shift
from gemmule.config import Config, load_config
from gemmule.isa import Unit
from gemmule.sim.result import Result
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator


def launch(name: str, program: FixedProgram, dram: np.ndarray, simulator: Simulator, rtl: RtlDevice | None,
           seed: int) -> Result:
    """Run a program on the simulator, and on the RTL when there is one."""
    case = program.launch(name, dram, program.registers(), seed=seed)
    if rtl:
        report = cosim(case, simulator, rtl)
        if not report.ok:
            raise SystemExit(report.text)
        return report.expected
    simulator.load(case)
    return simulator.run()


def row(name: str, result: Result, macs: int, cycles: int, config: Config) -> dict[str, Any]:
    exposed = exposed_vector(result)
    return {"program": name, "commands": len(result.issue), "cycles": cycles,
            "share of peak": macs / (cycles * config.dim ** 2), "exposed vector cycles": exposed,
            "exposed share": exposed / cycles, "DRAM bytes": sum(result.dram_bytes.values())}


def run_attention(config: Config, shape: EncoderShape, *, causal: bool, online: bool, simulator: Simulator,
                  rtl: RtlDevice | None, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    heads, rows, columns = shape.heads, shape.sequence, shape.head_dim
    q, k, v = (random.integers(-128, 128, (heads, rows, columns)).astype(np.int8) for _ in range(3))
    # Scores with a deviation of two octaves (random bytes deviate by 74).
    score = np.stack(to_mult_shift(np.full(heads, 2048 / (74 ** 2 * columns ** 0.5))), axis=1)
    scale = np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)
    name = f"{'causal ' if causal else ''}attention"
    if online:
        made = compile_online_attention(config, heads, rows, rows, columns, score=score, scale=scale, causal=causal)
        golden = online_attention(q, k, v, score, scale, causal=causal, block=made.plan.block)
        name += f", online softmax, {heads} x {rows} keys in blocks of {made.plan.block}"
        program: AttentionProgram = made
    else:
        program = compile_attention(config, heads, rows, rows, columns, score=score, scale=scale, causal=causal)
        golden = attention(q, k, v, score, scale, causal=causal)
    result = launch(name, program, program.fill(q, k, v), simulator, rtl, seed)
    if result.fault or not np.array_equal(program.read_output(simulator.read_dram), golden):
        raise SystemExit(f"{name}: the context differs from the golden")
    first = result.issue[result.units == Unit.MATRIX][0]
    return row(name, result, program.macs, int(result.finish[result.units == Unit.VECTOR][-1] - first + 1), config)


def run_layer(config: Config, shape: EncoderShape, simulator: Simulator, rtl: RtlDevice | None,
              seed: int) -> dict[str, Any]:
    layer, x8, x16 = random_layer(shape, seed)
    program = compile_encoder(layer, config)
    result = launch("layer", program, program.fill(x8, x16), simulator, rtl, seed)
    pairs = zip(program.read_output(simulator.read_dram), encode(layer, x8, x16))
    if result.fault or not all(np.array_equal(got, wanted) for got, wanted in pairs):
        raise SystemExit("layer: the output differs from the golden")
    return row("encoder layer", result, shape.macs, result.cycles, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--sizes", type=int, nargs=4, default=[128, 12, 64, 3072],
                        metavar=("SEQUENCE", "HEADS", "HEAD_DIM", "INNER"))
    parser.add_argument("--long", type=int, default=1024, help="sequence of the last online row")
    parser.add_argument("--backend", choices=["model", "rtl"], default="model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config, shape = load_config(args.config), EncoderShape(**dict(zip(
        ("sequence", "heads", "head_dim", "inner"), args.sizes)))
    console.print(f"seed {args.seed}")
    simulator, rtl = Simulator(config), RtlDevice(config) if args.backend == "rtl" else None
    try:
        rows = [
            *(run_attention(config, size, causal=causal, online=online, simulator=simulator, rtl=rtl, seed=args.seed)
              for size, online in ((shape, False), (shape, True), (replace(shape, heads=1, sequence=args.long), True))
              for causal in (False, True)),
            run_layer(config, shape, simulator, rtl, args.seed)]
    finally:
        if rtl:
            rtl.close()
    show(f"{shape.heads} heads of {shape.head_dim}, sequence {shape.sequence}, inner {shape.inner} on {config.name}"
         + (", RTL and model equal in every byte and cycle" if rtl else ""), rows)
    write(args.out / f"encoder_{config.name}.json", {
        "command": f"python benchmarks/encoder.py --config {args.config} --sizes {' '.join(map(str, args.sizes))} "
                   f"--long {args.long} --backend {args.backend} --seed {args.seed}",
        "rows": rows,
    })


if __name__ == "__main__":
    main()
