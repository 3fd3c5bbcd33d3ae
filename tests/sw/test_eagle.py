"""The drafter that goes on from its own rows: what it drafts, by the definition, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.config import load_config
from gemmule.sw.decoding.adaptive.adaptive import Adaptive
from gemmule.sw.decoding.adaptive.steps import Steps
from gemmule.sw.decoding.candidates.levels import Candidate, Levels
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods.eagle import Eagle
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.step import Asking, Forward
from tests.sw.test_one_pass import CONFIG, DRAFT, OTHERS, PROMPTS, TARGET, Trained, models, networks, replace, talk


@pytest.fixture(scope="module")
def both() -> tuple[LoadedModel, Trained]:
    return models(kinds=["eagle"])


class Noted(Eagle):
    """Notes what it is answered, and takes the text's own next token for the likeliest or the second one, so that trees
    are accepted in and out of place.
    """

    def __init__(self, trained: Trained, ledger: Ledger, text: list[int], rank: int) -> None:
        drafter = replace(trained["eagle"], model=trained["eagle"].model.charging(ledger))
        super().__init__(drafter, 7, top=3, width=2, depth=6)
        self.text, self.rank = text, rank
        self.ids: list[int] = []
        self.seen: list[tuple[list[int], list[int], list[int]]] = []
        """Text, tokens of a path, and what may follow it."""

    def propose(self, ids: list[int], budget: int) -> Asking[object]:  # type: ignore[override]
        self.ids = ids
        return (yield from super().propose(ids, budget))

    def _pays(self, levels: Levels, paths: list[Candidate]) -> bool:
        return True

    def _behind(self, levels: Levels, path: Candidate | None, out: Forward, place: int) -> None:
        assert out.top is not None
        before = [one.token for one in path.path()] if path else []
        found = self.drafter.tokens[out.top.tokens[place][:3]].tolist()
        self.seen.append(([*self.ids], before, found))
        at = len(self.ids) + len(before)
        others = [token for token in found if token != self.text[at:at + 1]][:2]
        own = self.text[at] if at < len(self.text) and before == self.text[len(self.ids):at] else others[-1]
        others.insert(self.rank, own)
        levels.behind(path, list(dict.fromkeys(others)), [0.5, 0.45, 0.05])


def told(drafter: Network, hidden: dict[str, np.ndarray], ids: list[int], path: list[int]) -> np.ndarray:
    """The likeliest numbers behind a path, by the definition: row after row, each drafted one from the one before."""
    cache, own, last = Cache(drafter.graph), np.zeros((1, 48)), residuals(drafter.graph)[-1]
    text = {name: rows[:len(ids) - 1] for name, rows in hidden.items()}
    parts = [(ids[1:], text), *(([token], dict[str, np.ndarray]()) for token in path)]
    position = 1
    for tokens, beside in parts:
        feed = {node.name: np.zeros((len(tokens), 48)) for node in drafter.graph.nodes if isinstance(node, Borrowed)}
        feed |= beside or {"own": own}
        values: dict[str, np.ndarray] = {}
        logits = IntegerInterpreter(drafter).forward(
            Rows.chain(tokens, position), cache, values.__setitem__, feed=feed)
        own, position = values[last][-1:], position + len(tokens)
    return np.argsort(-logits[-1], kind="stable")[:3]


@pytest.mark.parametrize("rank", [0, 1])
def test_what_it_drafts(both: tuple[LoadedModel, Trained], rank: int) -> None:
    """Behind the text and behind every path of a tree, wherever in the text the step is, whatever was rejected before,
    and wherever in the tree the target has read what was accepted.
    """
    (target, trained), (network, drafters) = both, networks()
    plain, ledger = Ledger(CONFIG), Ledger(CONFIG)
    expected = talk(target, trained, plain, method="ar").turn(PROMPTS[2], 20).tokens
    made = Noted(trained, ledger, [*PROMPTS[2], *expected], rank)
    run = Conversation(target, made, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[2], 20)
    assert run.tokens == expected
    assert max(accepted for _, accepted in run.steps) > 1
    moves = ledger.launches[TARGET] - len(run.steps) - (plain.launches[TARGET] - len(expected))
    assert (moves > 0) == (rank > 0), "accepted candidates behind others are moved together"
    assert max(len(path) for _, path, _ in made.seen) == 3
    names = residuals(network.graph)
    for ids, path, found in made.seen[::2]:
        values: dict[str, np.ndarray] = {}
        IntegerInterpreter(network).forward(Rows.chain(ids[:-1], 1), Cache(network.graph), values.__setitem__)
        hidden = {f"hidden{depth}": values[names[depth]] for depth in (2, 4)}
        assert found == OTHERS[told(drafters["eagle"], hidden, ids, path)].tolist(), (len(ids), path)


def test_a_level_is_a_pass(both: tuple[LoadedModel, Trained]) -> None:
    """A chain of as many tokens as there are passes, while nobody knows that they do not pay."""
    target, trained = both
    for depth in (1, 3):
        ledger = Ledger(CONFIG)
        run = talk(target, trained, ledger, method="eagle", count=7, eagle_top=1, eagle_width=1,
                   eagle_depth=depth).turn([1, 2, 3], 12)
        assert max(drafted for drafted, _ in run.steps) == depth
        assert ledger.launches[DRAFT] <= 1 + depth * len(run.steps)  # one for the prompt


def test_passes_that_do_not_pay_are_left_out(both: tuple[LoadedModel, Trained]) -> None:
    """Random heads find nothing likely; where a pass of the target is dear, more of them are run all the same."""
    target, trained = both
    counts = []
    for step in (1_000, 100_000_000):
        ledger = Ledger(CONFIG)
        made = Eagle(replace(trained["eagle"], model=trained["eagle"].model.charging(ledger)), 7, depth=4,
                     host=CONFIG.host.model_copy(update={"step_cycles": step}))
        run = Conversation(target, made, ledger, kv=target.charging(ledger).kv()).turn([1, 2, 3], 12)
        counts.append(ledger.launches[DRAFT] / len(run.steps))
    assert counts[0] < counts[1]


def test_a_shape_that_is_given(both: tuple[LoadedModel, Trained]) -> None:
    """Each tree has its places, while tokens are left; more ranks or levels than there are passes are refused."""
    target, trained = both
    expected = talk(target, trained, Ledger(CONFIG), method="ar").turn([3, 1, 4], 20)
    found = talk(target, trained, Ledger(CONFIG), method="eagle", count=7, tree="0 1 0,0 0,2 1,1").turn([3, 1, 4], 20)
    assert found.tokens == expected.tokens
    assert {drafted for drafted, _ in found.steps[:3]} == {5}
    for shape, said in (("0 4", "at most 4 candidates behind one path"),
                        (" ".join(",".join("0" * depth) for depth in range(1, 5)), "levels, as the")):
        with pytest.raises(InputError, match=f"--tree must have .*{said}"):
            talk(target, trained, Ledger(CONFIG), method="eagle", count=7, tree=shape, eagle_depth=3)


def test_it_needs_its_cache(both: tuple[LoadedModel, Trained]) -> None:
    target, trained = both
    with pytest.raises(InputError, match="--method eagle goes on from rows of its cache, not with --kv-cache none"):
        talk(target, trained, Ledger(CONFIG), method="eagle", kept=False)


def test_adaptive_verification(both: tuple[LoadedModel, Trained]) -> None:
    """Where steps cost so much that drafting may pay, some draft, and take in what others missed; the text stays."""
    target, trained = both
    expected = talk(target, trained, Ledger(CONFIG), method="ar").turn(PROMPTS[3], 40)
    ledger = Ledger(CONFIG)
    inner = Eagle(replace(trained["eagle"], model=trained["eagle"].model.charging(ledger)), 7, depth=3)
    kv, program = target.charging(ledger).kv(), target.program
    steps = Steps(CostCurve(target), ledger, TARGET, want=GREEDY.want(), rows=program.max_rows,
                  parameters=program.graph.parameters, step=10_000_000, prefix=target.first)
    run = Conversation(target, Adaptive(inner, steps, lambda: kv.sequence), ledger, kv=kv).turn(PROMPTS[3], 40)
    assert run.tokens == expected.tokens
    assert {drafted > 0 for drafted, _ in run.steps} == {False, True}
    assert max(drafted for drafted, _ in run.steps) < 7


@pytest.mark.rtl
@pytest.mark.long  # test_one_pass.py lends rows on the RTL, too
def test_rtl_takes_the_same_cycles() -> None:
    """Eight tokens, with the target's rows lent, own rows left and borrowed."""
    config, runs, ledgers, expected = load_config("tiny"), [], [], list[int]()
    for backend in ("model", "rtl"):
        target, trained = models(config, 4, backend=backend, kinds=["eagle"])
        expected = expected or talk(target, {}, Ledger(config), method="ar").turn(PROMPTS[1], 8).tokens
        ledgers.append(ledger := Ledger(config))
        drafter = Noted(trained, ledger, [*PROMPTS[1], *expected], 1)
        drafter.most = 3
        runs.append(Conversation(target, drafter, ledger, kv=target.charging(ledger).kv()).turn(PROMPTS[1], 8))
        target.device.close()
        assert runs[-1].tokens == expected
    assert runs[0].steps == runs[1].steps
    assert ledgers[0] == ledgers[1]
    assert any(len(path) > 1 for _, path, _ in drafter.seen)
