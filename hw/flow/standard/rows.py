"""Large meshes in pieces: each row of PEs a module of its own, because ABC does not hold more at once.

A 32 x 32 mesh has 1.2 million gates, for which Yosys and ABC need more than the 4 GiB of WebAssembly. Cut by rows, only
sums, weights and controls pass from one piece to another, most of them from register to register. What the whole mesh
reads then has as many readers as rows times those in a row; they get a tree of buffers (:func:`buffered`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count

__all__ = ["LARGEST", "buffered", "rows_script"]

LARGEST = 16
"""Rows of a mesh up to which it stays in one piece."""
_REGISTERS = ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce", "$adff", "$adffe")
_OF_A_PE = ("a", "running", "upper", "held", "result", "shadow", "active")
_PIN = re.compile(r"^    \.(\w+)\((.*)\)(,?)$")


def rows_script(mesh: str, dim: int) -> list[str]:
    """Yosys commands that cut module ``mesh`` by rows: registers of their PEs and all logic in front of these."""
    lines, stop = [f"cd {mesh}"], ",".join(f"-{kind}" for kind in _REGISTERS)
    for row in range(dim):
        wires = " ".join(f"w:{name}_{row}_*" for name in _OF_A_PE) + " %u" * (len(_OF_A_PE) - 1)
        # Two steps lead to the registers and to what they read; from there through gates only. No rows in rows.
        without = " t:row_*.matrix %d" if row else ""
        lines += [f"select -set row_{row} {wires} %ci2 %ci*:{stop}{without}",
                  f"submod -name row_{row}.matrix @row_{row}"]
    return [*lines, "cd", "setattr -mod -set keep_hierarchy 1 row_*.matrix"]


def _outputs(liberty: str) -> set[str]:
    """Names of the pins that drive."""
    return set(re.findall(r'pin\s*\("?(\w+)"?\)\s*{[^{}]*direction\s*:\s*"?output', liberty))


def _pins(liberty: str, cell: str) -> tuple[str, str]:
    """Input and output of a buffer."""
    at = re.search(rf'cell\s*\("?{re.escape(cell)}"?\)', liberty)
    assert at, cell
    found = re.findall(r'pin\s*\("?(\w+)"?\)\s*{[^{}]*direction\s*:\s*"?(input|output)', liberty[at.start():])[:2]
    return tuple(name for name, _ in sorted(found, key=lambda pin: pin[1]))  # type: ignore[return-value]


def buffered(netlist: str, liberty: str, buffer: str, fanout: int, clock: str) -> tuple[str, int]:
    """A flat netlist whose nets have ``fanout`` readers at most, the clock aside, and how many buffers that took.

    Parameters
    ----------
    netlist: as ``write_verilog -noexpr`` writes it, a pin a line.
    liberty: text of the library.
    """
    drives, (into, out) = _outputs(liberty), _pins(liberty, buffer)
    lines = netlist.splitlines()
    readers: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        pin = _PIN.match(line)
        if pin and pin[1] not in drives and pin[2] != clock:
            readers.setdefault(pin[2], []).append(number)
    names, added = (f"_tree_{i}_" for i in count()), []

    def tree(net: str, places: Sequence[int]) -> Iterator[str]:
        """Buffers below ``net`` for the pins in lines ``places``: as many at each node, as evenly filled, as go."""
        share = fanout
        while share * fanout < len(places):
            share *= fanout
        for begin in range(0, len(places), share):
            name = next(names)
            yield (f"  wire {name};\n  {buffer} {name}buffer (\n    .{into}({net}),\n    .{out}({name})\n  );")
            part = places[begin:begin + share]
            if len(part) > fanout:
                yield from tree(name, part)
                continue
            for place in part:
                pin = _PIN.match(lines[place])
                assert pin
                lines[place] = f"    .{pin[1]}({name}){pin[3]}"

    for net, places in readers.items():
        if len(places) > fanout and not net.startswith(("1'", "{")):
            added += list(tree(net, places))
    end = max(number for number, line in enumerate(lines) if line.startswith("endmodule"))
    return "\n".join([*lines[:end], *added, *lines[end:]]) + "\n", len(added)

