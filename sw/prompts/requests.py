"""What people ask of a chat model: 140 requests, twenty of a kind, that `gemmule bench` puts through its chat template.

=========== ===================================================================================================
code        write, explain or mend code
chat        questions, advice, small texts; nothing is given
grounded    a text of 60 to 150 words, and what to do with it: answer from it, make a list of it, shorten it
rewrite     a text or code that comes back almost as it is
summary     a text of 60 to 150 words, to be told in a few sentences
translation into English, French, German, Spanish, Italian, or from them, Dutch or Portuguese
reasoning   sums, puzzles and conclusions, with an explanation
=========== ===================================================================================================

They are the categories of SPEED-Bench that text without restrictions of use can fill. All were written before any of
them was decoded, and none of them calibrates. The first ten of the first four kinds are older than the others: what
trained drafters are judged by, and what other results refer to (:func:`first_requests`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.sw.limits import REQUESTS
from gemmule.sw.prompts.choose import Prompt, digest

__all__ = ["FILE", "first_requests", "load_requests"]

FILE = Path(__file__).with_name("requests.json")
FIRST, FIRST_OF_A_KIND = REQUESTS[:4], 10
"""Kinds of the older requests, and how many of each."""


def load_requests() -> dict[str, list[Prompt]]:
    """Requests by category.

    Raises:
        ValueError: the texts are not those that their sha256 is of.
    """
    record: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    found = {name: [Prompt(**fields) for fields in record["prompts"][name]] for name in REQUESTS}
    every = [prompt for prompts in found.values() for prompt in prompts]
    if digest(every) != record["sha256"]:
        raise ValueError(f"{FILE.name}: the texts' sha256 must be {record['sha256']}, not {digest(every)}")
    return found


def first_requests() -> dict[str, list[Prompt]]:
    """The forty older ones by category."""
    found = load_requests()
    return {name: found[name][:FIRST_OF_A_KIND] for name in FIRST}
