"""What a step costs where a model drafts for itself in streams, beside a draft model and Medusa's heads, by shape.

All passes are timed without weights, int8, one text behind ``context`` cached tokens. Up to as many rows as the mesh
has (``dim``) are timed as they are; beyond that a pass is limited by its products, and a number of rows that is not
timed is on the line through ``dim`` and ``2 * dim``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gemmule.compiler.importers.architectures import Architecture
from gemmule.compiler.ir import Linear
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import compile_product
from gemmule.config import Config
from gemmule.sim.simulator import Simulator
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["Cost", "ShapeCosts", "tree_nodes"]


@dataclass(frozen=True)
class Cost:
    """Of one pass or several."""

    cycles: float
    macs: float
    bytes: float
    """Of DRAM."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cycles + other.cycles, self.macs + other.macs, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.cycles * times, self.macs * times, self.bytes * times)

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1

    def utilization(self, config: Config) -> float:
        """Share of the mesh's peak MACs."""
        return self.macs / (self.cycles * config.dim ** 2)

    @property
    def operations_per_byte(self) -> float:
        """Two of a MAC."""
        return 2 * self.macs / self.bytes


def tree_nodes(top: int, depth: int) -> int:
    """Rows of a pass that verifies ``top`` candidates of each of ``depth`` streams, each behind each: its tree's
    nodes with the pending token.
    """
    return sum(top ** level for level in range(depth + 1))


@dataclass
class ShapeCosts:
    """Passes of one network, each timed once."""

    network: Architecture
    config: Config
    context: int
    positions: int
    """That the programs take."""

    def __post_init__(self) -> None:
        self._timed: dict[tuple[int, int], Cost] = {}

    @cached_property
    def layers(self) -> int:
        """Of the network."""
        return int(self.network.graph().layers)

    def timed(self, rows: int, layers: int = 0) -> Cost:
        """A pass over so many rows, its launch included; ``layers``: of a network with only so many.

        Raises:
            CompileError: the network does not fit the device.
        """
        layers = layers or self.layers
        if (rows, layers) not in self._timed:
            network = self.network if layers == self.layers else self.network.resized("layers", layers)
            found = run_architecture(network, self.config, Work(
                phase="decode", seq=self.context, rows=rows, context=self.positions))
            self._timed[rows, layers] = Cost(
                int(found["cycles"]) + self.config.host.launch_cycles, int(found["macs"]), int(found["dram_bytes"]))
        return self._timed[rows, layers]

    def rows(self, count: int, layers: int = 0) -> Cost:
        """As :meth:`timed`; more than ``dim`` rows on the line through ``dim`` and ``2 * dim``."""
        dim = self.config.dim
        if count <= dim:
            return self.timed(count, layers)
        one, two = self.timed(dim, layers), self.timed(2 * dim, layers)
        return one + (two - one) * ((count - dim) / dim)

    def streamed(self, candidates: int, rows: int, layers: int) -> Cost:
        """A pass over ``candidates`` that has ``rows`` in the last ``layers``, in two launches (Speculative
        Streaming); behind the first one an exit, a product with the head.
        """
        beside = self.product(candidates, self._hidden, self._vocab) + self._launch
        return self.rows(candidates) - self.rows(candidates, layers) + self.rows(rows, layers) + beside

    def heads(self, count: int) -> Cost:
        """Medusa's heads on one row: a square product and one with a head of its own, each; one launch for all."""
        each = self.product(1, self._hidden, self._hidden) + self.product(1, self._hidden, self._vocab)
        return each * count + self._launch

    def product(self, m: int, k: int, n: int) -> Cost:
        """One product alone, weights and rows from DRAM."""
        program = compile_product(self.config, m, k, n, checked=False)
        device = Simulator(self.config, dram_bytes=1)
        device.load(program.launch("product", NO_DRAM, program.registers()))
        result = device.run(timing_only=True)
        return Cost(int(result.cycles), m * k * n, sum(result.dram_bytes.values()))

    def medusa_parameters(self, heads: int) -> int:
        """Of so many heads, each a square layer and a head of its own, without biases."""
        return heads * self._hidden * (self._hidden + self._vocab)

    def stream_parameters(self, rows: int) -> int:
        """Of so many learned rows."""
        return rows * self._hidden

    @property
    def _launch(self) -> Cost:
        return Cost(self.config.host.launch_cycles, 0, 0)

    @cached_property
    def _head(self) -> Linear:
        """The product that gives the logits."""
        return next(node for node in reversed(self.network.graph().nodes) if isinstance(node, Linear))

    @property
    def _hidden(self) -> int:
        return int(self._head.depth)

    @property
    def _vocab(self) -> int:
        return int(self._head.columns)
