"""Where the cache keeps keys and values."""

import pytest

from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.config import load_config
from tests.compiler.integer_networks import Sizes, random_network


@pytest.mark.parametrize("positions", [64, 256, 1024, 1000, 129])
def test_parts_are_apart_and_neighbours_begin_in_different_banks(positions: int) -> None:
    config = load_config("base")
    graph = random_network(Sizes(family="llama", heads=4, kv_heads=2, head_dim=32, layers=3), 1).graph
    layout = KvLayout.of(graph, config, positions)
    begins = [layout.offset(layer, head, part) for layer in range(3) for head in range(2) for part in range(2)]
    assert begins == sorted(begins)
    assert all(b - a >= positions * 32 for a, b in zip(begins, [*begins[1:], layout.size], strict=True))
    banks = [begin // config.dram.row_bytes % config.dram.banks for begin in begins]
    if positions * 32 >= 2 * config.dram.row_bytes:
        assert all(len(set(banks[i:i + 8])) == 8 for i in range(len(banks) - 7))
