"""Schedules of encoders from which rows leave, read from YAML; and what choosing rows costs a launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import TokenPruning
from gemmule.isa import CONTROL, Command, SOp, Unit
from gemmule.sim.result import Result
from gemmule.sw.errors import InputError

__all__ = ["load_token_pruning", "token_pruning_of", "top_k_cycles"]


def load_token_pruning(path: Path) -> TokenPruning:
    """A schedule from a YAML file.

    Raises:
        InputError: the file cannot be read, or says something else.
    """
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"--prune {path} cannot be read: {why}") from None
    except yaml.YAMLError as error:
        raise InputError(f"--prune {path} is no YAML: {' '.join(str(error).split())}") from None
    return token_pruning_of(found, f"--prune {path}")


def token_pruning_of(found: Any, where: str) -> TokenPruning:
    """A schedule of what YAML holds.

    Raises:
        InputError: it holds something else.
    """
    names = [field.name for field in fields(TokenPruning)]
    if not isinstance(found, dict) or not isinstance(found.get("layers"), list):
        raise InputError(f"{where} must be keys with a list of layers among them, for an encoder: such as "
                         "`layers: [1.0, 0.7, 0.5]`")
    if unknown := sorted(set(map(str, found)) - set(names)):
        raise InputError(f"{where} has no key {unknown[0]!r}: an encoder's are {', '.join(names)}")
    try:
        return TokenPruning(**found | {"layers": tuple(found["layers"])})
    except CompileError as error:
        raise InputError(f"{where}: {error}") from None


def top_k_cycles(results: Iterable[Result], commands: Sequence[Command]) -> tuple[int, int]:
    """Cycles of TOP_K commands, and those of them in which no command of another unit runs."""
    chooses = np.array([command.unit == Unit.SELECT and command.op == SOp.TOP_K for command in commands])
    others = np.array([command.unit not in (CONTROL, Unit.SELECT) for command in commands])
    every = exposed = 0
    for result in results:
        ran = result.issue >= 0
        begin, end = result.issue[ran], result.finish[ran]
        beside, chosen = others[result.places[ran]], chooses[result.places[ran]]
        for first, last in zip(begin[chosen].tolist(), end[chosen].tolist(), strict=True):
            covered = np.zeros(last - first, dtype=bool)
            for i in np.flatnonzero(beside & (begin < last) & (end > first)):
                covered[max(0, begin[i] - first):max(0, end[i] - first)] = True
            every += last - first
            exposed += int((~covered).sum())
    return every, exposed
