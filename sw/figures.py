"""Figures of the documentation: ``python -m gemmule.sw.figures docs/img`` writes them as SVG."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["system_svg"]

_STYLE = (
    "text{font:13px sans-serif;fill:#1b1f24;text-anchor:middle}"
    ".s{font-size:10.5px;fill:#57606a}"
    "rect{fill:#f6f8fa;stroke:#57606a;rx:5}"
    ".u{fill:#ddf4ff;stroke:#0969da}.m{fill:#fff8c5;stroke:#9a6700}.b{fill:#dafbe1;stroke:#1a7f37}"
    "path{stroke:#57606a;fill:none;marker-end:url(#a)}"
)
_BOXES = (  # x, y, width, height, class, title, subtitle
    (20, 15, 120, 44, "b", "AXI4-Lite", "registers, start, irq"),
    (180, 15, 120, 44, "", "fetch", "program from DRAM"),
    (340, 15, 140, 44, "", "decode, resolve", "lengths, rows, claims"),
    (520, 15, 160, 44, "", "dispatch, issue", "queues, waits, ports"),
    (20, 110, 120, 56, "u", "load", "DRAM to scratchpad"),
    (160, 110, 120, 56, "u", "store", "scratchpad to DRAM"),
    (300, 110, 180, 56, "u", "matrix", "weight-stationary mesh"),
    (500, 110, 180, 56, "u", "vector", "requant, norm, softmax, RoPE"),
    (160, 220, 260, 50, "m", "scratchpad", "int8 rows of DIM, banked"),
    (440, 220, 240, 50, "m", "accumulator", "int32 rows of DIM, adds in place"),
    (20, 220, 120, 50, "b", "AXI4", "DRAM"),
)
_ARROWS = (
    "M140 37H178", "M300 37H338", "M480 37H518", "M600 59V84H80V108", "M220 84V108", "M390 84V108",
    "M590 84V108", "M65 220V168",
    "M100 166C100 200 170 195 190 218", "M235 218V168", "M180 166C170 195 130 195 115 218",
    "M340 218V168", "M430 166C440 190 470 195 490 218", "M570 218V168", "M530 166C500 195 420 195 400 218",
)


def system_svg() -> str:
    """The block diagram of the device."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 285" width="700" height="285">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="a" markerWidth="7" markerHeight="7" refX="6" refY="3.5" orient="auto">'
        '<path d="M0 0L7 3.5L0 7z" style="fill:#57606a;stroke:none;marker-end:none"/></marker></defs>',
        '<rect width="700" height="285" style="fill:#fff;stroke:none"/>',
    ]
    parts += [f'<path d="{arrow}"/>' for arrow in _ARROWS]
    for x, y, width, height, kind, title, subtitle in _BOXES:
        middle = x + width / 2
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
        parts.append(f'<text x="{middle:g}" y="{y + height / 2 - 3:g}">{title}</text>')
        parts.append(f'<text class="s" x="{middle:g}" y="{y + height / 2 + 13:g}">{subtitle}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (Path(sys.argv[1]) / "system.svg").write_text(system_svg())
