"""The page of the instruction set: header, bodies, flags, operations, from their definition."""

from __future__ import annotations

from gemmule.csr import COUNTER_BITS, COUNTERS, CSR_BITS, WATCHDOG_CYCLES, Csr
from gemmule.isa import (
    BODY,
    COMMAND_BYTES,
    HEADER,
    MAX_WAIT,
    Dyn,
    MatrixFlag,
    MoveFlag,
    SelectFlag,
    SOp,
    Unit,
    VectorFlag,
    VOp,
)
from gemmule.operations import EXPONENTIALS
from gemmule.resolve import FAULTS, STREAMS
from gemmule.sw.pages.text import wrapped

__all__ = ["isa_page"]

INTRO = f"""# Instruction set

Generated from `gemmule/isa.py` by `python -m gemmule.sw.pages`; do not edit.

A command is {COMMAND_BYTES} bytes, little-endian: a header of 64 bits, then a body that depends on the unit.
Commands are fetched from DRAM and dispatched in order; units run concurrently, each in order.

- **Wait** fields hold a distance d per unit: the command issues only when the d-th last command dispatched
  to that unit before it has finished (0: no wait; {MAX_WAIT} stands for every longer distance and waits for more).
- **Lengths** are three fields, `x_reg`, `x_offset`, `x_cap`, and mean `min(max(LEN[reg] - offset, 0), cap)`;
  `LEN[0]` reads 65535. A length of zero is legal: the command touches nothing.
- **Addresses**: DRAM `BASE[base] + offset`, checked against `LIMIT[base]`; scratchpad and accumulator rows are
  absolute, and one of a command's row addresses may be dynamic: `row + LEN[dyn_reg] * dyn_stride`.
- **What a program may do**: model and RTL agree on every cycle and every byte of each program that
  `gemmule.sim.verify` accepts. It refuses: unordered commands that touch the same rows or DRAM bytes, one of them
  writing; a destination that overlaps itself; stores into the program;
  waits for commands that do not exist; and whatever the device faults on.
- **Predicates**: a command with `predicate` p runs only where predicate p is 1 when it would issue (number 0 always
  is); a skipped one counts as one of length zero.
- **Index lists**: an INDEXED load or store takes the number of each DRAM row from the list memory (gather, scatter).
- Durations are in [timing.md](timing.md), arithmetic in [numerics.md](numerics.md).
"""


FLAG_RULES = (
    "load: ZERO with ADD, BROADCAST or INDEXED; BROADCAST with INDEXED; NARROW and ADD need ACCUMULATOR. Store: only "
    "ACCUMULATOR, NARROW and INDEXED.",
    "matrix: OUTPUT_STATIONARY with B_INT4, GROUP_SCALES or REUSE; REUSE with any flag about B, or A_TRANSPOSED; "
    "GROUP_SCALES needs B_INT4 and excludes B_TRANSPOSED.",
    "vector: requant knows bits 0 to 7 by their first names, bit 6 is RESCALE with RESIDUAL, else CLAMP, which "
    "excludes WIDE; rope and i_gelu COLUMN, BIAS; add WIDE, RELU, LOOKUP; norm MEAN, norm_apply BIAS and WIDE too, "
    "norm_stat ROUND with MEAN; softmax CAUSAL or TREE, softmax_max and exp CONTINUE and ONLINE, exp MORE, exp and "
    "norm WIDE; the others none. `period` of softmax_exp and softmax_norm chooses the exponential: " +
    ", ".join(f"{i} {name}" for i, name in enumerate(EXPONENTIALS)) + "; others are illegal.",
    "comparison modes (i_gelu, ROUND, exponentials from 1 on) are illegal on a device without `comparison_modes`.",
    "select: argmax CONTINUE; keys FROM_IMPORTANCE; importance WIDE; commit DISCARD, CLEAR; compare INVERT, WIDE and a "
    "`number` from 1 to 3.",
)


def _table(title: str, layout: tuple[tuple[str, int], ...], first: int) -> list[str]:
    lines = [f"### {title}", "", "| bits | field |", "|---|---|"]
    for name, bits in layout:
        lines.append(f"| {first + bits - 1}:{first} | `{name}` |")
        first += bits
    return [*lines, ""]


def isa_page() -> str:
    """The whole page."""
    lines = [INTRO, "## Header", ""]
    lines += _table("All units", HEADER, 0)
    lines += ["`dyn_which`: " + ", ".join(f"{d.value} {d.name.lower()}" for d in Dyn) + ". src0 is the store's "
              "`row`, matrix `a_row`, vector `src0`; src1 is matrix `b_row`, vector `src1`; dst is the load's `row`, "
              "vector `dst`. Others are ignored.", ""]
    lines += ["## Units", ""]
    lines += ["`unit`: " + ", ".join(f"{u.value} {u.name.lower()}" for u in Unit) + ".", ""]
    for unit, layout in BODY.items():
        lines += _table(unit.name.lower(), layout, 64)
    for name, flags in (("Load and store", MoveFlag), ("Matrix", MatrixFlag), ("Vector", VectorFlag),
                        ("Select", SelectFlag)):
        listed = ", ".join(f"{flag.value} {label}" for label, flag in flags.__members__.items())
        lines += [f"{name} flags: {listed}.", ""]
    lines += ["A flag that the unit's operation does not know, or that another one excludes, is illegal:", ""]
    lines += [f"- {rule}" for rule in FLAG_RULES] + [""]
    lines += ["Vector `op`: " + ", ".join(f"{op.value} {op.name}" for op in VOp) + ".", ""]
    lines += ["Select `op`: " + ", ".join(f"{op.value} {op.name}" for op in SOp) + ".", ""]
    lines += ["Streams that claim ports: " + ", ".join(STREAMS) + ".", ""]
    lines += ["## Registers (AXI4-Lite, 32 bits)", "", "| offset | register |", "|---|---|"]
    lines += [f"| 0x{csr.value:03x} | `{csr.name}` |" for csr in Csr]
    lines += ["", f"The register block spans {1 << CSR_BITS} bytes; arrays follow their first register "
              "(LENGTH: 4 bytes apart, BASE, LIMIT and COUNTER: 8).", "",
              f"`WATCHDOG` is {WATCHDOG_CYCLES} after power-up. Counters ({COUNTER_BITS} bits; cycles, bytes or "
              "bursts of the last launch), in order: " + ", ".join(COUNTERS) + ".", "",
              "## Fault codes", "", "| code | fault |", "|---|---|"]
    lines += [f"| {code} | {name} |" for code, name in enumerate(FAULTS)]
    return wrapped("\n".join(lines) + "\n")

