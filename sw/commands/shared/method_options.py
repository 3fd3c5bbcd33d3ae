"""Options that methods of decoding declare, as options of a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from gemmule.sw.decoding.candidates.shape_files import Shaped
from gemmule.sw.decoding.methods import METHODS, Method, Option, of_option
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Listed, Several, either

__all__ = ["check_options", "drafts_of", "own_options", "with_method_options"]

PLACE = "method_options"
"""The command's parameter in whose place the options stand; it gets those that are given, by name."""
WORDS = {Listed: "N,..", Several: "D,..", Shaped: "FILE"}
"""In help, of values that are no number."""


def _declared(without: tuple[str, ...]) -> dict[str, Option]:
    """Every option by its name, of the methods in their order."""
    found: dict[str, Option] = {}
    for method in METHODS.values():
        for option in method.every_option():
            if option.name not in without:
                found.setdefault(option.name, option)
    return found


def _default(option: Option) -> str:
    """Of each method that has the option; said once where it is the same for all."""
    words = {method.name: one.otherwise or str(one.default) for method in METHODS.values()
             for one in method.every_option() if one.name == option.name}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{word} with {name}" for name, word in words.items())


def _parameter(option: Option) -> inspect.Parameter:
    limits, methods = option.limits, of_option(option.name)
    text, words = option.help.rstrip("."), limits if isinstance(limits, tuple) else ()
    said = text if words else f"{text}, {limits}"
    one = next((word for kind, word in WORDS.items() if isinstance(limits, kind)), "N")
    made = typer.Option(
        option.name, metavar="|".join(words) or one, show_default=False, autocompletion=lambda: list(words),
        callback=lambda value: value if value is None else option.check(value),
        help=f"{said}; only with --method {', '.join(methods)}. Default: {_default(option)}.")
    return inspect.Parameter(option.key, inspect.Parameter.KEYWORD_ONLY, default=None,
                             annotation=Annotated[option.kind | None, made])


def with_method_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with an option for each that a method declares, but for those named here.

    They stand where the command has the parameter ``method_options``, and reach it there by name.
    """
    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        options = _declared(without)
        signature = inspect.signature(command, eval_str=True)
        if taken := sorted(set(signature.parameters).intersection(option.key for option in options.values())):
            raise InputError(f"options of methods must have other names than the command's own: {', '.join(taken)}")
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += ([_parameter(option) for option in options.values()] if parameter.name == PLACE else
                           [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)])

        @functools.wraps(command)
        def run(**given: Any) -> None:
            found = {name: given.pop(option.key) for name, option in options.items()}
            command(**given, **{PLACE: {name: value for name, value in found.items() if value is not None}})

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorated


def check_options(method: str, given: Mapping[str, Any]) -> None:
    """Refuse options of other methods.

    Raises:
        InputError: one of them is given.
    """
    for name in given:
        if method not in (needed := of_option(name)):
            raise InputError(f"{name} needs --method {either(needed)}, not {method}: drop one of the two"
                             + ", or give --draft-model" * (method == "ar" and "draft" in needed))


def own_options(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options that are given by name, those of a method by key, but for how many tokens are drafted."""
    return {option.key: given[option.name] for option in method.options if option.name in given}


def drafts_of(method: Method, given: Mapping[str, Any]) -> int | None:
    """How many tokens are drafted a step, where that is given."""
    return given.get(method.drafts.name) if method.drafts else None
