"""What a method of decoding is: its name, its option, and how its drafter is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmule.config import Host
from gemmule.sw.decoding.lengths import Lengths
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.runtime import LoadedModel

__all__ = ["HUGGING_FACE", "Lookup", "Method", "Request"]


@dataclass(frozen=True)
class Lookup:
    """How prompt lookup finds what may come next.

    Attributes:
        form: of :data:`gemmule.sw.decoding.methods.pld.FORMS`.
        most_ngram: tokens that are looked for first; then fewer.
    """

    form: str = "huggingface"
    most_ngram: int = 3


HUGGING_FACE = Lookup()


@dataclass(frozen=True)
class Request:
    """What a drafter may be made of.

    Attributes:
        draft: a smaller model with the target's tokens, whose launches are charged; None where there is none.
        lengths: how many tokens are drafted a step.
        ends: tokens that end a text.
        rule: how tokens are chosen.
        host: what the host's work costs.
        lookup: how prompt lookup searches the text.
        kept: whether KV caches keep their rows from pass to pass.
    """

    draft: LoadedModel | None
    lengths: Lengths
    ends: frozenset[int]
    rule: Rule = GREEDY
    host: Host = Host()
    lookup: Lookup = HUGGING_FACE
    kept: bool = True


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to propose tokens.

    Attributes:
        name: of ``--method``.
        make: a new drafter for a text. Raises InputError: what it needs is not there.
        option: the option that says how many tokens are drafted a step; None: none are.
        num_tokens: where the option is not given, if the target takes as many rows.
    """

    name: str
    make: Callable[[Request], Drafter]
    option: str | None
    num_tokens: int
