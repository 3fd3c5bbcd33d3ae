"""The cells of sky130_fd_sc_hd that are characterised: some forty gates and a flip-flop, with what each computes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["CELLS", "FLIP_FLOPS", "PREFIX", "TIE", "Gate", "Sensitive"]

PREFIX = "sky130_fd_sc_hd__"
TIE = "conb_1"
FLIP_FLOPS = ("dfxtp_1", "dfxtp_2", "dfxtp_4")
"""D flip-flops with a rising clock: inputs CLK and D, output Q."""


@dataclass(frozen=True)
class Sensitive:
    """An assignment of the other inputs under which an input decides the output."""

    others: Mapping[str, int]
    inverting: bool


@dataclass(frozen=True)
class Gate:
    """A gate of one output; ``function`` in Liberty's syntax."""

    name: str
    output: str
    function: str

    @property
    def drive(self) -> int:
        return int(self.name.rpartition("_")[2])

    @property
    def inputs(self) -> list[str]:
        return sorted(set(re.findall(r"\w+", self.function)))

    def value(self, values: Mapping[str, int]) -> int:
        """The output for a value of each input."""
        return int(eval(self.function.replace("!", "~"), {"__builtins__": {}}, dict(values))) & 1

    def states(self) -> Iterator[dict[str, int]]:
        """Every assignment of the inputs."""
        for bits in itertools.product((0, 1), repeat=len(self.inputs)):
            yield dict(zip(self.inputs, bits, strict=True))

    def sensitive(self, pin: str) -> list[Sensitive]:
        """Assignments of the other inputs under which ``pin`` decides the output."""
        found = []
        for state in self.states():
            if state[pin]:
                continue
            low, high = self.value(state), self.value({**state, pin: 1})
            if low != high:
                found.append(Sensitive({name: bit for name, bit in state.items() if name != pin}, low > high))
        return found


def _gates(drives: str, output: str, function: str) -> list[Gate]:
    name, *sizes = drives.split()
    return [Gate(f"{name}_{size}", output, function) for size in sizes]


CELLS: tuple[Gate, ...] = tuple(itertools.chain(
    _gates("inv 1 2 4 8", "Y", "!A"),
    _gates("buf 1 2 4 8", "X", "A"),
    _gates("nand2 1 2 4", "Y", "!(A&B)"),
    _gates("nand3 1 2", "Y", "!(A&B&C)"),
    _gates("nand4 1", "Y", "!(A&B&C&D)"),
    _gates("nor2 1 2 4", "Y", "!(A|B)"),
    _gates("nor3 1 2", "Y", "!(A|B|C)"),
    _gates("nor4 1", "Y", "!(A|B|C|D)"),
    _gates("nand2b 1", "Y", "!((!A_N)&B)"),
    _gates("nor2b 1", "Y", "!(A|(!B_N))"),
    _gates("and2 1 2", "X", "A&B"),
    _gates("and3 1", "X", "A&B&C"),
    _gates("or2 1 2", "X", "A|B"),
    _gates("or3 1", "X", "A|B|C"),
    _gates("xor2 1 2", "X", "A^B"),
    _gates("xnor2 1 2", "Y", "!(A^B)"),
    _gates("a21oi 1 2", "Y", "!((A1&A2)|B1)"),
    _gates("o21ai 1 2", "Y", "!((A1|A2)&B1)"),
    _gates("a22oi 1", "Y", "!((A1&A2)|(B1&B2))"),
    _gates("o22ai 1", "Y", "!((A1|A2)&(B1|B2))"),
    _gates("a211oi 1", "Y", "!((A1&A2)|B1|C1)"),
    _gates("o211ai 1", "Y", "!((A1|A2)&B1&C1)"),
    _gates("a31oi 1", "Y", "!((A1&A2&A3)|B1)"),
    _gates("o31ai 1", "Y", "!((A1|A2|A3)&B1)"),
    _gates("a21o 1", "X", "(A1&A2)|B1"),
    _gates("o21a 1", "X", "(A1|A2)&B1"),
    _gates("mux2 1 2", "X", "(A0&(!S))|(A1&S)"),
    _gates("mux2i 1", "Y", "!((A0&(!S))|(A1&S))"),
    _gates("maj3 1", "X", "(A&B)|(A&C)|(B&C)"),
))
