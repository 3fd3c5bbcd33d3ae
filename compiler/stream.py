"""The load stream of a decoder: everything that moves in from DRAM, in the order of use.

Each linear is cut into chunks of whole column groups, packed as the mesh reads them, so that the
weights of a model stream sequentially through the ring of scratchpad slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.decoder_plan import DecoderPlan
from gemmule.compiler.decoder_program import (
    BASE_ANGLES,
    BASE_KV,
    BASE_STATIC,
    LEN_CONTEXT,
    LEN_LOGITS,
    LEN_ROWS,
)
from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import Regions, pack_columns, pack_gamma, pack_weights
from gemmule.compiler.place import Cut, cut_evenly, round_up
from gemmule.compiler.qmodel import Linear, QuantLayer, QuantModel
from gemmule.config import Config
from gemmule.isa import Command, Length, Unit
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

__all__ = ["Chunk", "Load", "LoadStream", "Part"]

TAIL_GROUPS = 2
"""The head's last chunks shrink to this: what follows the last weight byte is then short."""


@dataclass(frozen=True)
class Part:
    """The columns of one linear within a chunk: first group there and in the linear, parameter row."""

    name: str
    group: int
    source: int
    columns: int
    parameter: int


@dataclass(frozen=True)
class Chunk:
    """Consecutive column groups that stream as one load; ``depth`` weight rows a group."""

    label: str
    depth: int
    columns: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Load:
    """A load, the label of what must have been emitted before it, and whether it fills a ring slot."""

    command: Command
    after: str
    weights: bool


def _cuts(total: int, most: int, unit: int) -> list[Cut]:
    """(first, count) of nearly equal pieces of ``total`` groups, at most ``most``, in whole units."""
    units = total // unit
    return [(first * unit, count * unit) for first, count in cut_evenly(units, ceil_div(units, most // unit))]


def _tail(cuts: list[Cut]) -> list[Cut]:
    """Halve the last piece until it is small."""
    while cuts[-1][1] >= 2 * TAIL_GROUPS:
        first, count = cuts.pop()
        half = ceil_div(count, 2)
        cuts += [(first, half), (first + half, count - half)]
    return cuts


class LoadStream:
    """Lays out the static DRAM region and lists every load.

    Attributes
    ----------
    loads: in the order of use.
    layers: chunks by linear ("qkv", "o", "mlp", "down") for each layer, then {"head": ...}.
    static: the DRAM region of weights and parameters.
    """

    def __init__(self, model: QuantModel, config: Config, plan: DecoderPlan) -> None:
        self.model, self.config, self.plan = model, config, plan
        self.dim, self.row, self.ring = config.dim, plan.row, plan.slots("ring")
        self.static = Regions(config)
        self.loads: list[Load] = []
        self.layers: list[dict[str, list[Chunk]]] = []
        self.chunks = 0
        self._inputs()
        for index, layer in enumerate(model.layers):
            self._layer(index, layer)
        index = len(model.layers)
        at, head = self._parameters(index, "head", [], [model.head]), [("head", model.head)]
        self.layers.append({"head": self._linear("head", head, at, head=True)})

    def _load(self, after: str, note: str, weights: bool = False, **fields: Any) -> None:
        self.loads.append(Load(Command.make(Unit.LOAD, note=note, **fields), after, weights))

    def _blob(self, after: str, label: str, row: int, contents: list[np.ndarray], weights: bool = False,
              rows: int | Length = 1) -> None:
        """A run of scratchpad rows from the static region."""
        content = np.concatenate([c.reshape(-1) for c in contents])
        offset = self.static.put(label, content)
        self._load(after, label, weights, base=BASE_STATIC, offset=offset, bytes=content.size, row=row,
                   block_stride=1, rows=rows)

    def _inputs(self) -> None:
        """Embedding rows and what all layers share."""
        plan, dim, shape = self.plan, self.dim, self.model.shape
        hidden, head = ceil_div(shape.hidden, dim), shape.head_dim // dim
        for i in reversed(range(plan.rows)):
            # Absent rows first: a load of length zero waits for the unit to be idle.
            self._load("", f"embedding of row {i}", base=i, bytes=2 * hidden * dim, row=self.row["residual"] + i,
                       row_stride=1, block_stride=plan.rows, rows=Length(1, LEN_ROWS, i))
        norms = [n for layer in self.model.layers for n in (layer.attention_norm, layer.mlp_norm)]
        self._blob("", "gamma", self.row["gamma"], [pack_gamma(n.gamma, dim) for n in [*norms, self.model.norm]])
        self._load("", "angles", base=BASE_ANGLES, stride=4 * head * dim, bytes=4 * head * dim,
                   row=self.row["angles"], row_stride=4 * head, block_stride=1, rows=Length(plan.rows, LEN_ROWS))

    def _parameters(self, index: int, name: str, first: list[np.ndarray], linears: list[Linear]) -> int:
        """Column parameters of a layer into one of two buffers; returns its row."""
        row = self.row[f"parameters{index % 2}"]
        columns = [pack_columns(linear.mult, linear.shift, self.dim) for linear in linears]
        self._blob(f"layer {index - 2}" if index >= 2 else "", f"parameters {name}", row, [*first, *columns])
        return row

    def _layer(self, index: int, layer: QuantLayer) -> None:
        plan, shape = self.plan, self.model.shape
        gate = [] if layer.gate is None else [("gate", layer.gate)]
        groups: dict[str, list[tuple[str, Linear]]] = {
            "qkv": [("q", layer.q), ("k", layer.k), ("v", layer.v)], "o": [("o", layer.o)],
            "mlp": [*gate, ("up", layer.up)], "down": [("down", layer.down)]}
        linears = [linear for group in groups.values() for _, linear in group]
        at = self._parameters(index, str(index), [layer.table], linears) + plan.table_rows
        size = 2 * shape.width
        self._load(f"attention {index - 1}" if index else "", f"keys and values {index}", base=BASE_KV,
                   offset=index * shape.max_positions * size, stride=size, bytes=size, row=self.row["kv"],
                   row_stride=1, block_stride=shape.max_positions,
                   rows=Length(shape.max_positions, LEN_CONTEXT))
        chunks = {}
        for name, group in groups.items():
            unit = shape.head_dim // self.dim if name == "qkv" else 1
            chunks[name] = self._linear(f"{name} {index}", group, at, unit)
            at += COLUMN_ROWS * sum(ceil_div(len(linear.weight), self.dim) for _, linear in group)
        self.layers.append(chunks)

    def _linear(self, label: str, group: list[tuple[str, Linear]], parameter: int, unit: int = 1,
                head: bool = False) -> list[Chunk]:
        """Linears with one input, side by side, chunk by chunk in whole units of column groups."""
        starts, total = [], 0
        for _, linear in group:
            starts.append(total)
            total += ceil_div(len(linear.weight), self.dim)
        depth = round_up(group[0][1].weight.shape[1], self.config.preload)
        most = self.plan.chunk_groups(depth, staged=head)
        if most < unit:
            raise CompileError(
                f"{label}: a weight chunk must hold the {unit} column groups of a head, not {most}: use a "
                "larger scratchpad (spm_kib) or fewer banks")
        packed = np.concatenate([pack_weights(linear.weight, self.dim, depth) for _, linear in group])
        cuts = _cuts(total, most, unit)
        made = []
        for first, count in _tail(cuts) if head else cuts:
            parts, columns = [], 0
            for (name, linear), start in zip(group, starts):
                end = start + ceil_div(len(linear.weight), self.dim)
                low, high = max(first, start), min(first + count, end)
                if low < high:
                    taken = min((high - start) * self.dim, len(linear.weight)) - (low - start) * self.dim
                    parts.append(Part(name, low - first, low - start, taken, parameter + COLUMN_ROWS * low))
                    columns = (low - first) * self.dim + taken
            slot, freed = self.ring[self.chunks % len(self.ring)], self.chunks - len(self.ring)
            self._blob("" if freed < 0 else f"chunk {freed}", f"{label} columns {first * self.dim}+{columns}",
                       slot, [packed[first:first + count]], weights=True,
                       rows=Length(1, LEN_LOGITS) if head else 1)
            self.chunks += 1
            made.append(Chunk(label, depth, columns, tuple(parts)))
        return made
