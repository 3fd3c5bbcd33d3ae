"""What a checked record refuses, in words: one sentence of value and rule."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from .reading import brief, shown

__all__ = ["first_problem"]

_WANTED = {
    "int_type": "be an integer", "float_type": "be a number", "bool_type": "be true or false",
    "string_type": "be text", "finite_number": "be a finite number", "dict_type": "hold fields of its own",
    "model_type": "hold fields of its own",
}
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le"),
           "greater_than": ("greater than", "gt"), "less_than": ("less than", "lt"),
           "multiple_of": ("a multiple of", "multiple_of")}


def _bound(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def first_problem(error: ValidationError, record: type[BaseModel]) -> tuple[str, str]:
    """(dotted name of the field, the sentence, which has it abbreviated) of what ``record`` refuses first.

    The name is empty for a rule over several fields: the message of the record's own check is the sentence.
    """
    first = error.errors(include_url=False)[0]
    kind, value, context = first["type"], first["input"], first.get("ctx", {})
    where = ".".join(str(part) for part in first["loc"])
    name = brief(where)
    if kind == "value_error":
        return "", brief(str(context["error"]), 400)
    if kind == "missing":
        return where, f"{name} is missing"
    if kind == "extra_forbidden":
        known = list(_part(record, first["loc"]).model_fields)
        near = get_close_matches(str(first["loc"][-1])[:64], known, 1, 0.5)
        if near:
            return where, f"{name}: unknown key; did you mean {near[0]}?"
        return where, f"{name}: unknown key; keys: {', '.join(known)}"
    if kind == "literal_error":
        return where, f"{name} must be {context['expected']}, not {shown(value)}"
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return where, f"{name} must be {word} {_bound(context[key])}, not {shown(value)}"
    if kind in _WANTED:
        return where, f"{name} must {_WANTED[kind]}, not {shown(value)}"
    return where, f"{name}: {brief(first['msg'], 120)}, not {shown(value)}"


def _part(record: type[BaseModel], where: tuple[int | str, ...]) -> type[BaseModel]:
    """The record that holds the last name of ``where``."""
    for part in where[:-1]:
        field = record.model_fields.get(str(part))
        for kind in (field.annotation, *get_args(field.annotation)) if field is not None else ():
            if isinstance(kind, type) and issubclass(kind, BaseModel):  # itself, or what a list is of
                record = kind
    return record
