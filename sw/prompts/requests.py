"""What people ask of a chat model: 40 requests, ten of a kind, that `gemmule bench` puts through its chat template.

======== ======================================================================================================
code     write, explain or mend code
chat     questions, advice, small texts; nothing is given
grounded a text of 60 to 150 words, and what to do with it: summarise it, answer from it, make a list of it
rewrite  a text or code that comes back almost as it is
======== ======================================================================================================

They were written before any of them was decoded, and none of them calibrates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.sw.limits import REQUESTS
from gemmule.sw.prompts.choose import Prompt, digest

__all__ = ["FILE", "load_requests"]

FILE = Path(__file__).with_name("requests.json")


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
