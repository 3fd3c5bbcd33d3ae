"""The golden listing of a small network's program: a change of any pass shows as a change of commands."""

from __future__ import annotations

import os
from pathlib import Path

from gemmule.compiler import listing
from gemmule.compiler.compile import compile_network
from gemmule.config import load_config
from tests.compiler.integer_networks import Sizes, random_network

GOLDEN = Path(__file__).parent / "golden" / "network.txt"


def test_golden_listing() -> None:
    network = random_network(Sizes(family="llama", hidden=16, inner=32, layers=1, heads=1, kv_heads=1, head_dim=16,
                                   vocab=40, positions=16), 26)
    text = listing(compile_network(network, load_config("base"), rows=2).commands)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "UPDATE_GOLDEN=1 writes the listing anew"
