"""Networks by shape against quantised ones: the same graph, and commands of all layers from two of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import Graph, Network, Type
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.config import load_config
from tests.compiler import families


def unscaled(graph: Graph) -> Graph:
    """Without scales, which calibration decides."""
    return graph.model_copy(update={"nodes": tuple(
        node.model_copy(update={"type": Type(dtype=node.type.dtype)}) for node in graph.nodes)})


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama-tied", "mistral", "llama3", "qwen2", "qwen3", "phi",
                                    "gpt_neox", "bert"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_graph_is_the_quantisers(tmp_path: Path, family: str, bits: int) -> None:
    families.write(tmp_path, families.make(family, seed=1, head_dim=24, layers=2, vocab=61))
    network = load_network(tmp_path)
    tokens = np.random.default_rng(1).integers(0, 61, (2, 16))
    real = quantize_network(network, tokens, Options(bits=bits, smooth=family == "bert"))  # type: ignore[arg-type]
    made = by_shape(network.graph, bits=bits)  # type: ignore[arg-type]
    assert unscaled(made.graph) == unscaled(real.network.graph)
    assert {name: made.weights[name].shape for name in made.weights} == {
        name: value.shape for name, value in real.network.weights.items()}


def test_tensors_take_no_memory() -> None:
    network = by_shape(architecture("llama-2-7b").graph())
    assert sum(network.weights[name].size for name in network.weights) > 6e9
    assert sum(network.weights[name].base.nbytes for name in network.weights) < 1e4


def test_two_layers_stand_for_all() -> None:
    """The program and where everything lies are those of a compilation that writes every layer."""
    small = architecture("tinyllama-1.1b").resized("hidden", 128).resized("layers", 18).resized("positions", 300)
    small = replace(small, config=small.config | {"vocab_size": 97})
    network, device = by_shape(small.graph()), load_config("base")
    whole = Network(network.graph, network.weights)
    once, every = (compile_network(each, device, rows=2, tokens=True) for each in (network, whole))
    assert (once.image, once.symbols, once.size) == (every.image, every.symbols, every.size)
    assert sum(command.note == "layers" for command in once.commands) == 1  # they are a body
    with pytest.raises(CompileError, match="a network by shape has no weights: run its program for its time alone"):
        once.fill(network)
