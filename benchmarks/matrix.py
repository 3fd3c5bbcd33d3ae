"""The matrix unit alone: operands resident in the scratchpad, both dataflows, first command to last.

    python benchmarks/matrix.py --config base --out docs/results

Each column group is one matrix command; its int8 requantisation overlaps the next one. Cycles run
from the first matrix command's issue to the last result's write, so they include the first preload, the
drain and the last requantisation. The result is checked against numpy.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import console, show, write

from gemmule.compiler.layout import Regions, pack_groups, unpack_groups
from gemmule.compiler.passes.waits import place_waits
from gemmule.compiler.place import round_up
from gemmule.compiler.program import FixedProgram
from gemmule.config import Config, load_config
from gemmule.isa import Command, MatrixFlag, RequantFlag, Unit, VOp, encode_program
from gemmule.sim.simulator import Simulator
from gemmule.timing import ceil_div

SHIFT = 12


def compile_resident(config: Config, m: int, k: int, n: int, dataflow: str) -> FixedProgram:
    """Loads of A and B (whole banks), the product, the store of C."""
    dim, bank = config.dim, config.spm_bank_rows
    groups = n // dim
    b_row = round_up(ceil_div(m * k, dim), bank)
    c_row = b_row + round_up(k * groups, bank)
    if c_row + m * groups > config.spm_rows:
        raise SystemExit(f"{m}x{k}x{n} int8 operands and result do not fit {config.spm_rows} scratchpad rows")
    slot = round_up(m, config.acc_bank_rows)
    slots = config.acc_rows // slot
    commands = [
        Command.make(Unit.LOAD, base=0, bytes=m * k, row=0, block_stride=1, rows=1, note="A"),
        Command.make(Unit.LOAD, base=1, bytes=k * n, row=b_row, block_stride=1, rows=1, note="B"),
    ]
    flags = {MatrixFlag.OUTPUT_STATIONARY} if dataflow == "os" else set()
    for group in range(groups):
        c = group % slots * slot
        commands.append(Command.make(
            Unit.MATRIX, a_row=0, a_stride=m, b_row=b_row + group * k, b_stride=k, c_row=c, c_stride=m, m=m, n=dim,
            k=k, flags=flags))
        commands.append(Command.make(
            Unit.VECTOR, op=VOp.REQUANT, src0=c, src0_stride=m, dst=c_row + group * m, dst_stride=m, m=m, n=dim,
            mult=1, shift=SHIFT, flags={RequantFlag.RELU}))
    commands.append(Command.make(Unit.STORE, base=2, bytes=m * n, row=c_row, block_stride=1, rows=1, note="C"))
    commands = place_waits(commands, config, {})
    image = encode_program(commands)
    regions = Regions(config)
    for name, size in (("program", len(image)), ("a", m * k), ("b", k * n), ("c", m * n)):
        regions.reserve(name, size)
    program = FixedProgram(
        config=config, image=image, commands=tuple(commands), base_address=0, size=regions.size,
        symbols=regions.symbols(0), bases=dict(enumerate("abc")))
    return program.verified(program.registers())


def measure(config: Config, shape: tuple[int, int, int], dataflow: str, seed: int) -> dict[str, Any]:
    m, k, n = shape
    dim = config.dim
    program = compile_resident(config, m, k, n, dataflow)
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    dram = np.zeros(program.size, dtype=np.uint8)
    program.put(dram, "a", pack_groups(a, dim))
    program.put(dram, "b", pack_groups(b, dim))
    simulator = Simulator(config)
    simulator.load(program.launch(f"{m}x{k}x{n}", dram, program.registers(), seed=seed))
    result = simulator.run()
    got = unpack_groups(program.read(simulator.read_dram, "c").reshape(-1, m, dim), n).view(np.int8)
    exact = np.maximum(a.astype(np.int64) @ b.astype(np.int64) + (1 << SHIFT - 1) >> SHIFT, 0)
    if result.fault or not np.array_equal(got, np.minimum(exact, 127)):
        raise SystemExit(f"{m}x{k}x{n} {dataflow}: the result differs from numpy")
    first = result.issue[result.units == Unit.MATRIX][0]
    cycles = int(result.finish[result.units == Unit.VECTOR][-1] - first + 1)
    ideal = m * k * n // dim ** 2
    return {"shape": f"{m}x{k}x{n}", "dataflow": dataflow, "cycles": cycles, "peak": ideal,
            "utilisation": ideal / cycles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--shapes", nargs="*", default=["256x256x256", "384x256x256"],
                        help="the second fills the scratchpad of base with A, B and C")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    config = load_config(args.config)
    console.print(f"seed {args.seed}")
    rows = []
    for text in args.shapes:
        m, k, n = map(int, text.split("x"))
        rows += [measure(config, (m, k, n), dataflow, args.seed) for dataflow in ("ws", "os")]
    show(f"matrix unit on {config.name}, operands resident", rows)
    write(args.out / f"matrix_{config.name}.json", {
        "command": f"python benchmarks/matrix.py --config {args.config} --shapes {' '.join(args.shapes)}",
        "rows": rows,
    })


if __name__ == "__main__":
    main()
