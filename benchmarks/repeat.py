"""Control commands at work: layers as one body, greedy tokens in one launch.

    python -m benchmarks.repeat --config base --out docs/results

*layers*: one encoder layer, and ``--layers`` with scalings of their own as one body; the same output as the integer
interpreter's. *greedy*: ``--steps`` tokens of the
bundled draft in one launch, and in a launch each, without and with the host's cycles of a launch and a step.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show, write
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import Config, load_config
from gemmule.isa import COMMAND_BYTES
from gemmule.sim.simulator import Simulator
from gemmule.sw.models.bundled_models import bundled_model
from tests.compiler.encoder_bench import random_rows
from tests.compiler.integer_encoders import EncoderSizes, random_encoder

WORDS = 2048
"""Parameter words of the device that runs the layers: two halves for each scaling of each layer."""


def layers(config: Config, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One layer, and many as one body: output checked."""
    config = Config(**(config.model_dump() | {"parameter_words": max(WORDS, config.parameter_words)}))
    found = []
    for count in (1, args.layers):
        network = random_encoder(EncoderSizes(
            hidden=64 * args.stack_heads, inner=256 * args.stack_heads, heads=args.stack_heads, layers=count, vocab=500,
            positions=args.sequence), args.seed)
        program = compile_encoder(network, config, sequence=args.sequence)
        device, rows = Simulator(config, dram_bytes=program.size), random_rows(network, args.sequence)
        device.write_dram(0, program.fill(network))
        step = program.step(rows)
        for address, content in step.inputs:
            device.write_dram(address, content)
        device.load(program.launch("layers", NO_DRAM, step.registers))
        result = device.run()
        expected = IntegerInterpreter(network).forward(rows, Cache(network.graph))
        if result.fault or not np.array_equal(program.read_output(device.read_dram, args.sequence), expected):
            raise SystemExit("layers: the output differs from the interpreter's")
        found.append({"layers": count, "commands in the image": len(program.image) // COMMAND_BYTES,
                      "commands run": len(result.issue), "cycles": result.cycles})
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
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    config = load_config(args.config)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, measure in (("layers", layers), ("greedy", greedy)):
        tables[name] = measure(config, args)
        show(f"{name} on {config.name}, seed {args.seed}", tables[name])
    if args.out:
        write(args.out / "repeat.json", {
            "command": f"python -m benchmarks.repeat --config {args.config} --layers {args.layers} --sequence "
                       f"{args.sequence} --stack-heads {args.stack_heads} --seed {args.seed}", **tables})


if __name__ == "__main__":
    main()
