"""A network in integers as the float one that it computes, and in other integers again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Linear, Network, Rows
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.restore import restore_network
from gemmule.sw.models.bundled_models import bundled_model
from tests.compiler import families

SEED, VOCAB = 20261124, 211


def _logits(network: Network, tokens: np.ndarray) -> np.ndarray:
    rows = Rows.chain(tokens.tolist())
    if not network.graph.integer:
        return FloatInterpreter(network).forward(rows, Cache(network.graph))
    scale = network.graph.by_name[network.graph.output].type.scale
    return IntegerInterpreter(network).forward(rows, Cache(network.graph)) * scale


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama-tied", "llama3", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_function_stays(tmp_path: Path, family: str, bits: int) -> None:
    """Of the restored network weights are those of the integer one, and its numbers those of the first float one."""
    families.write(tmp_path, families.make(family, seed=SEED, head_dim=24, layers=2, vocab=VOCAB))
    windows = np.random.default_rng(1).integers(0, VOCAB, (6, 32))
    options = Options(bits=bits, smooth=False)  # type: ignore[arg-type]
    whole = quantize_network(load_network(tmp_path), windows, options).network
    if any(node.type.zero for node in whole.graph.nodes):  # biases around activation functions give ranges zeros
        with pytest.raises(CompileError, match="ranges have no zeros are restored"):
            restore_network(whole)
        return
    restored = restore_network(whole)
    assert not restored.graph.integer
    wanted, found = _logits(whole, windows[0]), _logits(restored, windows[0])
    error = np.sqrt(((found - wanted) ** 2).mean() / (wanted ** 2).mean())
    assert error < 0.1  # activations are rounded in one of them
    again = restore_network(quantize_network(restored, windows, options).network)
    for name, weight in restored.weights.items():
        if weight.ndim == 2:  # codes of codes: their steps again, but for the clipping point's choice
            assert np.abs(again.weights[name] - weight).max() <= np.abs(weight).max() * (0.01 if bits == 8 else 0.4)


def test_the_default_pair_in_int4() -> None:
    draft = bundled_model("draft", "default").network
    windows = np.random.default_rng(2).integers(2, 1024, (8, 64))
    network = quantize_network(restore_network(draft), windows, Options(bits=4, smooth=False)).network
    linears = [node for node in network.graph.nodes if isinstance(node, Linear)]
    assert {node.bits for node in linears if node.name != network.graph.output} == {4}
    wanted, found = (_logits(one, windows[0]) for one in (draft, network))
    # Heads that look for equal tokens lose more to 4 bits of whole channels than others do.
    assert 0.001 < np.sqrt(((found - wanted) ** 2).mean() / (wanted ** 2).mean()) < 0.6


def test_what_is_not_restored() -> None:
    whole = bundled_model("draft", "small").network
    with pytest.raises(CompileError, match="quantised without telling its scales: import its checkpoint again"):
        restore_network(whole)
    with pytest.raises(CompileError, match="only a network in integers is restored, not one in float"):
        restore_network(restore_network(bundled_model("draft", "default").network))
