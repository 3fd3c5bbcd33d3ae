"""Schedules of encoders from which rows leave, read from YAML."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import TokenPruning
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import read_schedule

__all__ = ["load_token_pruning", "token_pruning_of"]


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
    if not isinstance(found, dict) or not isinstance(found.get("layers"), list):
        raise InputError(f"{where} must be keys with a list of layers among them, for an encoder: such as "
                         "`layers: [1.0, 0.7, 0.5]`")
    if unknown := sorted(set(map(str, found)) - set(names)):
        raise InputError(f"{where} has no key {unknown[0]!r}: an encoder's are {', '.join(names)}")
    try:
        return TokenPruning(**found | {"layers": tuple(found["layers"])})
    except CompileError as error:
        raise InputError(f"{where}: {error}") from None
