"""What a device has and what fits: memories, peaks, the roofline's ridge, known networks and their longest contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ideal import ideal
from gemmule.compiler.importers.architectures import Architecture, architectures
from gemmule.compiler.passes.map import MOST_UNROLLED
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.config import Config
from gemmule.sim.roofline import roofline_cycles
from gemmule.timing import ceil_div

__all__ = ["fits", "memories", "peaks"]

_FEW = 256
"""Tokens of the network that is compiled to see whether it fits: the head streams like every linear."""
_MARGIN = 1 << 22
"""Bytes of DRAM for programs, lists, masks and answers."""


def memories(config: Config) -> list[dict[str, Any]]:
    """Each memory with its size and what all its ports move in a cycle."""
    bank = config.dim * 4
    return [
        {"name": "scratchpad", "bytes": config.spm_kib * 1024, "rows": config.spm_rows, "banks": config.spm_banks,
         "read_bytes_per_cycle": config.spm_banks * config.dim * config.preload,
         "write_bytes_per_cycle": config.spm_banks * config.dim},
        {"name": "accumulator", "bytes": config.acc_kib * 1024, "rows": config.acc_rows, "banks": config.acc_banks,
         "read_bytes_per_cycle": config.acc_banks * bank, "write_bytes_per_cycle": config.acc_banks * bank},
        {"name": "DRAM", "bytes": 1 << config.address_bits, "rows": None, "banks": config.dram.banks,
         "read_bytes_per_cycle": config.bus_bytes / config.dram.beat_cycles,
         "write_bytes_per_cycle": config.bus_bytes / config.dram.beat_cycles},
    ]


def peaks(config: Config) -> dict[str, Any]:
    """MACs and DRAM bytes a cycle and a second, and the ridge: MACs a byte from which on the mesh is the limit."""
    macs, moved = config.dim ** 2, 1 / roofline_cycles(1, config)
    clock = config.host.clock_mhz * 1e6
    return {"macs_per_cycle": macs, "macs_per_second": macs * clock, "dram_bytes_per_cycle": moved,
            "dram_bytes_per_second": moved * clock, "ridge_macs_per_byte": macs / moved,
            "clock_mhz": config.host.clock_mhz}


def _small(found: Architecture, context: int) -> Architecture:
    """The same network on chip: as few layers as make a body, or stand alone, few tokens, up to ``context``."""
    layers = MOST_UNROLLED + 1 if found.graph().layers > MOST_UNROLLED else 1
    return found.resized("layers", layers).resized("vocab", _FEW).resized("positions", context)


def fits(config: Config) -> Iterator[dict[str, Any]]:
    """Of each known network: a decode step's bytes and longest context, or why there is none."""
    for found in architectures().values():
        row: dict[str, Any] = {"name": found.name, "parameters": found.parameters, "weight_bytes": None,
                               "kv_bytes_per_position": None, "context": 0, "limit": None,
                               "tokens_per_second_at_most": None}
        try:
            graph = by_shape(found.graph()).graph
            needed = ideal(graph, 1, 0, wanted=1, tokens=True)
            table = graph.vocab * 2 * ceil_div(graph.nodes[0].columns, config.dim) * config.dim
            kv = sum(2 * node.kv_heads * ceil_div(node.head_dim, config.dim) * config.dim
                     for node in graph.attentions)
            positions = sum(tensor.shape[0] * tensor.shape[1] * 4 for name, tensor in graph.tensors.items()
                            if name.startswith("position"))
            room = (1 << config.address_bits) - needed.weights - table - positions - _MARGIN
            row |= {"weight_bytes": needed.weights, "kv_bytes_per_position": kv,
                    "tokens_per_second_at_most": config.host.clock_mhz * 1e6 / roofline_cycles(needed.bytes, config)}
            if room < kv:
                row["limit"] = f"address_bits = {config.address_bits}: weights and embeddings take more"
                yield row
                continue
            context = min(graph.whole_positions, room // kv)
            network = by_shape(_small(found, context).graph())
            if graph.encoder:
                compile_encoder(network, config, sequence=context, checked=False)
            else:
                compile_network(network, config, rows=1, tokens=True, checked=False)
            row |= {"context": context, "limit": "the network's positions" if context == graph.whole_positions
                    else f"address_bits = {config.address_bits}"}
        except CompileError as error:
            row["limit"] = str(error)
        yield row
