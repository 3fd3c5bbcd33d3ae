"""How many candidates are worth their rows."""

from __future__ import annotations

from gemmule.sw.decoding.adaptive.worth import CONTEXTS, UNSEEN, Worth, falling
from gemmule.sw.decoding.candidates.branches import Branches, grow


def made(count: int) -> Branches:
    """A binary tree whose second branches are a third as likely as the first ones."""
    return grow(7, count, 0, lambda depth: [(2 * depth, 0.6, depth + 1), (2 * depth + 1, 0.2, depth + 1)])


def test_costs_lie_on_lines_between_those_seen() -> None:
    worth = Worth(launch=10, step=0)
    worth.take(4, 90)
    assert [worth.cost(rows) for rows in (1, 4)] == [100, 100]
    assert worth.cost(6) == 100 * (1 + 2 * UNSEEN)
    worth.take(8, 190)
    assert [worth.cost(rows) for rows in (2, 5, 6, 8)] == [100, 125, 150, 200]
    worth.take(6, 98)  # the last one of each counts
    worth.take(6, 110)
    assert worth.cost(6) == 120


def test_costs_that_are_known_beforehand() -> None:
    """By the context's length, in whole steps; what is seen then counts."""
    asked = []

    def costs(tokens: int) -> list[int]:
        asked.append(tokens)
        return [100 + tokens, 101 + tokens, 150 + tokens]

    worth = Worth(10, 0, costs)
    worth.begin(CONTEXTS + 3)
    assert (asked, [worth.cost(rows) for rows in (1, 2, 3)]) == ([CONTEXTS], [164, 165, 214])
    assert worth.count([0.5, 0.02], 0) == 1
    worth.take(3, 156)
    assert worth.count([0.5, 0.02], 0) == 2


def test_the_number_with_the_most_tokens_a_cycle() -> None:
    """Against every number, for rows that are free up to some and then dear, or cheap throughout."""
    for costs in ({1: 100, 4: 100, 5: 130, 8: 160}, {1: 100, 8: 104}, {1: 100, 2: 190}):
        worth = Worth(launch=0, step=3)
        for rows, cycles in costs.items():
            worth.take(rows, cycles)
        for drafting in (0, 20, 400):
            chances = falling(made(7))
            rates = [(1 + sum(chances[:count])) / (worth.cost(count + 1) + drafting + 3) for count in range(8)]
            best = max(range(8), key=rates.__getitem__)
            assert worth.count(chances, drafting) == best
            assert len(worth.chosen(made, 7, drafting).tree.tokens) == 1 + best
    assert {Worth(0, 0).count([0.9] * 3, 0), Worth(0, 0).count([0.001] * 3, 0)} == {0, 3}, "with nothing seen, too"


def test_nothing_to_choose_from() -> None:
    assert Worth(1, 1).chosen(lambda count: grow(7, count, 0, lambda place: []), 5, 100).tree.tokens == [7]
