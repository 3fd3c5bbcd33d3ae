"""Quality of the default pair: text and tables of docs/models.md, from the results of measure.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from gemmule.sw.reports.markdown import table
from gemmule.sw.training.measure import METHODS
from gemmule.sw.training.networks.trained import INT4_GROUP
from gemmule.sw.training.yardstick import CONTEXT

__all__ = ["quality_of"]


def quality_of(found: dict[str, Any]) -> str:
    """Bits per byte, by file and by position; repetition, acceptance, exits, copies: of these what is measured.

    ``found`` is what measure.py writes.
    """
    own = found["context"]
    held = f"target, int8, held_out, {CONTEXT}", f"target, int8, held_out, {own}"
    int4 = tuple(f"target, int4 {method}, held_out, {CONTEXT}" for method in METHODS)
    telling: tuple[tuple[tuple[str, ...], Callable[[dict[str, Any]], list[str]]], ...] = (
        ((), _lengths), ((f"target, float, held_out, {CONTEXT}", *int4), _int4), (held[:1], _files),
        (held[1:], _places), (("texts",), _texts), (("exits",), _exits), (("copies",), _copies))
    parts = [part for needed, tell in telling if found.keys() >= set(needed) for part in tell(found)]
    if any(not found.keys() >= set(needed) for needed, _ in telling):
        parts.append("The missing parts are not measured yet: `make train` continues.")
    return "\n\n".join(parts)


def _row(head: list[Any], row: list[str]) -> str:
    return table(tuple(head), [tuple(row)])


def _lengths(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, title in (("held_out", "held-out library"), ("second", "second set")):
        for window in (CONTEXT, found["context"]):
            exact = found.get(f"target, float, {name}, {window}")
            integer = found.get(f"target, int8, {name}, {window}")
            if one := exact or integer:
                told = [f"{each['bits_per_byte']:.4f}" if each else "-" for each in (exact, integer)]
                over = f"{integer['bits_per_byte'] / exact['bits_per_byte'] - 1:+.2%}" if exact and integer else "-"
                rows.append((title, f"{window:,}", told[0], f"{one['mean_of_files']:.4f}", told[1], over))
    return [table(("text", "window", "float", "mean of files", "int8", "int8 over float"), rows)]


def _int4(found: dict[str, Any]) -> list[str]:
    exact = found[f"target, float, held_out, {CONTEXT}"]["bits_per_byte"]
    told = ", ".join(f"{length:.4f} ({length / exact - 1:+.2%}) {method}" for method in METHODS
                     for length in [found[f"target, int4 {method}, held_out, {CONTEXT}"]["bits_per_byte"]])
    return [f"With int4 weights in groups of {INT4_GROUP}, on windows of {CONTEXT} of the held-out library: {told}."]


def _files(found: dict[str, Any]) -> list[str]:
    windows = {window: found[name]["files"] for window in (CONTEXT, found["context"])
               if (name := f"target, int8, held_out, {window}") in found}
    return ["Bits per byte of the int8 target, file by file:", table(
        ("file", *(f"windows of {window:,}" for window in windows)),
        [(path, *(f"{files[path]:.3f}" for files in windows.values())) for path in windows[CONTEXT]])]


def _places(found: dict[str, Any]) -> list[str]:
    bins = found[f"target, int8, held_out, {found['context']}"]["nats_by_position"]
    return ["Loss by position in a window of the target's own context, in nats per token (int8, held-out library):",
            _row([f"{first}-{end - 1}" for first, end, _ in bins], [f"{nats:.3f}" for *_, nats in bins])]


def _texts(found: dict[str, Any]) -> list[str]:
    texts = found["texts"]
    places = texts["acceptance"]["8"]
    return [
        f"Greedy continuations of {texts['new_tokens']} tokens for {texts['prompts']} held-out prompts "
        f"([prompts](../sw/prompts/completion.json)): the median share of distinct 4-grams is "
        f"{texts['distinct_4grams_median']:.0%}, the minimum {min(texts['distinct_4grams']):.0%}, the mean "
        f"{statistics.mean(texts['distinct_4grams']):.0%}. The draft predicts {texts['agreement']:.1%} of all their "
        "tokens. By position in a step of 8 drafts, given that all earlier ones are accepted:",
        _row(list(range(1, len(places) + 1)), [f"{one:.1%}" for one in places])]


def _exits(found: dict[str, Any]) -> list[str]:
    exits = found["exits"]["agreement"]
    return [f"Early exits: share of held-out tokens ({found['exits']['windows']} windows of {CONTEXT}) at which the "
            "exit after a layer has the same best token as the last layer:",
            _row(list(range(1, len(exits) + 1)), [f"{one:.1%}" for one in exits])]


def _copies(found: dict[str, Any]) -> list[str]:
    copied = found["copies"]
    return [f"Copies: asked by a signature with 0 to 3 changed names, the model reproduces {copied['reproduced']} of "
            f"{copied['functions']} held-out functions with a similarity of {copied['like']} or more "
            "([functions](../sw/prompts/copies.json); similarity is 1 - edit distance / length, in tokens)."]
