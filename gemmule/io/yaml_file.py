"""A strict reader for configuration files: the part of YAML that every reader of YAML reads alike.

Mappings of names to integers, ``true`` or ``false``, text, or mappings of the same. What YAML 1.1 and 1.2 read
differently is refused, not guessed: ``010`` (8 or 10), ``1:30`` (90 or text), ``1_000``, ``0x10``, ``yes``, dates.
So is what a configuration does not need and a stranger could misuse: anchors and aliases, tags, merge keys, lists,
several documents, a key twice. The file is read as events, so that nothing grows beyond it. Where a reader asks
for ``lists``, a value may be a list of such values; lists in lists are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml import events
from yaml.resolver import Resolver

from .reading import ReadError, brief, read_regular, shown

__all__ = ["YamlFile", "read_yaml"]

MOST_BYTES = 64 * 1024
MOST_DEPTH = 8
"""Mappings inside mappings."""
MOST_DIGITS = 18
"""Digits of an integer."""
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-f]+|[-+]?\.inf|\.nan",
                     re.IGNORECASE)
"""What YAML 1.2 takes for a number (its core schema); what 1.1 does is asked of PyYAML."""
_SPELLED = re.compile(r"y|n|yes|no|on|off|true|false", re.IGNORECASE)
_EMPTY = re.compile(r"|~|null", re.IGNORECASE)


@dataclass(frozen=True)
class YamlFile:
    """What a file holds. ``lines`` has the line of every key, by its dotted name (``dram.latency``)."""

    values: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)


def read_yaml(path: str | Path, *, lists: bool = False) -> YamlFile:
    """Read a file of at most 64 KiB; with ``lists`` values may be lists, whose entries have lines as ``name.0``.

    Raises:
        ReadError: it cannot be read or is not of the kind above.
    """
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"must be UTF-8 text; byte {error.start} is not") from None
    lines: dict[str, int] = {}
    try:
        stream = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        return YamlFile(_document(stream, lines, lists), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ReadError(f"not YAML: {brief(error.problem or '', 120)}", mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ReadError(f"the character U+{error.character:04X} is not text", line) from None
    except ReadError:
        raise
    except (ValueError, OverflowError):  # PyYAML's scanner, on an escape beyond Unicode or a version of many digits
        raise ReadError("not YAML: an escape or a version is no such thing") from None


def _line(event: events.Event) -> int:
    assert event.start_mark is not None  # every event of a text has one
    return event.start_mark.line + 1


def _refuse(event: events.Event, text: str) -> ReadError:
    return ReadError(text, _line(event))


def _document(stream: Iterator[events.Event], lines: dict[str, int], lists: bool) -> dict[str, Any]:
    """The one mapping of the one document."""
    values: dict[str, Any] | None = None
    for event in stream:
        if isinstance(event, events.DocumentStartEvent) and values is not None:
            raise _refuse(event, "a second document begins; keep one")
        if isinstance(event, events.MappingStartEvent):
            _plain(event)
            values = _mapping(stream, "", lines, 1, lists)
        elif isinstance(event, events.NodeEvent):
            _plain(event)
            what = "a list" if isinstance(event, events.SequenceStartEvent) else shown(getattr(event, "value", ""))
            raise _refuse(event, f"must hold fields, such as dim: 16, not {what}")
    if values is None:
        raise ReadError("must hold fields, such as dim: 16; it is empty")
    return values


def _plain(event: events.NodeEvent) -> None:
    """Refuse what hangs on a node: anchors, aliases, tags."""
    if isinstance(event, events.AliasEvent) or event.anchor is not None:
        raise _refuse(event, f"anchors and aliases (&{shown(event.anchor)[1:-1]}) are not taken: write the value")
    if (tag := getattr(event, "tag", None)) is not None:
        tag = shown(tag.replace("tag:yaml.org,2002:", "!!"))
        raise _refuse(event, f"tags such as {tag} are not taken: write the plain value")


def _mapping(stream: Iterator[events.Event], above: str, lines: dict[str, int], depth: int,
             lists: bool) -> dict[str, Any]:
    """The fields up to the mapping's end."""
    found: dict[str, Any] = {}
    for event in stream:
        if isinstance(event, events.MappingEndEvent):
            break
        assert isinstance(event, events.NodeEvent)
        _plain(event)
        if not isinstance(event, events.ScalarEvent) or not event.value.isidentifier():
            what = shown(event.value) if isinstance(event, events.ScalarEvent) else "a list or mapping"
            raise _refuse(event, f"keys must be field names, not {what}")
        key, name = event.value, f"{above}{event.value}"
        if key in found:
            raise _refuse(event, f"{shown(name)[1:-1]} stands twice, first in line {lines[name]}: keep one")
        lines[name] = _line(event)
        value = next(stream)
        assert isinstance(value, events.NodeEvent)
        _plain(value)
        if not isinstance(value, events.SequenceStartEvent):
            found[key] = _value(value, stream, name, lines, depth, lists)
            continue
        if not lists:
            raise _refuse(value, f"{shown(name)[1:-1]} must be one value, not a list")
        found[key] = []
        for entry in stream:
            if isinstance(entry, events.SequenceEndEvent):
                break
            assert isinstance(entry, events.NodeEvent)
            _plain(entry)
            if isinstance(entry, events.SequenceStartEvent):
                raise _refuse(entry, f"{shown(name)[1:-1]} must be a list of values, not of lists")
            at = f"{name}.{len(found[key])}"
            lines[at] = _line(entry)
            found[key].append(_value(entry, stream, at, lines, depth, lists))
    return found


def _value(event: events.NodeEvent, stream: Iterator[events.Event], name: str, lines: dict[str, int], depth: int,
           lists: bool) -> Any:
    """A mapping or a scalar."""
    if isinstance(event, events.MappingStartEvent):
        if depth == MOST_DEPTH:
            raise _refuse(event, f"fields must be nested at most {MOST_DEPTH} deep")
        return _mapping(stream, f"{name}.", lines, depth + 1, lists)
    assert isinstance(event, events.ScalarEvent)
    return _scalar(event, shown(name)[1:-1])


def _scalar(event: events.ScalarEvent, name: str) -> int | bool | str:
    """The value that YAML 1.1 and 1.2 agree on."""
    text: str = event.value
    if not event.implicit[0]:  # quoted or a block: text as it stands
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise _refuse(event, f"{name} must have at most {MOST_DIGITS} digits, not {len(text):,}")
        return int(text)
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _SPELLED.fullmatch(text):
        raise _refuse(event, f"{name} must be written true or false, not {shown(text)}")
    if _EMPTY.fullmatch(text):
        raise _refuse(event, f"{name} has no value: write one, or leave the line out for the default")
    in_1_1 = Resolver().resolve(yaml.ScalarNode, text, (True, False))
    if in_1_1 != "tag:yaml.org,2002:str" or _NUMBER.fullmatch(text):
        hint = "; put text in quotes" if name == "name" else ""
        raise _refuse(event, f"{name} must be a plain decimal integer, not {shown(text)}{hint}")
    return text
