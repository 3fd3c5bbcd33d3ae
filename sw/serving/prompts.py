"""Bundled prompts as requests to serve: by name, or the first ones of several categories in turn."""

from __future__ import annotations

from collections.abc import Sequence

from gemmule.sw.errors import InputError
from gemmule.sw.limits import REQUESTS
from gemmule.sw.models.pair import Pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.prompts.choose import Prompt
from gemmule.sw.prompts.requests import load_requests
from gemmule.sw.text.chat import Template

__all__ = ["Prompts"]

MOST_TOKENS = 96
"""Of a prompt to complete, as `gemmule bench` takes it."""


class Prompts:
    """Bundled prompts and their tokens for one model: requests go through its chat template."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.template = Template(pair.chat, pair.name) if pair.chat else None
        self.known = {category: prompts for category, prompts in (load_categories() | load_requests()).items()
                      if self.template or category not in REQUESTS}

    def ids(self, category: str, prompt: Prompt) -> list[int]:
        """Tokens."""
        if category in REQUESTS and self.template:
            return self.pair.plain(self.template.render([{"role": "user", "content": prompt.text}]))
        return self.pair.encode(prompt.text)[:MOST_TOKENS if category == "completion" else None]

    def named(self, name: str) -> list[int] | None:
        """Tokens of a prompt by its name; None: there is no such, or it needs a chat template."""
        return next((self.ids(category, prompt) for category, prompts in self.known.items() for prompt in prompts
                     if prompt.name == name), None)

    def first(self, categories: Sequence[str] | None, count: int) -> list[tuple[str, list[int]]]:
        """The first prompts of categories in turn; None: all requests, or completions without a chat template.

        Raises:
            InputError: a category needs a chat template, or there are too few prompts.
        """
        names = categories or (REQUESTS if self.template else ("completion",))
        if missing := [name for name in names if name not in self.known]:
            raise InputError(f"--category {missing[0]} needs a model with a chat template, such as smollm2, not "
                             f"{self.pair.name}: take {', '.join(self.known)}")
        most = max(len(self.known[name]) for name in names)
        every = [(name, self.known[name][at]) for at in range(most) for name in names if at < len(self.known[name])]
        if count > len(every):
            raise InputError(f"--requests must be at most {len(every)}, the prompts of {', '.join(names)}, not {count}")
        return [(prompt.name, self.ids(name, prompt)) for name, prompt in every[:count]]
