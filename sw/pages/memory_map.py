"""Picture of the memories of ``base``: rows, banks, planes, and the DRAM regions of the bundled target."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.kernels.virtual import Bank
from gemmule.compiler.passes.map import default_rows
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.search.decoder import compile_best, default_effort
from gemmule.config import Config, load_config
from gemmule.operands import Memory
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.pages.svg import Drawing

__all__ = ["Layout", "layout", "memory_svg"]


@dataclass(frozen=True)
class Layout:
    """Where a compiled decoder lives."""

    config: Config
    banks: list[str]
    """What each scratchpad bank is for, classes of buffers."""
    regions: dict[str, tuple[int, int]]
    """DRAM regions: (address, bytes)."""
    positions: int
    width: int
    """Bytes of a position of a run of the cache."""
    runs: int
    """Of the cache: keys or values of a head, or keys and values of several heads, of a layer."""


def layout() -> Layout:
    """Of the bundled target on ``base``; the one place here that looks into a compiled program."""
    config = load_config("base")
    network, notes = bundled_model("target").network, Notes()
    program = compile_best(network, config, effort=default_effort(network.graph),
                           rows=default_rows(network.graph, config), tokens=True, notes=notes)
    banks: list[str] = []
    for bank in range(config.spm_banks):
        first, end = bank * config.spm_bank_rows, (bank + 1) * config.spm_bank_rows
        there = {buffer.bank for buffer, row in notes.rows.items()
                 if buffer.memory is Memory.SPM and row < end and row + buffer.rows > first}
        banks.append(" + ".join(kind.value for kind in Bank if kind in there))
    layout = program.layout
    return Layout(config, banks, dict(program.symbols), program.max_positions, layout.row, layout.runs)


_CONTENT = {
    "program": "commands, 32 bytes each, in order",
    "commit": "the program that keeps a path of a tree",
    "path": "which of the new rows it keeps",
    "weights": "int8 tiles, as they stream",
    "static": "parameters, gamma, tables",
    "embedding": "a row of int16 planes for every token",
    "angles": "cosine and sine for every position",
    "tokens": "new tokens, from the host",
    "positions": "their positions",
    "masks": "which new rows each one sees",
    "cache": "keys and values",
    "answers": "greedy tokens, or logits, of the last rows",
}
_PURPOSE = {
    "stream": "weights, keys and values", "operand": "A of products, results", "state": "residual, parameters, logits",
}
_KINDS = {"stream": "bus", "operand": "unit", "state": "memory"}


def _banks(d: Drawing, found: Layout) -> None:
    """Left: both memories, bank by bank."""
    config = found.config
    d.text(20, 28, f"On chip: {config.name}", "h")
    d.text(20, 52, f"scratchpad: {config.spm_rows:,} rows of {config.dim} int8", "s l")
    x, y, width, height = 84, 62, 176, 32
    for b in range(config.spm_banks):
        purpose = found.banks[b]
        d.box(x, y + b * height, width, height, _KINDS.get(purpose, "plain"), radius=0)
        d.text(x + width / 2, y + b * height + 14, f"bank {b}: {purpose}", "s")
        d.text(x + width / 2, y + b * height + 26, _PURPOSE.get(purpose, ""), "t")
        d.text(x - 6, y + b * height + 11, f"{b * config.spm_bank_rows:,}", "t r")
    y += config.spm_banks * height
    d.text(x - 6, y + 4, f"{config.spm_rows:,}", "t r")
    d.text(20, y + 34, f"accumulator: {config.acc_rows:,} rows of {config.dim} int32", "s l")
    y += 44
    for b in range(config.acc_banks):
        d.box(x, y + b * 26, width, 26, "plain", radius=0)
        d.text(x + width / 2, y + b * 26 + 17, f"bank {b}", "s")
        d.text(x - 6, y + b * 26 + 11, f"{b * config.acc_bank_rows:,}", "t r")
    d.text(x - 6, y + config.acc_banks * 26 + 4, f"{config.acc_rows:,}", "t r")
    y += config.acc_banks * 26 + 22
    for i, line in enumerate((
            "Numbers: first row of a bank. A bank is a", "contiguous range of rows with one read and",
            "one write port; colours: what the bundled", "target keeps there.")):
        d.text(20, y + 14 * i, line, "s l")


def _planes(d: Drawing, found: Layout) -> None:
    """Middle: one bank's sub-banks, and an int16 tensor in it."""
    dim, preload = found.config.dim, found.config.preload
    x, y = 320, 62
    d.text(x, 28, "Rows of an operand", "h")
    d.text(x, 52, f"int16[m = 3, n = {2 * dim}] from row 8 on, stride 6", "s l")
    group = 0
    for i in range(12):
        group, inside = divmod(i, 6)
        plane, row = divmod(inside, 3)
        sub = (8 + i) % preload
        d.box(x + 34, y + 22 * i, 196, 22, "unit" if plane == 0 else "memory", radius=0)
        d.text(x + 132, y + 22 * i + 15, f"row {row}, columns {group * dim}..{group * dim + dim - 1}, "
               f"{'low' if plane == 0 else 'high'} bytes", "t")
        d.text(x + 28, y + 22 * i + 15, f"{8 + i}", "t r")
        d.text(x + 236, y + 22 * i + 15, f"sub-bank {sub}", "t l")
    y += 22 * 12 + 24
    for i, line in enumerate((
            f"Columns come in groups of DIM = {dim}: group g of row r",
            "is row first + g * stride + r, its high bytes half a",
            "stride further (an int8 tensor has no high plane).",
            "",
            f"The mesh takes preload = {preload} weight rows a cycle: a bank",
            "is as many sub-banks, interleaved by the low bits of",
            "the row, and its read port returns all of them.")):
        d.text(x, y + 15 * i, line, "s l")


def _dram(d: Drawing, found: Layout) -> None:
    """Right: the regions of a program in DRAM, heights not to scale."""
    x, y, width, height = 740, 62, 230, 34
    d.text(660, 28, "DRAM: regions of the bundled target", "h")
    for i, (name, (address, size)) in enumerate(found.regions.items()):
        d.box(x, y + height * i, width, height, "list" if name == "cache" else "bus", radius=0, name=f"region-{name}")
        d.text(x + width / 2, y + height * i + 16, f"{name}: {size:,} bytes", "s")
        d.text(x + width / 2, y + height * i + 30, _CONTENT.get(name, ""), "t")
        d.text(x - 6, y + height * i + 11, f"0x{address:06x}", "t r")
    y += height * len(found.regions) + 34
    d.text(660, y, f"cache: [run][position], {found.width} bytes a position", "s l")
    shown = min(2, found.runs)
    cell, y = 62, y + 12
    for layer in range(shown):
        for position in range(4):
            label = str(position) if position < 3 else f".. {found.positions - 1}"
            d.box(x + position * cell, y + layer * 34, cell, 30, "list", radius=0)
            d.text(x + position * cell + cell / 2, y + layer * 34 + 12, label, "t")
            d.text(x + position * cell + cell / 2, y + layer * 34 + 24, "K | V", "t")
        d.text(x - 6, y + layer * 34 + 19, f"run {layer}", "t r")
    y += shown * 34 + 18
    for i, line in enumerate((
            f"and so on, {found.runs} runs. Base registers point at the",
            "regions and at the new rows' position in the cache:",
            "appending a token changes registers and two lists.",
            "Regions begin at burst boundaries.")):
        d.text(660, y + 15 * i, line, "s l")


def memory_svg() -> str:
    """The figure."""
    found = layout()
    d = Drawing(1000, 680, "Memory map: scratchpad, accumulator, planes, DRAM regions")
    _banks(d, found)
    _planes(d, found)
    _dram(d, found)
    return d.svg()
