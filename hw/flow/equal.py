"""Proofs that a mutant changes nothing: every step of the device with the mutation against the step without it.

Registers and RAMs are cut: both devices start a step in the same state, whatever it is, and get the same inputs. If
for all of them what leaves the device and enters a RAM is the same in the next ``steps`` cycles, of which only the
first has the mutation, and the state is the same after them, then it is so with the mutation in every cycle: take the
last cycle with it, put the right one in its place, nothing that can be seen changes; then the one before. With one
step the state before may also be taken as what ``before`` cycles without the mutation lead to.

The proof is of what differs alone: gates behind the mutation are doubled, all others are there once; bits of the state
that nothing outside ever depends on do not count. Yosys' ``sat`` finds it.

Where that is not so from every state it may be from those in which invariants hold (``invariants.py``), with one step.
Both devices begin with a reset, which leads to such a state; behind the first cycle with the mutation it is the state
of the device without it, but for bits that are not seen, so invariants hold in it; and so on. Bits that are always 0 by
an invariant count as seen: both devices have them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gemmule.hw.flow.ask import never_rises
from gemmule.hw.flow.cells import Netlist, tagged, unescaped
from gemmule.hw.flow.gates import TooLargeError
from gemmule.hw.flow.induction import Known, known_of
from gemmule.hw.flow.invariants import INVARIANTS, WORDS
from gemmule.hw.flow.live import seen
from gemmule.hw.flow.loose import related, resets
from gemmule.hw.flow.mutate import Mutant
from gemmule.hw.flow.product import Product
from gemmule.hw.flow.synth import WHEELS
from gemmule.hw.flow.tools import Progress, Tools
from gemmule.hw.flow.verilog import TOP

__all__ = ["ATTEMPTS", "ignored", "miter", "prove", "prover", "unseen"]

RELATION = (0, 0)
ATTEMPTS = ((1, 0), RELATION, (1, 1), (1, 3), (2, 0), (3, 0), (4, 0))
"""(steps, before) in the order in which they are tried; those of one step with invariants too."""
IGNORED = "not looked at"
"""Proof of a mutant whose bit nothing depends on."""
BY_INVARIANTS = ", with invariants"


def miter(netlist: Netlist, mutant: Mutant, steps: int, before: int, known: Known | None = None) -> str:
    """A module, in Yosys' JSON, whose output ``wrong`` rises when the mutant shows.

    Parameters
    ----------
    known: invariants that hold in the state in which the first cycle begins; only for one step.

    Raises:
        TooLargeError: it would have too many cells.
    """
    assert known is None or steps == 1, "behind a step with the mutation nothing is known"
    product = Product(netlist, mutant, before, known.zeros(netlist) if known else ())
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))
    wrong = product.wrong(steps)
    if known:
        wrong = product.gate("$and", wrong, known.hold(product, 0))
    return product.module(wrong=[wrong])


@cache
def _netlists(folder: Path, netlist: Path, tools: Tools) -> tuple[Netlist, Known]:
    """The flat netlist, and what is known of its states."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tagged.il").write_text(tagged(netlist.read_text()))
    mapped = "".join(f"memory_map {TOP}/{ram}\n" for ram in WORDS)
    (folder / "flat.ys").write_text(
        "read_rtlil tagged.il\nwrite_json blocks.json\nsetattr -mod -unset keep_hierarchy *\nflatten\n"
        f"write_json flat.json\n{mapped}opt_clean\nwrite_json words.json\n")
    tools.run("yosys", ["-q", "-l", "flat.log", "flat.ys"], folder, "flat.log", lambda step: None)
    words = Netlist((folder / "words.json").read_text())
    return Netlist((folder / "flat.json").read_text()), known_of(words, INVARIANTS, folder, tools)


def ignored(blocks: str, mutant: Mutant) -> bool:
    """Whether the mutant is of an input bit that a block which kept its module does not look at.

    Parameters
    ----------
    blocks: Yosys' JSON of the netlist with these modules.
    """
    modules = json.loads(blocks)["modules"]
    block = modules[modules[unescaped(mutant.module)]["cells"][unescaped(mutant.cell)]["type"]]
    port = block["ports"][unescaped(mutant.port)]
    bit = port["bits"][mutant.bit]
    inside = [*(cell["connections"].values() for cell in block["cells"].values()),
              (other["bits"] for other in block["ports"].values() if other["direction"] == "output")]
    return port["direction"] == "input" and not any(bit in bits for nets in inside for bits in nets)


def unseen(netlist: Netlist, mutant: Mutant) -> bool:
    """Whether the mutant is of an output bit of a cell on which nothing that is seen ever depends."""
    cell, port = netlist.cells[netlist.find(mutant) or ""], unescaped(mutant.port)
    return cell.directions[port] == "output" and cell.nets[port][mutant.bit] not in seen(netlist)


def prover() -> str:
    """What tells this prover from another one: a digest of its sources."""
    return hashlib.sha256(b"".join(
        path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def prove(mutant: Mutant, netlist: Path, folder: Path, *, attempts: Sequence[tuple[int, int]] = ATTEMPTS,
          tools: Tools = WHEELS, progress: Progress = lambda step: None) -> str | None:
    """How a mutant of ``netlist`` is proved to change nothing; None: no proof was found.

    Raises:
        SynthError: Yosys is missing.
    """
    flat, known = _netlists(folder, netlist, tools)
    if flat.find(mutant) is None:
        return IGNORED if ignored((folder / "blocks.json").read_text(), mutant) else None
    if unseen(flat, mutant):
        return IGNORED
    for steps, before in attempts:
        if (steps, before) == RELATION:
            if (loose := related(flat, mutant, known, folder, tools, progress)) is not None:
                return f"a relation, {loose} bits of it under conditions"
            continue
        for assumed in (None, known)[:1 + (steps == 1)]:
            try:
                text = miter(flat, mutant, steps, before, assumed)
            except TooLargeError:
                continue
            if never_rises("wrong", folder, text, tools, progress) and (
                    not assumed or resets(flat, mutant, known, folder, tools, progress)):
                how = f"{steps} step{'s' * (steps > 1)}" + f" behind {before}" * bool(before)
                return how + BY_INVARIANTS * bool(assumed)
    return None
