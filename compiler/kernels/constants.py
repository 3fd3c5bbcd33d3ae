"""Contents of DRAM regions that a network fixes, packed when an image is filled, not when it is compiled."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Embedding, Linear, Network, Norm, Position, Rope
from gemmule.compiler.ir.nodes import Activation
from gemmule.compiler.kernels.layout import PAD, by_heads
from gemmule.compiler.layout import WeightFormat, pack_angles, pack_columns, pack_gamma, pack_groups, pack_planes
from gemmule.config import Config
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES, rshr, saturate, split_planes
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS
from gemmule.timing import ceil_div

__all__ = ["AngleRows", "ColumnRows", "EmbeddingRows", "FixedRows", "GammaRows", "ListedWeights",
           "PackedWeights", "PositionRows", "PrefixRows", "TableRows", "WordRows"]


def _pick(values: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """``values[lanes]`` along the first axis, 0 at pads."""
    found = values[np.maximum(lanes, 0)]
    found[lanes == PAD] = 0
    return found


def _words(values: np.ndarray, dim: int) -> np.ndarray:
    """int32 [n] as byte planes, lowest first  # uint8 [group, 4, dim]."""
    planes = np.asarray(values).astype("<i4").view(np.uint8).reshape(-1, 4).T  # [4, n]
    return pack_groups(planes.view(np.int8), dim)


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """A tile of a linear: columns ``columns`` (lanes), depth ``depth`` (lanes): [column group][depth row][dim]."""

    node: Linear
    columns: np.ndarray
    depth: np.ndarray
    format: WeightFormat
    size: int

    @property
    def key(self) -> Hashable:
        return self.node.name, self.columns.tobytes(), self.depth.tobytes()

    def groups(self, dim: int) -> list[PackedWeights]:
        count = len(self.columns) // dim
        return [replace(self, columns=columns, size=self.size // count)
                for columns in self.columns.reshape(count, dim)]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        stored = network.tensor(self.node, "weight")
        rows = _pick(stored, self.columns)
        if self.format.bits == 4:
            low, high = (rows & 15).astype(np.int8), (rows >> 4).astype(np.int8)
            rows = np.stack([low, high], axis=-1).reshape(len(rows), -1)
            rows = np.where(rows > 7, rows - 16, rows)
        tile = _pick(rows.T, self.depth)  # [depth, columns]
        scales = None
        if self.format.group:
            scales = _pick(network.tensor(self.node, "scales").T, self.columns).T  # [groups, columns]
            scales = np.maximum(scales[self._groups(config)], 1)
        return self.format.pack(config, tile, scales, ceil_div(len(self.depth), config.dim)).reshape(-1)

    def _groups(self, config: Config) -> np.ndarray:
        """The network's group of each of the device's scale rows."""
        found, step = [], config.dim * self.format.tiles(config)
        for at in range(0, len(self.depth), step):
            lanes = self.depth[at:at + step]
            groups = np.unique(lanes[lanes != PAD] // self.node.group)
            if len(groups) > 1:
                raise CompileError(
                    f"{self.node.name}: int4 groups of {self.node.group} must not be split by heads on {config.dim} "
                    "lanes: quantise it with another group, or to int8")
            found.append(int(groups[0]) if len(groups) else 0)
        return np.array(found, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ListedWeights:
    """A linear's int8 weights, a row for each lane of its input: [depth][columns]."""

    node: Linear
    columns: np.ndarray
    depth: np.ndarray

    @property
    def size(self) -> int:
        return len(self.columns) * len(self.depth)

    @property
    def key(self) -> Hashable:
        return self.node.name, "listed", self.columns.tobytes(), self.depth.tobytes()

    def groups(self, dim: int) -> tuple[ListedWeights]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return _pick(_pick(network.tensor(self.node, "weight"), self.columns).T, self.depth).reshape(-1)


@dataclass(frozen=True, eq=False)
class ColumnRows:
    """Multiplier, shift and bias of a linear's columns: [group][mult low, mult high, shift, bias 0 .. 3][dim]."""

    node: Linear
    columns: np.ndarray
    size: int

    @staticmethod
    def of(node: Linear, columns: np.ndarray) -> ColumnRows:
        """Of these lanes."""
        return ColumnRows(node, columns, len(columns) * ColumnRows.rows(node))

    @staticmethod
    def rows(node: Linear) -> int:
        """Rows of a column group."""
        return COLUMN_ROWS + (BIAS_ROWS if node.bias else 0)

    @property
    def key(self) -> Hashable:
        return self.node.name, "parameters", self.columns.tobytes()

    def groups(self, dim: int) -> list[ColumnRows]:
        return [ColumnRows.of(self.node, columns) for columns in self.columns.reshape(-1, dim)]

    def pack(self, network: Network, config: Config) -> np.ndarray:
        mult, shift = (_pick(network.tensor(self.node, role), self.columns) for role in ("mult", "shift"))
        parts = [pack_columns(mult, shift, config.dim)]
        if self.node.bias:
            parts.append(_words(_pick(network.tensor(self.node, "bias"), self.columns), config.dim))
        return np.concatenate(parts, axis=1).reshape(-1)


@dataclass(frozen=True, eq=False)
class GammaRows:
    """A norm's gamma and beta: [group][gamma low, high, beta 0 .. 3][dim]."""

    node: Norm
    size: int

    @staticmethod
    def of(node: Norm, dim: int) -> GammaRows:
        groups = ceil_div(node.width, dim) * (node.columns // node.width)
        return GammaRows(node, GammaRows.rows(node) * groups * dim)

    @staticmethod
    def rows(node: Norm) -> int:
        """Rows of a column group."""
        return GAMMA_ROWS + (BIAS_ROWS if node.mean else 0)

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[GammaRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        gamma = network.tensor(self.node, "gamma")
        if self.node.head_dim:
            heads = np.arange(self.node.columns // self.node.head_dim)
            gamma = _pick(gamma, by_heads(heads, self.node.head_dim, config.dim))
        parts = [pack_gamma(gamma, config.dim)]
        if self.node.mean:
            parts.append(_words(network.tensor(self.node, "beta"), config.dim))
        return np.concatenate(parts, axis=1).reshape(-1)


@dataclass(frozen=True)
class FixedRows:
    """Bytes that are the same for every network."""

    name: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def key(self) -> Hashable:
        return "fixed", self.name

    def groups(self, dim: int) -> tuple[FixedRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return np.frombuffer(self.content, dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class TableRows:
    """A byte table."""

    node: Activation
    size: int = BYTE_TABLE_ENTRIES

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[TableRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        return network.tensor(self.node, "table").view(np.uint8)


@dataclass(frozen=True, eq=False)
class WordRows:
    """A table of words: low bytes in whole rows, then high ones."""

    node: Activation
    size: int

    @staticmethod
    def of(node: Activation, dim: int) -> WordRows:
        return WordRows(node, 2 * ceil_div(WORD_TABLE_ENTRIES, dim) * dim)

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[WordRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        planes = np.zeros((2, self.size // 2), dtype=np.uint8)
        planes[:, :WORD_TABLE_ENTRIES] = split_planes(network.tensor(self.node, "words"))
        return planes.reshape(-1)


@dataclass(frozen=True, eq=False)
class EmbeddingRows:
    """Every token's int16 row: [token][group][low, high][dim]."""

    node: Embedding
    size: int

    @staticmethod
    def of(node: Embedding, dim: int) -> EmbeddingRows:
        return EmbeddingRows(node, node.vocab * 2 * ceil_div(node.columns, dim) * dim)

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[EmbeddingRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        codes, mult, shift = (network.tensor(self.node, role).astype(np.int64) for role in ("codes", "mult", "shift"))
        return pack_planes(saturate(rshr(codes * mult[:, None], shift[:, None]), 16), config.dim).reshape(-1)


@dataclass(frozen=True, eq=False)
class PositionRows:
    """Every position's row as int32, for the accumulator: [position][column]."""

    node: Position
    size: int

    @staticmethod
    def of(node: Position, dim: int) -> PositionRows:
        return PositionRows(node, node.positions * 4 * ceil_div(node.columns, dim) * dim)

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[PositionRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        table = network.tensor(self.node, "table").astype("<i4")
        padded = np.zeros((len(table), self.size // 4 // len(table)), dtype="<i4")
        padded[:, :self.node.columns] = table
        return padded.reshape(-1).view(np.uint8)


@dataclass(frozen=True, eq=False)
class PrefixRows:
    """Constant keys, then values, of a KV head: [keys, values][group of a head][``apart`` rows][dim]."""

    node: Attention
    kv: int
    apart: int
    size: int

    @property
    def key(self) -> Hashable:
        return self.node.name, "prefix", self.kv

    def groups(self, dim: int) -> tuple[PrefixRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        node, dim = self.node, config.dim
        found = np.zeros((2, ceil_div(node.head_dim, dim), self.apart, dim), dtype=np.int8)
        for part, role in enumerate(("prefix_key", "prefix_value")):
            rows = network.tensor(node, role).reshape(node.prefix, node.kv_heads, node.head_dim)[:, self.kv]
            padded = np.pad(rows, ((0, 0), (0, -node.head_dim % dim)))
            found[part, :, :node.prefix] = padded.reshape(node.prefix, -1, dim).swapaxes(0, 1)
        return found.view(np.uint8).reshape(-1)


@dataclass(frozen=True, eq=False)
class AngleRows:
    """Every position's angles: [position][group of a head][cos low, high, sin low, high][dim]."""

    node: Rope
    size: int

    @staticmethod
    def of(node: Rope, dim: int) -> AngleRows:
        return AngleRows(node, node.positions * 4 * ceil_div(node.head_dim, dim) * dim)

    @property
    def key(self) -> Hashable:
        return self.node.name

    def groups(self, dim: int) -> tuple[AngleRows]:
        return (self,)

    def pack(self, network: Network, config: Config) -> np.ndarray:
        cosine, sine = (network.tensor(self.node, role) for role in ("cosine", "sine"))
        return pack_angles(cosine, sine, config.dim).reshape(-1)
