"""What Yosys has to be told about memories, in the RTLIL that Amaranth writes."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["allow_collisions", "split_ports"]

_CELL = re.compile(r'^  cell \$mem(rd|wr|init)_v2 (\S+)\n    parameter \\MEMID "\\\\(.+)"$', re.MULTILINE)
_MEMORY = re.compile(r"\s*memory .*\\(\S+)$")
_FREE = re.compile(r"attribute \\no_rw_check 1\n(?:\s*attribute .*\n)*\s*memory .*\\(\S+)$", re.MULTILINE)
_READ = re.compile(
    r'(cell \$memrd_v2 .*\n    parameter \\MEMID "\\\\(.+?)"\n(?:    parameter .*\n)*?'
    r"    parameter \\COLLISION_X_MASK \d+')0+$", re.MULTILINE)


def _modules(text: str, change) -> str:  # type: ignore[no-untyped-def]
    return re.sub(r"^module .*?^end$", change, text, flags=re.MULTILINE | re.DOTALL)


def allow_collisions(text: str) -> str:
    """RTLIL in which reads of a memory may return anything for a row that is being written.

    Only of memories that say so with :data:`gemmule.hw.interfaces.FREE`.

    Amaranth's read ports return the old row; block RAM does not, so Yosys builds registers and a bypass around
    each port. The attribute alone does not tell it otherwise for ports that are clocked in the RTLIL already.
    """

    def module(found: re.Match[str]) -> str:
        free = set(_FREE.findall(found[0]))

        def read(cell: re.Match[str]) -> str:
            ones = cell[0][len(cell[1]):].replace("0", "1")
            return cell[1] + ones if cell[2] in free else cell[0]

        return _READ.sub(read, found[0])

    return _modules(text, module)


def split_ports(text: str, most: int = 8) -> str:
    """RTLIL in which every memory with more than ``most`` read ports is one copy for each of them.

    Block RAM has no more ports, so mapping ends there anyway; but Yosys enumerates the ways to it, and its memory
    does not suffice for 16 ports.
    """

    def module(found: re.Match[str]) -> str:
        blocks = found[0].split("\n\n")
        cells = [_CELL.search(block) for block in blocks]
        ports = Counter(cell[3] for cell in cells if cell and cell[1] == "rd")
        used: Counter[str] = Counter()
        out = []
        for block, cell in zip(blocks, cells, strict=True):
            memory = _MEMORY.match(block)
            name = cell[3] if cell else memory[1] if memory else ""
            if ports[name] <= most:
                out.append(block)
            elif cell and cell[1] == "rd":
                out.append(block.replace(f'"\\\\{name}"', f'"\\\\{name}:{used[name]}"'))
                used[name] += 1
            else:
                for i in range(ports[name]):
                    copy = re.sub(rf'(\\{re.escape(name)})(?="?$)', rf"\g<1>:{i}", block, flags=re.MULTILINE)
                    out.append(copy.replace(f" {cell[2]}\n", f" {cell[2]}:{i}\n") if cell else copy)
        return "\n\n".join(out)

    return _modules(text, module)
