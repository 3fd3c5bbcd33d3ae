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

from gemmule.compiler.schedule import place_waits
from gemmule.config import Config, load_config
from gemmule.isa import Command, MatrixFlag, RequantFlag, Unit, VOp, encode_program
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify

SHIFT = 12


def program(config: Config, m: int, k: int, n: int, dataflow: str) -> list[Command]:
    """Loads of A and B (whole banks), the product, the store of C."""
    dim, bank = config.dim, config.spm_bank_rows
    groups = n // dim
    b_row = -(-m * k // dim // bank) * bank
    c_row = b_row + -(-k * groups // bank) * bank
    if c_row + m * groups > config.spm_rows:
        raise SystemExit(f"{m}x{k}x{n} int8 operands and result do not fit {config.spm_rows} scratchpad rows")
    slot = -(-m // config.acc_bank_rows) * config.acc_bank_rows
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
    return place_waits(commands, config, {})


def measure(config: Config, shape: tuple[int, int, int], dataflow: str, seed: int) -> dict[str, Any]:
    m, k, n = shape
    dim = config.dim
    commands = program(config, m, k, n, dataflow)
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    model = Simulator(config)
    at = [0, 1 << 20, 2 << 20]
    model.write_dram(at[0], a.reshape(m, -1, dim).transpose(1, 0, 2).tobytes())
    model.write_dram(at[1], b.reshape(k, -1, dim).transpose(1, 0, 2).tobytes())
    model.bases[:3], model.limits[:3] = at, [m * k, k * n, m * n]
    verify(commands, config, model.bases, model.limits, model.lengths)
    model.load_program(encode_program(commands), 3 << 20)
    result = model.run()
    raw = np.frombuffer(model.read_dram(at[2], m * n), dtype=np.int8)
    got = raw.reshape(-1, m, dim).transpose(1, 0, 2).reshape(m, n)
    exact = np.maximum(a.astype(np.int64) @ b.astype(np.int64) + (1 << SHIFT - 1) >> SHIFT, 0)
    if result.fault or not np.array_equal(got, np.minimum(exact, 127)):
        raise SystemExit(f"{m}x{k}x{n} {dataflow}: the result differs from numpy")
    units = np.array([command.unit for command in commands])
    first = result.issue[np.flatnonzero(units == Unit.MATRIX)[0]]
    cycles = int(result.finish[np.flatnonzero(units == Unit.VECTOR)[-1]] - first + 1)
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
