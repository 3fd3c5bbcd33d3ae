"""An encoder whose products alone run on the device: each is a launch, what is between them is the host's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gemmule.compiler.ir import Activation, Attention, Graph, Linear, Norm
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import compile_product
from gemmule.config import Config
from gemmule.sim.simulator import Simulator
from gemmule.sw.workloads.host_model import Host, Operator

__all__ = ["Offload", "offload"]

FLOAT = 4


@dataclass(frozen=True, kw_only=True)
class Offload:
    """What device and host do for one sequence."""

    product_cycles: int
    """Of all products, operands from DRAM and results back."""
    product_bytes: int
    launches: int
    macs: int
    operators: tuple[Operator, ...]

    def cycles(self, host: Host, config: Config, *, speed: float = 1.0, clock: float = 1.0,
               overlapped: bool = False) -> float:
        """Device cycles from the first token to the output.

        ``speed``: of the host's arithmetic; ``clock``: of the host over the device, which its launches have too.
        ``overlapped``: as if products and host never waited for each other; else one after the other.
        """
        own = sum(host.spends(operator, config, speed=speed * clock) for operator in self.operators)
        own += self.launches * config.host.launch_cycles / clock
        return max(own, self.product_cycles) if overlapped else own + self.product_cycles


def offload(graph: Graph, config: Config, sequence: int) -> Offload:
    """Products of an encoder on the device, one by one; softmax, norms, GELU, sums and (de)quantisation are a host's.

    Raises:
        CompileError: a product does not fit.
    """
    cycles = moved = 0
    products = _products(graph, sequence)
    for (m, k, n), count in products.items():
        program = compile_product(config, m, k, n, checked=False)
        device = Simulator(config, dram_bytes=1)
        device.load(program.launch("product", NO_DRAM, program.registers()))
        result = device.run(timing_only=True)
        cycles += count * int(result.cycles)
        moved += count * sum(result.dram_bytes.values())
    return Offload(product_cycles=cycles, product_bytes=moved, launches=sum(products.values()),
                   macs=sum(m * k * n * count for (m, k, n), count in products.items()),
                   operators=tuple(_operators(graph, sequence)))


def _products(graph: Graph, sequence: int) -> Counter[tuple[int, int, int]]:
    """Products by shape."""
    found: Counter[tuple[int, int, int]] = Counter()
    for node in graph.nodes:
        if isinstance(node, Linear):
            found[sequence, node.depth, node.columns] += 1
        elif isinstance(node, Attention):
            found[sequence, node.head_dim, sequence] += node.heads
            found[sequence, sequence, node.head_dim] += node.heads
    return found


def _operators(graph: Graph, sequence: int) -> list[Operator]:
    """What is between products. A norm follows a sum: the residual comes and the next one goes as float."""
    softmax = sum(node.heads for node in graph.nodes if isinstance(node, Attention)) * sequence * sequence
    inner = sum(node.columns for node in graph.nodes if isinstance(node, Activation)) * sequence
    norms = [node for node in graph.nodes if isinstance(node, Norm) and not node.name.endswith(".wide")]
    sums = sum(node.columns for node in norms if node.layer is not None) * sequence
    first = sum(node.columns for node in norms if node.layer is None) * sequence
    return [
        Operator(name="softmax", elements=softmax, kernels=("dequantise", "softmax", "quantise"), bytes=2 * softmax),
        Operator(name="GELU", elements=inner, kernels=("dequantise", "gelu", "quantise"), bytes=2 * inner),
        Operator(name="residual and LayerNorm", elements=sums, bytes=(2 + 2 * FLOAT) * sums,
                 kernels=("dequantise", "add", "layernorm", "quantise")),
        Operator(name="embedding and LayerNorm", elements=first, kernels=("add", "layernorm", "quantise"),
                 bytes=(1 + 3 * FLOAT) * first)]
