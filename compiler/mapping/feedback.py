"""Feedback-driven search: a tree-structured Parzen estimator (Optuna) proposes, the cost of each point teaches it.

Half of the costs go to its proposals; then come neighbours of the best point, of which one axis has another value, and
when none of them is better, neighbours of two axes and more proposals.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping.mapper import Assignment, Run, Spent

__all__ = ["search"]

MOST = 96
"""Points that are costed where nobody says how many."""
ASKED = 4
"""Proposals of the estimator for each of them at most: some are known, or hopeless by their bound."""
SEED = 1

Places = dict[str, int]
"""A place on each axis."""


def search(run: Run[Any]) -> None:
    """Propose values of the axes until :data:`MOST` points are costed, or hardly anything new is proposed.

    Raises:
        CompileError: the extra is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise CompileError("the search optuna needs the extra search: pip install 'gemmule[search]'") from None
    most = MOST if run.most is None else run.most
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    axes, chance, best, worst = run.space.axes, random.Random(SEED), Places(), 0
    moves: Iterator[Places] = iter(())
    centre = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sampler of joint choices is marked experimental
        sampler = optuna.samplers.TPESampler(seed=SEED, multivariate=True, n_startup_trials=max(8, most // 4))
        study = optuna.create_study(sampler=sampler)
        asked = 0
        while asked < ASKED * most:
            if run.fitting >= most:
                raise Spent
            near = best and (2 * run.fitting >= most or asked >= most)
            if near and (move := next(moves, None)) is not None:
                study.enqueue_trial(move)
            else:
                asked += 1
            trial = study.ask()
            at = {name: _suggest(trial, name, values) for name, values in axes.items()}
            point = run.space.near(_choice(axes, at))
            cycles = None if point is None or run.hopeless(point) else run.ask(point)
            worst = max(worst, cycles or 0)
            if point is None or cycles is None and point in run.trials:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, worst if cycles is None else cycles)
            if run.best is not None and run.best.point == point != centre:
                centre, best, moves = point, at, _neighbours(axes, at, chance)


def _neighbours(axes: Mapping[str, tuple[int | str, ...]], at: Places, chance: random.Random) -> Iterator[Places]:
    """What has another value on one axis, in any order, then on two."""
    for count in (1, 2):
        found = [{**at, **dict(zip(names, places))} for names in combinations(axes, count)
                 for places in product(*(range(len(axes[name])) for name in names))
                 if all(at[name] != place for name, place in zip(names, places))]
        chance.shuffle(found)
        yield from found


def _suggest(trial: Any, name: str, values: tuple[int | str, ...]) -> int:
    """A place on an axis: numbers are ordered, names are not."""
    if all(isinstance(value, int) for value in values):
        return int(trial.suggest_int(name, 0, len(values) - 1))
    return int(trial.suggest_categorical(name, range(len(values))))


def _choice(axes: Mapping[str, tuple[int | str, ...]], at: Places) -> Assignment:
    return {name: values[at[name]] for name, values in axes.items()}
