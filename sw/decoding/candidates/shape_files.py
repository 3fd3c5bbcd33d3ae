"""Shapes of trees that a user gives: paths of ranks, or parents, in a YAML file or as words. Light.

A place is told by ranks on the way to it, from 0: ``0,1`` is the second likeliest candidate behind the likeliest one
(as in Medusa's lists of choices, Cai et al. 2024). A file has one of two fields::

    paths: [0, "0,0", "0,1", 1]
    parents: [0, 1, 1, 0]

``parents`` names for candidate 1, 2, .. the one that it stands behind, 0 being the last token of the text; of siblings
the one with the lower number is the likelier. Both files above have the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmule.sw.decoding.adaptive.shapes import Place
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Range

__all__ = ["Shaped", "shape_text"]

RANKS = Range(0, 99)
_PLACE = r"[0-9]{1,2}(?:,[0-9]{1,2})*"
_WORDS = re.compile(f"{_PLACE}(?: {_PLACE})*")


@dataclass(frozen=True)
class Shaped:
    """An option that gives the shape of a tree: as a file, or as paths in words.

    Attributes:
        most: candidates of a tree at most.
    """

    most: int

    def __str__(self) -> str:
        return f"a YAML file with paths or parents of 1 to {self.most} candidates, or paths such as '0 0,0 0,1 1'"

    def check(self, option: str, value: str) -> str:
        """The shape in words, parents before children: results depend on the shape, not on a file's name.

        Raises:
            InputError: there is no such file, or the shape is no tree.
        """
        return shape_text(self.places(option, value))

    def places(self, option: str, value: str) -> tuple[Place, ...]:
        """Level by level, of siblings the likelier first."""
        if _WORDS.fullmatch(value):
            return self._tree([_place(option, word) for word in value.split(" ")], option)
        from gemmule.io.reading import ReadError, named
        from gemmule.io.yaml_file import read_yaml

        path = Path(value)
        try:
            given = read_yaml(path, lists=True).values
        except ReadError as error:
            raise InputError(f"{option} {named(path, error.line)}: {error}") from None
        return self._of_file(given, f"{option} {named(path)}:")

    def _of_file(self, given: Mapping[str, Any], where: str) -> tuple[Place, ...]:
        if (only := list(given)) not in (["paths"], ["parents"]):
            raise InputError(f"{where} must have paths or parents, one of both, not {', '.join(only) or 'no field'}")
        entries = given[only[0]]
        if not isinstance(entries, list) or not entries:
            raise InputError(f"{where} {only[0]} must be a list of 1 to {self.most} entries, such as {only[0]}: "
                             f"{'[0, 1]' if only == ['paths'] else '[0, 0]'}")
        if only == ["paths"]:
            return self._tree([_place(where, str(entry)) for entry in entries], where)
        return self._tree(_behind(entries, where), where)

    def _tree(self, places: list[Place], where: str) -> tuple[Place, ...]:
        """The places in order.

        Raises:
            InputError: there are too many, one stands twice, or one stands behind none.
        """
        if len(places) > self.most:
            raise InputError(f"{where} must have at most {self.most} candidates (one pass verifies {self.most + 1} "
                             f"rows), not {len(places)}: leave some out")
        known = set(places)
        for number, place in enumerate(places):
            if place in places[:number]:
                raise InputError(f"{where} must name each path once, not {_word(place)} twice: drop one")
            if len(place) > 1 and place[:-1] not in known:
                raise InputError(f"{where} must have the parent {_word(place[:-1])} of {_word(place)}: add it, or drop "
                                 f"{_word(place)}")
        return tuple(sorted(places, key=lambda place: (len(place), place)))


def shape_text(places: Iterable[Place]) -> str:
    """``0 1 0,0`` for the places (0,), (1,) and (0, 0)."""
    return " ".join(map(_word, places))


def _word(place: Place) -> str:
    return ",".join(map(str, place))


def _place(where: str, text: str) -> Place:
    if not re.fullmatch(_PLACE, text):
        from gemmule.io.reading import shown

        raise InputError(f"{where} a path must be ranks from {RANKS.low} to {RANKS.high} with commas between them, "
                         f"such as 0,1, not {shown(text)}")
    return tuple(map(int, text.split(",")))


def _behind(parents: list[Any], where: str) -> list[Place]:
    """The places of candidates 1, 2, .. by the numbers of their parents, which may stand behind them.

    Raises:
        InputError: a parent is none of the candidates, or candidates stand behind each other in a circle.
    """
    ranks: list[int] = []
    for number, parent in enumerate(parents, 1):
        if isinstance(parent, bool) or not isinstance(parent, int) or not 0 <= parent <= len(parents):
            raise InputError(f"{where} the parent of candidate {number} must be from 0 (the last token) to "
                             f"{len(parents)}, not {parent}")
        ranks.append(parents[:number - 1].count(parent))
    places: list[Place] = []
    for number in range(1, len(parents) + 1):
        place, at, seen = list[int](), number, list[int]()
        while at:
            if at in seen:
                circle = ", ".join(map(str, seen[seen.index(at):]))
                raise InputError(f"{where} must lead from every candidate to 0, not in a circle through {circle}: give "
                                 "one of them another parent")
            seen.append(at)
            place.insert(0, ranks[at - 1])
            at = parents[at - 1]
        places.append(tuple(place))
    return places
