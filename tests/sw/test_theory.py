"""What drafting should gain, against sums that are counted."""

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.benches.theory import acceptance_by_position, best_length, expected_tokens, theory
from gemmule.sw.decoding.generate import Generation
from gemmule.sw.device.ledger import Ledger


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_expected_tokens(alpha: float, gamma: int) -> None:
    """A bonus, and drafts until the first that is rejected."""
    kept = np.random.default_rng(gamma).random((40_000, gamma)) < alpha
    assert expected_tokens(alpha, gamma) == pytest.approx(1 + kept.cumprod(axis=1).sum(axis=1).mean(), abs=0.03)


def test_acceptance_by_position() -> None:
    assert acceptance_by_position([(3, 3), (3, 1), (2, 0), (3, 0), (0, 0)]) == [0.5, 0.5, 1.0]
    assert acceptance_by_position([(4, 0), (4, 0)]) == [0.0]
    assert acceptance_by_position([(0, 0)]) == []


def _ledger(target: int, draft: int) -> Ledger:
    return Ledger(load_config("base"), device_cycles=target + draft, by_model={"target": target, "draft": draft})


def test_theory_is_reached_where_nothing_is_lost() -> None:
    """Passes of any number of rows cost 1,000, drafts 100: three drafts a step, of which all or none stay."""
    run = Generation(list(range(20)), _ledger(8_000 + 500, 2_400 + 70), [(3, 3)] * 4 + [(3, 0)] * 4)
    run.prefill = _ledger(500, 70)
    reference = Generation(list(range(20)), _ledger(20_000 + 900, 0), [(0, 0)] * 20)
    reference.prefill = _ledger(900, 0)
    found = theory(run, reference)
    assert found is not None
    assert found.draft_cost == pytest.approx(0.1)
    assert found.alpha == 12 / 16
    assert found.speedup == pytest.approx(expected_tokens(0.75, 3) / 1.3)
    assert found.measured == pytest.approx(20 * 1000 / 10_400)
    assert (found.tokens_share, found.cycles_share) == (pytest.approx(2.5 / expected_tokens(0.75, 3)), 1)
    assert found.worst_case == pytest.approx(1.3)
    assert theory(reference, reference) is None


def test_the_best_length() -> None:
    """As by trying each: dear rows, free rows, hopeless drafts."""
    assert best_length([0.9] * 8, 0.05, {1: 1.0, 9: 1.0})[0] == 8
    assert best_length([0.9] * 8, 0.0, {1: 1.0, 4: 1.0, 5: 4.0, 9: 4.0}) == (3, pytest.approx(1 + 0.9 + 0.81 + 0.729))
    assert best_length([0.0, 1.0], 0.5, {1: 1.0}) == (1, pytest.approx(1 / 1.5))
    assert best_length([0.5, 0.5], 0.25, {1: 1.0, 3: 1.5}) == (1, pytest.approx(1.5 / 1.5))
    with pytest.raises(ValueError, match="needs acceptance of a position"):
        best_length([], 0.1, {1: 1.0})
