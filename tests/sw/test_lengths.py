"""Schedules of draft lengths: what they choose, and that they change no text."""

from fractions import Fraction

import numpy as np
import pytest

from gemmule.config import Host, load_config
from gemmule.sw import limits
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.lengths import LENGTHS, Confidence, Costs, Expected, Heuristic, OfBatch
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.bundled_models import encode

from .test_sampling import Law, hashed

SAMPLED = Match(Sampling(0.8, 12, Fraction(9, 10)), Noise(3))


def test_costs_between_what_was_seen() -> None:
    costs = Costs({1: 100, 3: 120, 9: 180})
    assert [costs.of(rows) for rows in (1, 2, 3, 6, 9, 16)] == [100, 110, 120, 150, 180, 180]
    assert Costs({4: 50}).of(1) == 50
    assert Costs().of(3) == 1


def test_heuristic() -> None:
    lengths, costs = Heuristic(9), Costs()
    seen = []
    for drafted, accepted in ((5, 5), (7, 7), (9, 9), (9, 2), (8, 0), (7, 7), (0, 0)):
        seen.append(lengths.most())
        lengths.observe(drafted, accepted, costs)
    assert [*seen, lengths.most()] == [5, 7, 9, 9, 8, 7, 9, 9]
    low = Heuristic(1)
    low.observe(1, 0, costs)
    assert low.most() == 1


def test_a_length_of_the_batch() -> None:
    """Algorithm 1 of BASS by hand, with what the texts of each step accepted; a text at its end does not count."""
    lengths, costs, seen = OfBatch(9), Costs(), []
    for accepted in ([7, 2], [3, 1], [8], [0], [0, 0], [5, 4], [5]):
        drafted = lengths.most()
        seen.append(drafted)
        assert lengths.most() == drafted, "the same for all texts of a step"
        for count in accepted:
            lengths.observe(drafted, count, costs)
        lengths.observe(drafted - 1, drafted - 1, costs)
    assert [*seen, lengths.most()] == [7, 9, 8, 9, 8, 6, 5, 7]
    low = OfBatch(1)
    low.observe(1, 0, costs)
    assert low.most() == 1


def test_confidence_ends_behind_the_token() -> None:
    lengths = Confidence(5)
    assert [lengths.goes_on(share) for share in (1.0, 0.4, 0.39)] == [True, True, False]


@pytest.mark.parametrize(("alpha", "draft", "wanted"), [
    (0.95, 10, (8, 8)), (0.3, 300, (1, 1)), (0.6, 100, (2, 3)), (0.6, 10, (4, 7)), (0.02, 10, (1, 1))])
def test_cost_finds_the_best_length(alpha: float, draft: int, wanted: tuple[int, int]) -> None:
    """Passes of the target take 1,000 cycles whatever their rows are: the best number can be worked out."""
    random, lengths = np.random.default_rng(1), Expected(8)
    costs = Costs({1: 1000, 9: 1000}, draft)
    for _ in range(300):
        drafted = lengths.most()
        kept = random.random(drafted) < alpha
        lengths.observe(drafted, int(kept.cumprod().sum()), costs)
    best = max(range(1, 9), key=lambda n: sum(alpha ** i for i in range(n + 1)) / (1000 + n * draft))
    assert wanted[0] <= best <= wanted[1]
    assert abs(lengths.most() - best) <= 2


@pytest.mark.parametrize("name", limits.LENGTHS)
@pytest.mark.parametrize("rule", [GREEDY, SAMPLED])
def test_no_schedule_changes_the_text(name: str, rule: Rule) -> None:
    assert tuple(LENGTHS) == limits.LENGTHS
    expected = generate(Law(hashed(0, 16, 900)), Autoregressive(), [3, 1, 4], 40, Ledger(load_config("tiny")),
                        rule=rule)
    draft = DraftModel(Law(hashed(5, 16, 900, 4)), LENGTHS[name](7), rule, Host())
    for drafter in (draft, PromptLookup(LENGTHS[name](7), frozenset(), Host())):
        run = generate(Law(hashed(0, 16, 900)), drafter, [3, 1, 4], 40, Ledger(load_config("tiny")), rule=rule)
        assert run.tokens == expected.tokens
    drafted = {count for count, _ in run.steps}
    assert max(drafted) <= 7
    assert draft.costs.verify


def test_schedules_on_the_device() -> None:
    """Confidence takes the logits of the draft; the text stays. Those of the small pair have no scale: all are sure."""
    ids = encode("import os\n")
    with Session(load_config("base"), general=True) as session:
        expected = session.generate("ar", ids, 16)
        for name in ("confidence", "cost"):
            run = session.generate("draft", ids, 16, 5, lengths=name)
            assert run.tokens == expected.tokens
            assert (min(drafted for drafted, _ in run.steps[:-1]) < 5) == (name == "cost")
