"""Control commands at work: layers as one body, attention over any context, greedy tokens in one launch.

    python benchmarks/repeat.py --config base --out docs/results

*layers*: ``--layers`` encoder layers with scalings of their own, as one body and written out; the same bytes as the
golden. *contexts*: ``--heads`` heads of ``--head-dim`` columns, one new row over a cache of so many rows, by the same
program; the roofline counts keys and values at the bus's width outside refresh. *greedy*: ``--steps`` tokens of the
bundled draft in one launch, and in a launch each, without and with the host's cycles of a launch and a step.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import show, write

from gemmule.compiler.encoder_reference import EncoderLayer, EncoderShape, encode, random_layer
from gemmule.compiler.encoder_stack import compile_encoder_stack
from gemmule.compiler.greedy import compile_greedy
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention import CACHE
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.quantize import to_mult_shift
from gemmule.compiler.ragged_attention import compile_ragged_attention, ragged_attention
from gemmule.config import Config, load_config
from gemmule.isa import COMMAND_BYTES
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator
from gemmule.sw.text import bundled_model

WORDS = 2048
"""Parameter words of the device that runs the layers: two halves for each scaling of each layer."""


def stack(shape: EncoderShape, count: int, seed: int) -> tuple[list[EncoderLayer], np.ndarray, np.ndarray]:
    """Random layers, whose norms differ too, and an input."""
    made = [random_layer(shape, seed + i) for i in range(count)]
    return [replace(one, attention_norm=replace(one.attention_norm, eps_mult=17 + i))
            for i, (one, _, _) in enumerate(made)], made[0][1], made[0][2]


def layers(config: Config, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One body and written out, bytes checked."""
    config = Config(**(config.model_dump() | {"parameter_words": max(WORDS, config.parameter_words)}))
    shape = EncoderShape(sequence=args.sequence, heads=args.stack_heads, head_dim=64, inner=256 * args.stack_heads)
    made, x8, x16 = stack(shape, args.layers, args.seed)
    want8, want16 = x8, x16
    for layer in made:
        want8, want16 = encode(layer, want8, want16)
    found = []
    for rolled in (True, False):
        program = compile_encoder_stack(made, config, rolled=rolled)
        device = Simulator(config, dram_bytes=program.size)
        device.load(program.launch("layers", program.fill(x8, x16), program.registers()))
        result = device.run()
        got8, got16 = program.read_output(device.read_dram)
        if result.fault or not np.array_equal(got8, want8) or not np.array_equal(got16, want16):
            raise SystemExit("layers: the bytes differ from the golden")
        found.append({"program": f"{args.layers} layers, {'one body' if rolled else 'written out'}",
                      "commands in the image": len(program.image) // COMMAND_BYTES, "commands run": len(result.issue),
                      "cycles": result.cycles})
    for row in found:
        row |= {"of the image": row["commands in the image"] / found[1]["commands in the image"],
                "of the cycles": row["cycles"] / found[1]["cycles"]}
    return found


def contexts(config: Config, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Cycles by rows of cache."""
    heads, size = args.heads, args.head_dim
    score = np.stack(to_mult_shift(np.full(heads, 2048 / (74 ** 2 * size ** 0.5))), axis=1)
    scale = np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)
    most = max(args.contexts)
    program = compile_ragged_attention(config, heads, 1, size, most, score=score, scale=scale)
    random = np.random.default_rng(args.seed)
    inputs = {name: random.integers(-128, 128, (1, heads, most if name in "kv" else 1, size)).astype(np.int8)
              for name in ("q", "k_new", "v_new", "k", "v")}
    device, dram, found = Simulator(config, dram_bytes=program.size), program.fill(**inputs), []
    for context in args.contexts:
        device.load(program.launch("context", dram, program.registers(1, context)))
        result = device.run()
        cut = {name: values[0][:, :context] if name in "kv" else values[0] for name, values in inputs.items()}
        want = ragged_attention(**cut, score=score, scale=scale)
        if result.fault or not np.array_equal(program.read_output(device.read_dram)[0], want):
            raise SystemExit(f"context {context}: the bytes differ from the golden")
        least = roofline_cycles(2 * heads * context * size, config)
        found.append({"context": context, "commands run": len(result.issue), "cycles": result.cycles,
                      "share of roofline": least / result.cycles})
    return found


def greedy(config: Config, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One launch, and a launch a token, from the same cache."""
    network = bundled_model("draft").network
    loop = compile_greedy(network, config)
    single, dram, found = loop.single, loop.fill(network), []
    loop.put(dram, CACHE, np.random.default_rng(args.seed).integers(0, 256, loop.symbols[CACHE][1], dtype=np.uint8))

    def run(device: Simulator, program: Program, step: Step) -> int:
        for address, content in step.inputs:
            device.write_dram(address, content)
        device.load(program.launch("launch", NO_DRAM, step.registers))
        return int(device.run().cycles)

    for position in (0, 64, loop.max_positions - args.steps):
        device, tokens, apart = Simulator(config, dram_bytes=loop.size), [77], 0
        device.write_dram(0, dram)
        for i in range(args.steps):
            apart += run(device, single, single.step(Rows.chain(tokens[-1:], position + i), 1))
            tokens += single.read_tokens(device.read_dram, 1)
        device.write_dram(0, dram)
        cycles = run(device, loop, loop.step(77, position, args.steps))
        if loop.read_tokens(device.read_dram, args.steps) != tokens[1:]:
            raise SystemExit(f"position {position}: the tokens differ")
        host, step = config.host.launch_cycles, config.host.step_cycles
        found.append({"position": position, "one launch": cycles, f"{args.steps} launches": apart,
                      "ratio": apart / cycles,
                      "ratio with the host": (apart + args.steps * (host + step)) / (cycles + host + step)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--stack-heads", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--contexts", type=int, nargs="+", default=[0, 1, 63, 64, 65, 256, 1024, 4095, 4096])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    config = load_config(args.config)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, measure in (("layers", layers), ("contexts", contexts), ("greedy", greedy)):
        tables[name] = measure(config, args)
        show(f"{name} on {config.name}, seed {args.seed}", tables[name])
    if args.out:
        write(args.out / "repeat.json", {
            "command": f"python benchmarks/repeat.py --config {args.config} --layers {args.layers} --sequence "
                       f"{args.sequence} --stack-heads {args.stack_heads} --seed {args.seed}", **tables})


if __name__ == "__main__":
    main()
