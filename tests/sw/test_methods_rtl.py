"""Eight tokens by every method on the Verilog: the text of autoregressive decoding, in the cycles of the model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Network
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.selecting import compile_selection
from gemmule.config import load_config
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from tests.compiler.integer_networks import random_network
from tests.thinned import of_methods

from . import test_methods
from .test_methods import BESIDE, FREE, SEED, SIZES, talk

EDGE = load_config("edge")
PROMPT = [2, 9, 2, 9, 2, 9]
NEW = 8
SHORT = ("draft", "draft-tree", "layerskip", "int4-self", "triforce", "lookahead")
"""One of each kind of launch: chains, trees, first layers, int4 beside, a second cache, rows that are never kept."""


@cache
def _network(salt: int = 0) -> Network:
    """Its heads are as wide as the mesh, which int4 weights want."""
    return random_network(replace(SIZES, head_dim=16), SEED + salt)


@cache
def _model(name: str, salt: int, backend: str) -> LoadedModel:
    made = _network(salt)
    program = compile_network(made, EDGE, rows=8, tokens=True, general=True)
    behind = round_up(len(dram := program.fill(made)), EDGE.dram.banks * EDGE.dram.row_bytes)
    selection = compile_selection(made, program, rows=8, first=2, last=6, base_address=behind)
    dram = np.concatenate([dram, np.zeros(behind + selection.select.size - len(dram), dtype=np.uint8)])
    selection.fill(dram[behind:], made)
    return LoadedModel(name, program, dram, open_device(backend, EDGE, len(dram) + BESIDE), selection=selection)


@pytest.mark.rtl
@pytest.mark.parametrize("method", of_methods(FREE, SHORT))
def test_tokens_and_cycles(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_methods, "network", _network)
    plain = generate(_model(TARGET, 0, "model"), Autoregressive(), PROMPT, NEW, Ledger(EDGE)).tokens
    ledgers, steps = [], []
    for backend in ("model", "rtl"):
        ledgers.append(ledger := Ledger(EDGE))
        run = talk(method, _model(TARGET, 0, backend), _model(DRAFT, 1, backend), GREEDY, ledger).turn(PROMPT, NEW)
        assert run.tokens == plain
        steps.append(run.steps)
    assert steps[0] == steps[1]
    assert ledgers[0] == ledgers[1]
