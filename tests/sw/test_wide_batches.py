"""Batches of more texts than a launch takes: a pass has a launch for each part of them that has rows."""

from __future__ import annotations

from functools import cache

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.asking import together
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import DRAFT, METHODS
from gemmule.sw.decoding.resident import resident
from gemmule.sw.decoding.session import ALIGN, Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.limits import CATEGORIES
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.categories import load_categories
from tests.thinned import of_methods, some

from .test_methods import CONFIG, PROMPTS, SHARING, network, plain, talk

TEXTS, SIZE = 5, 2
"""Of a batch, and of a launch: three launches, the last with one text."""
NEW, SHORT = 6, 16
PAIR = bundled_pair("small")


@cache
def spread(name: str, salt: int, interpreted: bool = False) -> LoadedModel:
    """A model with caches of six sequences, those of a launch further on by its DRAM and more."""
    program = compile_network(network(salt), CONFIG, rows=4, batch=SIZE, tokens=True, general=True)
    dram = program.fill(network(salt))
    further = [len(dram) + 4096, 2 * len(dram) + 8192]
    if interpreted:
        return InterpretedModel(name, network(salt), program, Simulator(CONFIG, dram_bytes=1)).spread(further)
    return LoadedModel(name, program, dram, open_device("model", CONFIG, 4 * len(dram))).spread(further)


def decoded(method: str, interpreted: bool = False) -> tuple[list[Generation], Ledger]:
    """Texts of other lengths."""
    ledger, models = Ledger(CONFIG), (spread(TARGET, 0, interpreted), spread(DRAFT, 1, interpreted))
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(TEXTS + 2)]
    talks = [talk(method, *models, GREEDY.of_text(i), ledger, count=1 + i % 3) for i in range(len(prompts))]
    return together([one.turning(prompt, 7 + 3 * i) for i, (one, prompt) in enumerate(zip(talks, prompts))],
                    (DRAFT, TARGET), TEXTS), ledger


@pytest.mark.parametrize("method", of_methods(
    [name for name in SHARING if not METHODS[name].needs_int4], ("ar", "draft-tree", "chooser")))
def test_every_method(method: str) -> None:
    """Each text is that of its prompt alone; on the device and by the interpreter in as many cycles."""
    runs, ledger = decoded(method)
    for i, run in enumerate(runs):
        assert run.tokens == plain(tuple(PROMPTS[i % len(PROMPTS)]), 7 + 3 * i, "greedy", "stop", i).tokens
    again, other = decoded(method, interpreted=True)
    assert [run.tokens for run in again] == [run.tokens for run in runs]
    assert other == ledger


def test_a_launch_for_each_part_that_has_rows() -> None:
    """Texts that end early leave no launches behind: five texts, three launches, then one for the last text."""
    ledger = Ledger(CONFIG)
    target = spread(TARGET, 0)
    talks = [talk("ar", target, target, GREEDY, ledger) for _ in range(TEXTS)]
    together([one.turning([3, 1], 3 if i < 4 else 8) for i, one in enumerate(talks)], (DRAFT, TARGET), TEXTS)
    prompts = 3
    assert ledger.launches[TARGET] == prompts + 3 * 3 + 5


def test_caches_of_further_texts_stand_apart() -> None:
    """A pass of texts further on leaves the first ones' bytes alone, and fills its own."""
    target = spread(TARGET, 0)
    address, size = target.program.symbols[CACHE]
    assert target.kv_bytes == 3 * size
    before = [target.device.read_dram(address + by, size) for by in target.further]
    caches = [target.kv() for _ in range(SIZE)]
    for number, one in enumerate(caches):
        one.sequence = SIZE + number
    from gemmule.compiler.ir import Rows

    target.forward(Rows.ragged([[1, 2], [3, 4]], [0, 0]), None, caches)
    assert [one.length for one in caches] == [2, 2]
    after = [target.device.read_dram(address + by, size) for by in target.further]
    assert (before[0], before[2]) == (after[0], after[2])
    assert before[1] != after[1]
    with pytest.raises(ValueError, match="rows are copied among the sequences of a launch, not from 2 to 0"):
        target.copy_rows((2, 0), (0, 0), 1)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    known = load_categories()
    return [PAIR.encode(known[name][at].text)[:SHORT] for at in range(7) for name in CATEGORIES][:32]


@pytest.fixture(scope="module")
def alone(prompts: list[list[int]]) -> list[list[int]]:
    with Session(load_config("base"), pair=PAIR, interpreted=True) as session:
        return [session.generate("ar", ids, NEW).tokens for ids in prompts]


@pytest.mark.parametrize("ways", some([[True], [True, False]]))
def test_thirty_two_texts(prompts: list[list[int]], alone: list[list[int]], ways: list[bool]) -> None:
    """By the interpreter, and on the device: the texts of `ar` alone, in the same cycles."""
    ledgers = []
    for interpreted in ways:
        with Session(load_config("base"), pair=PAIR, interpreted=interpreted, batch=32, rows=1) as session:
            assert (session.batch, session.target.program.batch) == (32, 16)
            ledgers.append(Ledger(session.config))
            runs = session.generate_batch("ar", prompts, NEW, ledger=ledgers[-1])
            assert [run.tokens for run in runs] == alone
    assert ledgers[0] == ledgers[-1]


def test_drafts_of_seventeen_texts(prompts: list[list[int]], alone: list[list[int]]) -> None:
    """And with as many as pay; they go in launches of nine."""
    with Session(load_config("base"), pair=PAIR, interpreted=True, batch=17, rows=2) as session:
        assert session.target.program.batch == 9
        told = resident(session)
        assert session.draft
        assert told["batch"] == 18
        assert told["kv_bytes"] == session.target.kv_bytes + session.draft.kv_bytes
        end = session.draft.program.symbols[CACHE][0] + session.draft.further[1] + session.draft.kv_bytes // 2
        assert end <= told["bytes"] < end + 3 * ALIGN
        cycles = {}
        for method, adaptive in (("ar", False), ("draft", False), ("pld", True), ("draft", True)):
            ledger = Ledger(session.config)
            runs = session.generate_batch(method, prompts[:17], NEW, 1 if method != "ar" else None, ledger=ledger,
                                          adaptive=adaptive)
            assert [run.tokens for run in runs] == alone[:17]
            cycles[method, adaptive] = ledger.cycles
        assert max(cycles["pld", True], cycles["draft", True]) < 1.1 * cycles["ar", False]
