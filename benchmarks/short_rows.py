"""Loads of short DRAM rows, as a KV cache has them: contiguous, strided, and gathered by an index list.

    python benchmarks/short_rows.py --config base --out docs/results

A layer's keys and values, ``--heads`` times ``--positions`` rows of ``--bytes`` each, are loaded into the scratchpad
once, in blocks of ``--block`` rows; nothing else runs. *contiguous*: [head][key | value][position], rows of a block
follow each other. *strided*: [head][position][key | value], every second row. *scattered*:
[position][head][key | value], most rows lie in another DRAM row than the one before. *gathered*: of the
contiguous ones ``--kept`` positions, drawn once and sorted, by number. The roofline counts the rows' bytes at the bus's
width outside refresh. The device is measured with each number of ``--reads`` in flight.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import console, show, write

from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.waits import place_waits
from gemmule.compiler.program import FixedProgram
from gemmule.config import Config, load_config
from gemmule.isa import Command, MoveFlag, SOp, Unit, encode_program
from gemmule.sim.roofline import roofline_cycles
from gemmule.sim.simulator import Simulator
from gemmule.timing import ceil_div


def commands_of(config: Config, layout: str, args: argparse.Namespace) -> list[Command]:
    """Loads of every head's keys and values; base 0: the cache, base 1: the list of positions."""
    size, positions, heads = args.bytes, args.positions, 2 * args.heads
    blocks = ceil_div(size, config.dim)
    list_rows = ceil_div(2 * args.kept, config.dim)
    commands = []
    if layout == "gathered":
        commands += [
            Command.make(Unit.LOAD, base=1, bytes=2 * args.kept, row=0, block_stride=1, rows=1, note="list"),
            Command.make(Unit.SELECT, op=SOp.LIST_LOAD, src0=0, src0_stride=1, dst=0, n=args.kept)]
    for head in range(heads):
        head_at, pitch = {
            "strided": ((head // 2 * 2 * positions + head % 2) * size, 2 * size),
            "scattered": (head * size, heads * size),
        }.get(layout, (head * positions * size, size))
        count = args.kept if layout == "gathered" else positions
        for first in range(0, count, args.block):
            rows = min(args.block, count - first)
            where: dict[str, Any] = {"offset": head_at + first * pitch}
            if layout == "gathered":
                where = {"offset": head_at, "list": first, "last_index": positions - 1, "flags": {MoveFlag.INDEXED}}
            commands.append(Command.make(
                Unit.LOAD, base=0, bytes=size, stride=pitch, row=list_rows + head % 2 * args.block * blocks,
                row_stride=1, block_stride=rows, rows=rows, note=f"head {head}", **where))
    return commands


def measure(config: Config, layout: str, args: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(args.seed)
    commands = place_waits(commands_of(config, layout, args), config, {})
    image = encode_program(commands)
    regions, cache = Regions(config), 2 * args.heads * args.positions * args.bytes
    for name, size in (("program", len(image)), ("cache", cache), ("list", 2 * args.kept)):
        regions.reserve(name, size)
    program = FixedProgram(
        config=config, image=image, commands=tuple(commands), base_address=0, size=regions.size,
        symbols=regions.symbols(0), bases={0: "cache", 1: "list"})
    program.verified(program.registers())
    dram = rng.integers(0, 256, program.size, dtype=np.uint8)
    kept = np.sort(rng.permutation(args.positions)[:args.kept]).astype("<u2")
    program.put(dram, "list", kept.view(np.uint8))
    simulator = Simulator(config)
    simulator.load(program.launch(layout, dram, program.registers(), seed=args.seed))
    result = simulator.run()
    if result.fault:
        raise SystemExit(f"{layout}: the launch ends with fault {result.fault}")
    rows = 2 * args.heads * (args.kept if layout == "gathered" else args.positions)
    least = roofline_cycles(rows * args.bytes, config)
    return {"reads in flight": config.read_bursts, "layout": layout, "rows": rows,
            "bursts": result.dram_bursts["load"],
            "cycles": result.cycles, "of the roofline": least / result.cycles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    for name, value in (("heads", 12), ("positions", 1024), ("kept", 358), ("bytes", 64), ("block", 128), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--reads", type=int, nargs="*", default=[4, 8, 16, 32, 64])
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    console.print(f"seed {args.seed}")
    rows = []
    for reads in args.reads:
        config = Config(**load_config(args.config).model_dump() | {"name": "changed", "read_bursts": reads})
        found = {layout: measure(config, layout, args) for layout in ("contiguous", "strided", "scattered", "gathered")}
        best = found["contiguous"]["cycles"]
        rows += [row | {"faster than all": best / row["cycles"]} for row in found.values()]
    show(f"rows of {args.bytes} bytes on {args.config}", rows)
    own = load_config(args.config).read_bursts
    for row in rows:
        if row["reads in flight"] == own:
            console.print(f"{own} reads in flight, {row['layout']}: {row['of the roofline']:.1%} of the roofline")
            if row["layout"] == "gathered":
                console.print(f"{args.kept} of {args.positions} rows: {row['faster than all']:.2f} times fewer cycles "
                              "than all, contiguous")
    write(args.out / f"short_rows_{Path(args.config).stem}.json", {
        "command": f"python benchmarks/short_rows.py --config {args.config} --heads {args.heads} --positions "
                   f"{args.positions} --kept {args.kept} --bytes {args.bytes} --block {args.block} --seed {args.seed} "
                   f"--reads {' '.join(map(str, args.reads))}",
        "rows": rows,
    })


if __name__ == "__main__":
    main()
