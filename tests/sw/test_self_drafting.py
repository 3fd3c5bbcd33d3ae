"""Drafting in the target's own cache: layers left out, the int4 copy; which layers, and what cannot be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, layer_part
from gemmule.compiler.programs.beside import compile_in_cache
from gemmule.compiler.quantize.narrow import narrowed
from gemmule.config import load_config
from gemmule.sw.decoding.candidates.chains import SelfDraft
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.kv.text import TextKV
from gemmule.sw.limits import Listed
from gemmule.sw.models.drafting import skipping
from gemmule.sw.models.drafting.skipping import Trial, ranges_without, skipped_layers, trials
from gemmule.sw.models.placed import Placed
from tests.compiler.integer_networks import random_network
from tests.sw.test_cli import run
from tests.sw.test_methods import BESIDE, CONFIG, PROMPTS, SEED, SIZES, int4_copy, model, network, plain

LISTED = Listed(9, "layers")


def test_layers_that_are_left_make_ranges() -> None:
    assert ranges_without((), 4) == [(0, 4)]
    assert ranges_without((0, 3), 4) == [(1, 2)]
    assert ranges_without((1, 2, 4), 6) == [(0, 1), (3, 1), (5, 1)]


def test_parts_of_several_ranges() -> None:
    """All layers in pieces are the network; without one its values are those of the rest, by names."""
    whole, rows = network(), Rows.chain([3, 1, 4, 1, 5])

    def logits(part: object) -> list[list[int]]:
        return IntegerInterpreter(part).forward(rows, Cache(part.graph)).tolist()  # type: ignore[arg-type, attr-defined]

    assert logits(layer_part(whole, (0, 1), (1, 2))) == logits(whole)
    assert logits(layer_part(whole, (0, 1), (2, 1))) != logits(whole)
    assert logits(layer_part(whole, (1, 2))) == logits(layer_part(whole, (1, 1), (2, 1)))
    with pytest.raises(CompileError, match="layers must lie within 2 to 3, not 1 to 2"):
        layer_part(whole, (0, 2), (1, 1))


@pytest.mark.parametrize("skipped", [(1,), (0, 2), (2,)])
def test_drafts_are_those_of_the_layers_that_are_left(skipped: tuple[int, ...]) -> None:
    """On the device, behind the target's rows: what is drafted is what the part says behind the same cache."""
    target, ledger = model(), Ledger(CONFIG)
    kv = target.charging(ledger).kv()
    ranges = ranges_without(skipped, SIZES.layers)
    drafter = SelfDraft(target.charging(ledger, DRAFT), kv, 3, GREEDY, layers=ranges)
    part, whole = layer_part(network(), *ranges), network()

    class Noted(SelfDraft):
        def propose(self, ids, budget):  # type: ignore[no-untyped-def]
            tree = yield from drafter.propose(ids, budget)
            cache, interpreter = Cache(whole.graph), IntegerInterpreter(part)
            IntegerInterpreter(whole).forward(Rows.chain(ids[:-1]), cache)
            mine = Cache(part.graph)
            mine.begin_with(cache, 0)
            said = [ids[-1]]
            for at in range(len(ids) - 1, len(ids) - 1 + len(tree.tokens) - 1):
                said.append(int(interpreter.forward(Rows.chain([said[-1]], at), mine).argmax()))
            assert tree.tokens == said
            return tree

    noted = Noted(target, kv, 3, GREEDY)
    run_ = Conversation(target, noted, ledger, kv=kv).turn(PROMPTS[0], 20)
    assert run_.tokens == plain(tuple(PROMPTS[0]), 20, "greedy", "stop").tokens
    assert ledger.launches[DRAFT] == len(ranges) * run_.drafted


def test_the_int4_copy_drafts_behind_the_rows_of_the_target() -> None:
    """Not behind its own: caches differ in values, and a rejected draft leaves nothing."""
    target, ledger = model(), Ledger(CONFIG)
    copied = int4_copy(target)
    assert copied is not None
    assert not copied.program.own_cache
    kv, narrow = target.charging(ledger).kv(), narrowed(network())
    drafter = SelfDraft(copied.charging(ledger), kv, 2, GREEDY)
    made = Conversation(target, drafter, ledger, kv=kv)
    for new in (7, 9):
        run_ = made.turn([5, 2], new)
        text = made.window
        cache, own = Cache(network().graph), Cache(narrow.graph)
        IntegerInterpreter(network()).forward(Rows.chain(text[:-1]), cache)
        own.begin_with(cache, 0)
        expected = IntegerInterpreter(narrow).forward(Rows.chain(text[-1:], len(text) - 1), own).argmax()
        asked = kv.borrow(copied).chain(text, GREEDY.want(1))
        question = next(asked)
        assert len(question.rows) == 1, "the prompt is the target's own work"
        assert copied.forward(question.rows, question.want, question.kv).argmax == [expected]
        assert any(accepted < drafted for drafted, accepted in run_.steps)


def test_a_cache_is_shared_by_networks_that_are_alike() -> None:
    program = model().program
    other = random_network(replace(SIZES, kv_heads=4), SEED)
    with pytest.raises(CompileError, match="shared by networks with the same attentions and scales"):
        compile_in_cache(other, program, rows=1, base_address=BESIDE)


# -- the search

def test_the_search_takes_the_layer_that_changes_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agreement and cycles are counted by hand; the best set is kept, and found anew where the file is damaged."""
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path))
    config = load_config("edge")
    program = compile_network(network(), config, rows=4, tokens=True, general=True)
    placed = Placed(network(), program, np.zeros(1, dtype=np.uint8))
    texts = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8]]
    found = list(trials(placed, texts))
    assert [len(trial.skipped) for trial in found] == [1, 2]
    assert set(found[0].skipped) < set(found[1].skipped)

    def agreement(skipped: tuple[int, ...]) -> float:
        part, same = layer_part(network(), *ranges_without(skipped, 3)), []
        for text in texts:
            said = [IntegerInterpreter(one).forward(Rows.chain(text), Cache(one.graph)).argmax(1)
                    for one in (network(), part)]
            same += (said[0] == said[1]).tolist()
        return sum(same) / len(same)

    assert found[0].agreement == max(agreement((layer,)) for layer in range(3)) == agreement(found[0].skipped)
    assert found[1].cost < found[0].cost < 1.3
    for trial in found:
        share, cost = trial.agreement, trial.cost
        assert trial.speedup == max(sum(share ** i for i in range(n + 1)) / (n * cost + 1) for n in range(1, 8))
    best = max(found, key=lambda trial: trial.speedup)
    assert skipped_layers(placed, "mine", texts) == best.skipped
    (path,) = (tmp_path / skipping.FOLDER).iterdir()
    monkeypatch.setattr(skipping, "trials", lambda *_: iter([Trial(
        skipped=(2,), agreement=1.0, cost=0.1, drafts=7, speedup=9.0)]))
    assert skipped_layers(placed, "mine", texts) == best.skipped
    path.write_text("{}", encoding="utf-8")
    assert skipped_layers(placed, "mine", texts) == (2,)
    assert json.loads(path.read_text(encoding="utf-8"))["skipped"] == [2]


def test_the_search_for_a_batch() -> None:
    """The same layers as of one text; costs are those of the batch's passes."""
    config, texts = load_config("edge"), [[3, 1, 4, 1, 5, 9, 2, 6]]
    first = [next(trials(Placed(network(), compile_network(network(), config, rows=4, batch=batch, tokens=True,
                                                           general=True), np.zeros(1, dtype=np.uint8)), texts))
             for batch in (1, 2)]
    assert first[0].skipped == first[1].skipped
    assert first[0].agreement == first[1].agreement
    assert 0 < first[1].cost < 1.3


def test_many_layers_are_searched_in_so_many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All once, then the best of them alone; progress counts each. With more passes all are tried in every step."""
    sizes = replace(SIZES, layers=9, hidden=24, inner=24, head_dim=8)
    deep, config, seen = random_network(sizes, SEED), load_config("edge"), list[int]()
    placed = Placed(deep, compile_network(deep, config, rows=2, tokens=True, general=True), np.zeros(1, dtype=np.uint8))

    def counted(network: Network, *ranges: tuple[int, int]) -> Network:
        seen.append(sum(count for _, count in ranges))
        return layer_part(network, *ranges)

    monkeypatch.setattr(skipping, "layer_part", counted)
    monkeypatch.setattr(skipping, "PATIENCE", 99)
    text, told = [[3, 1, 4, 1, 5, 9, 2, 6]], list[int]()
    by_passes: dict[int, list[Trial]] = {}
    for passes, tried in ((20, [9, 1, 1, 1, 1, 1, 1, 1]), (64, [9, 8, 7, 6, 5, 4, 3, 2])):
        monkeypatch.setattr(skipping, "MOST_TRIED", passes)
        seen.clear()
        told.clear()
        by_passes[passes] = list(trials(placed, text, lambda done, note: told.append(done)))
        counts = Counter(seen)
        assert [counts[8 - size] for size in range(len(by_passes[passes]))] == tried
        assert told == [*range(1, len(seen) + 1)]
        assert len(told) <= skipping._most_tried(9)
    assert by_passes[20][0] == by_passes[64][0]


# -- what cannot be

@pytest.mark.parametrize(("value", "numbers"), [("3", (3,)), ("0,2-4", (0, 2, 3, 4)), ("4, 1-2,2", (1, 2, 4))])
def test_lists_of_numbers(value: str, numbers: tuple[int, ...]) -> None:
    assert LISTED.numbers("--x", value) == numbers


@pytest.mark.parametrize("value", ["", "a", "4-2", "10", "1,,2", "-1", "1-"])
def test_lists_that_are_none(value: str) -> None:
    with pytest.raises(InputError, match="--x must be numbers of layers from 0 to 9, such as 3,7-9, not "):
        LISTED.check("--x", value)


@pytest.mark.parametrize(("arguments", "message"), [
    (("self", "--skip-layers", "0-9"), "--skip-layers must name 1 to 5 of the layers 0 to 5, not 0,1,2,3,4,5,6,7,8,9"),
    (("self", "--skip-layers", "8"), "--skip-layers must name 1 to 5 of the layers 0 to 5, not 8"),
    (("self", "--skip-layers", "x"), "--skip-layers must be numbers of layers from 0 to 1,023, such as 3,7-9, not 'x'"),
    (("self", "--skip-layers", "1", "--kv-cache", "none"), "--kv-cache none keeps no rows to draft behind"),
    (("int4-self", "--kv-cache", "none"), "--kv-cache none keeps no rows for the int4 copy"),
    (("int4-self", "--weights", "int4"),
     "needs a target with int8 weights, which drafts in int4: small has int4 ones")])
def test_refusals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
                  message: str) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--max-new-tokens", "2", "--method", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_borrowed_cache_notices_that_another_text_is_in_it() -> None:
    """The copy and the target share who has the rows."""
    target = model()
    copied = int4_copy(target)
    assert copied is not None
    kv: TextKV = target.kv()
    assert copied.owners is target.owners
    assert kv.borrow(copied).text is kv.text  # type: ignore[attr-defined]
