"""Combinational blocks on which every simulator comes to rest.

Yosys writes a block that gives a vector its default and then other values, or bits of it:

    always_comb begin              wire [3:0] \\data[7:4]  = data[7:4];
      if (\\$auto$1 ) begin end     reg [3:0] _chosen$count;
      count = total;               always_comb begin
      if (taken) begin               _chosen$count = total;
        count = data[7:4];           if (taken) begin
      end                              _chosen$count = \\data[7:4] ;
    end                              end
                                     count = _chosen$count;
                                   end

A simulator with events, such as Icarus, sees ``count`` change each time that the left one runs, and change back. It
also runs the block for any bit of ``data``. Two such blocks that read each other's vectors, though never each
other's bits, then run for ever. In the right one each block assigns its signal once, at its end, and is run for the
bits that it reads: what it reads changes as often as the logic's depth has it. Parts that a block assigns on every
path become blocks of their own. The variables stand outside of the blocks because Verilator turns these into
expressions only if they declare nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["settling"]

CHOSEN = "_chosen$"
"""Variables of blocks begin with this, and no signal does; Verilator leaves such names out of waveforms."""
_BLOCK = re.compile(r"^  always_comb(?: begin\n(?:   .*\n)*  end\n|\n    .*\n)", re.MULTILINE)
_NAME = r"(?:\\\S+ |[A-Za-z_]\w*)"
_SELECT = r" ?\[(\d+)(?::(\d+))?\]"
_TARGET = re.compile(rf"^( +)({_NAME}(?:{_SELECT})?|\{{ .* \}})(?= = )", re.MULTILINE)
_PART = re.compile(rf"({_NAME})(?:{_SELECT})?")
_REG = re.compile(rf"^  (?:output )?reg (?:signed )?(\[\d+:0\] )?({_NAME})", re.MULTILINE)
_TRIGGER = re.compile(r"^ *(?:reg \\\$auto\S+dump_module\S+  = 0;|if \(\\\$auto\S+dump_module\S+ \) begin end)\n",
                      re.MULTILINE)
"""What makes ``always @*`` run at time 0; ``always_comb`` does so by itself."""
_CASE = re.compile(r"(?: +\(\* .* \*\)\n)?    case.*\n(?:      \S.*:\n(?: {10}\S.* = .*\n)?)*    endcase\n")
"""A case and nothing else: one assignment on each path."""
_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)


class _Parts:
    """The constant selects that a module's blocks read, each as a wire."""

    def __init__(self) -> None:
        self.wires: dict[str, str] = {}

    def named(self, text: str) -> str:
        """``text`` with their wires' names."""
        return _PART.sub(self._wire, text)

    def _wire(self, found: re.Match[str]) -> str:
        name, high, low = found[1].strip().removeprefix("\\"), found[2], found[3] or found[2]
        if high is None:
            return found[0]
        width = int(high) - int(low)
        wire = f"\\{name}[{high}:{low}] "
        self.wires[wire] = f"  wire {f'[{width}:0] ' if width else ''}{wire} = {found[0]};\n"
        return wire


def _apart(inside: str) -> tuple[str, str]:
    """A block's inside without the assignments that stand on every path and share no bit, and these alone."""
    lines = inside.splitlines(keepends=True)
    spans = {i: span for i, line in enumerate(lines) if (found := _TARGET.match(line)) and (span := _span(found[2]))}
    alone, rest, always = [], [], [True]
    for i, line in enumerate(lines):
        word = line.strip()
        if word == "end":
            always.pop()
        if i in spans and always[-1] and not any(
                low < spans[i][1] and spans[i][0] < high for other, (low, high) in spans.items() if other != i):
            alone.append(f"  always_comb\n    {word}\n")
        else:
            rest.append(line)
        if word.endswith(" begin") or word == "begin" or word.startswith("case"):
            always += [] if word.startswith("end") else [always[-1] and word == "begin"]
        elif word == "endcase":
            always.pop()
    left = "".join(rest)
    while (less := re.sub(r"^( +)begin\n\1end\n", "", left, flags=re.MULTILINE)) != left:
        left = less
    return left, "".join(alone)


def _once(block: str, widths: dict[str, str], used: set[str]) -> str:
    """The block with one assignment on each path."""
    head, _, inside = block.removesuffix("  end\n").partition("\n")
    if not head.endswith("begin") or _CASE.fullmatch(inside):
        return block
    targets = [target[2] for target in _TARGET.finditer(inside)]
    name, = {part[1] for target in targets for part in _PART.finditer(target)}
    inside, alone = _apart(inside) if all(map(_span, targets)) else (inside, "")
    parts = [part for target in _TARGET.finditer(inside) for part in _PART.finditer(target[2])]
    if not parts:
        return alone
    top = widths[name][1:].partition(":")[0]
    places = [(int(top or 0), 0)]
    if all(part[2] for part in parts):  # other bits have other drivers
        places = _merged((int(part[2]), int(part[3] or part[2])) for part in parts)
    regs, ends = "", ""
    for place in places:  # a variable for each range, with the bits' own numbers
        chosen = CHOSEN + re.sub(r"\W+", "_", name.strip()).strip("_")
        while chosen in used:
            chosen += "_"
        used.add(chosen)
        whole = place == (int(top or 0), 0)
        regs += f"  reg {'' if whole and not top else f'[{place[0]}:{place[1]}] '}{chosen};\n"
        ends += f"    {name}{'' if whole else _select(place)} = {chosen};\n"

        def choose(part: re.Match[str], place: tuple[int, int] = place, chosen: str = chosen) -> str:
            inside = part[2] is None or place[1] <= int(part[2]) <= place[0]
            return chosen + part[0][len(part[1]):] if part[1] == name and inside else part[0]

        inside = _TARGET.sub(lambda target: target[1] + _PART.sub(choose, target[2]), inside)
    return f"{alone}{regs}{head}\n{inside}{ends}  end\n"


def _span(target: str) -> tuple[int, int] | None:
    """Half-open range of bits of a target that is one select."""
    found = _PART.fullmatch(target)
    return (int(found[3] or found[2]), int(found[2]) + 1) if found and found[2] else None


def _select(place: tuple[int, int]) -> str:
    return f"[{place[0]}]" if place[0] == place[1] else f"[{place[0]}:{place[1]}]"


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The bits of ranges (high, low) as ranges that do not touch."""
    bits = sorted({bit for high, low in ranges for bit in range(low, high + 1)})
    cuts = [i for i, bit in enumerate(bits) if not i or bits[i - 1] != bit - 1] + [len(bits)]
    return [(bits[high - 1], bits[low]) for low, high in zip(cuts, cuts[1:])]


def _module(found: re.Match[str]) -> str:
    assert CHOSEN not in found[0], CHOSEN
    used: set[str] = set()
    widths = {name: width for width, name in _REG.findall(found[0])}
    parts = _Parts()

    def block(found: re.Match[str]) -> str:
        before, lines = set(parts.wires), []
        for line in found[0].splitlines(keepends=True):
            target = _TARGET.match(line)
            begin = target.end() if target else 0
            lines.append(line[:begin] + parts.named(line[begin:]))
        new = "".join(wire for name, wire in parts.wires.items() if name not in before)
        return new + _once("".join(lines), widths, used)

    return _BLOCK.sub(block, found[0])


def settling(text: str) -> str:
    """Verilog whose combinational blocks assign their signal once and read no part of a vector."""
    return _MODULE.sub(_module, _TRIGGER.sub("", text))
