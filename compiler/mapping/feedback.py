"""Feedback-driven search: a tree-structured Parzen estimator (Optuna) proposes, the cost of each point teaches it.

Where it proposes what is known already, a neighbour of the best point is proposed instead: one axis has another value.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.mapping.mapper import Choice, Run, Spent

__all__ = ["search"]

MOST = 96
"""Points that are costed where nobody says how many."""
ASKED = 8
"""Proposals for each of them at most: some are known, or hopeless by their bound."""
SEED = 1


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
    axes, chance, best, worst = run.space.axes, random.Random(SEED), dict[str, int](), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sampler of joint choices is marked experimental
        sampler = optuna.samplers.TPESampler(seed=SEED, multivariate=True, n_startup_trials=max(8, most // 4))
        study = optuna.create_study(sampler=sampler)
        for _ in range(ASKED * most):
            if run.fitting >= most:
                raise Spent
            trial = study.ask()
            at = {name: _suggest(trial, name, values) for name, values in axes.items()}
            point = run.space.near(_choice(axes, at))
            known = point in run.trials
            cycles = None if point is None or run.hopeless(point) else run.ask(point)
            worst = max(worst, cycles or 0)
            if point is None or cycles is None and point in run.trials:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, worst if cycles is None else cycles)
            if run.best is not None and run.best.point == point:
                best = at
            if best and (known or cycles is None):
                name = chance.choice([name for name, values in axes.items() if len(values) > 1] or list(axes))
                study.enqueue_trial({**best, name: chance.randrange(len(axes[name]))}, skip_if_exists=True)


def _suggest(trial: Any, name: str, values: tuple[int | str, ...]) -> int:
    """A place on an axis: numbers are ordered, names are not."""
    if all(isinstance(value, int) for value in values):
        return int(trial.suggest_int(name, 0, len(values) - 1))
    return int(trial.suggest_categorical(name, range(len(values))))


def _choice(axes: Any, at: dict[str, int]) -> Choice:
    return {name: values[at[name]] for name, values in axes.items()}
