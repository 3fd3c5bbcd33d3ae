"""The forty older requests of `sw/prompts/requests.json`, which nothing was chosen by, in the model's chat template.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.smollm2.model import source
from gemmule.sw.prompts.requests import first_requests
from gemmule.sw.text.chat import Template

__all__ = ["Asked", "asked"]


@dataclass(frozen=True)
class Asked:
    """A request."""

    category: str
    name: str
    text: str
    ids: tuple[int, ...]
    """In the chat template, up to where the answer begins."""


def asked() -> list[Asked]:
    """All forty."""
    read = source()
    if read.chat is None:
        raise SystemExit("requests need a model with a chat template")
    template, found = Template(read.chat, "the model"), []
    for category, prompts in first_requests().items():
        for prompt in prompts:
            whole = template.render([{"role": "user", "content": prompt.text}])
            ids = read.tokenizer.encode(whole, add_special_tokens=False).ids
            found.append(Asked(category, prompt.name, prompt.text, tuple(ids)))
    return found
