"""Schedules read from YAML: of encoders, from which rows and heads leave, and of either kind of network."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import HeadPruning, TokenPruning
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning, read_schedule

__all__ = ["load_schedule", "load_token_pruning", "schedule_record", "token_pruning_of"]


def load_schedule(path: Path | None, *, encoder: bool) -> Pruning | TokenPruning | None:
    """The schedule of ``--prune`` for a network: a decoder's cache is pruned, rows leave an encoder.

    Raises:
        InputError: the file cannot be read, or says something else.
    """
    return None if path is None else load_token_pruning(path) if encoder else load_pruning(path)


def schedule_record(pruning: Pruning | TokenPruning | None) -> dict[str, Any] | None:
    """A schedule as ``--json`` has it."""
    if not pruning:
        return None
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(pruning).items()}
    if isinstance(pruning, TokenPruning):
        found["heads"] = list(pruning.heads.layers) if pruning.heads else None
    return found


def load_token_pruning(path: Path) -> TokenPruning:
    """A schedule from a YAML file.

    Raises:
        InputError: the file cannot be read, or says something else.
    """
    return token_pruning_of(read_schedule(path), f"--prune {path}")


def token_pruning_of(found: Any, where: str) -> TokenPruning:
    """A schedule of what YAML holds.

    Raises:
        InputError: it holds something else.
    """
    names = [field.name for field in fields(TokenPruning)]
    lists = [found[name] for name in ("layers", "heads") if name in found] if isinstance(found, dict) else []
    if not lists or not all(isinstance(one, list) for one in lists):
        raise InputError(f"{where} must be keys with a list of layers or of heads among them, for an encoder: such as "
                         "`layers: [1.0, 0.7, 0.5]` or `heads: [12, 8, 6]`")
    if unknown := sorted(set(map(str, found)) - set(names)):
        raise InputError(f"{where} has no key {unknown[0]!r}: an encoder's are {', '.join(names)}")
    try:
        given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                                 for name, value in found.items()}
        if "heads" in given:
            given["heads"] = HeadPruning(layers=given["heads"])
        return TokenPruning(**given)
    except CompileError as error:
        raise InputError(f"{where}: {error}") from None
