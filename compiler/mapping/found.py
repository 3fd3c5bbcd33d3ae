"""What a search found before: from the cache folder, by space, device, search and sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from gemmule.compiler.mapping.mapper import Found, Trial
from gemmule.compiler.sources import sources
from gemmule.config import Config
from gemmule.io.cache import cache_root
from gemmule.io.files import write_atomically
from gemmule.io.progress import say

__all__ = ["FOLDER", "found_before"]

P = TypeVar("P")
FOLDER = "mappings"
"""Of the cache."""


def found_before(config: Config, key: tuple[object, ...], kind: type[P], find: Callable[[], Found[Any]]) -> Found[Any]:
    """What ``find`` gave for the same device, ``key`` and sources, or gives now and is then kept.

    ``kind``: the points' dataclass, of plain values. A damaged entry, or a folder that cannot be written, costs time
    and no more.
    """
    name = hashlib.sha256(sources() + repr((config.sha256, *key)).encode()).hexdigest()[:16]
    path = cache_root() / FOLDER / f"{config.name}-{name}.json"
    before = _read(path, kind)
    if before is not None:
        return before
    found = find()
    try:
        write_atomically(path, json.dumps(_packed(found)))
    except OSError as error:
        say(f"the mapping cannot be kept in {path.parent} ({error.strerror or error})")
    return found


def _packed(found: Found[Any]) -> dict[str, Any]:
    trials = [[list(asdict(trial.point).values()), trial.cycles, trial.why] for trial in found.trials]
    return {**{name: value for name, value in vars(found).items() if name not in ("best", "trials")},
            "best": list(asdict(found.best).values()), "trials": trials}


def _read(path: Path, kind: type[Any]) -> Found[Any] | None:
    """What a file holds, None where there is none or it is damaged."""
    names = [field.name for field in fields(kind)]

    def point(values: list[Any]) -> Any:
        return kind(**dict(zip(names, values, strict=True)))

    try:
        stored = json.loads(path.read_bytes())
        trials = tuple(Trial(point(values), cycles, why) for values, cycles, why in stored.pop("trials"))
        return Found(**{**stored, "best": point(stored["best"]), "trials": trials})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        say(f"the mapping in {path} is damaged: searching again")
        return None
