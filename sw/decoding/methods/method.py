"""What a method of decoding is: what it declares, and the drafter that it makes. Light to import, as methods are.

Command line, bench, JSON, reports and docs follow from the declaration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.candidates.shape_files import Shaped
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Decimals, Listed, Range, Several, check_choice

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.datastore.datastore import Datastore
    from gemmule.sw.decoding.adaptive.shapes import Place
    from gemmule.sw.decoding.exits.reference import Plain
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.trained import TrainedModel
    from gemmule.sw.decoding.tree import Drafter
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.device.costs.cost_curve import CostCurve
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.kv.selected import Chooser
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.models.drafting.exit_heads import ExitHeads
    from gemmule.sw.models.drafting.tuned import Streams

__all__ = ["DRAFT", "TREE", "VOCABULARY", "Method", "Option", "Request", "file_of"]

RESERVED = ("always", "never", "all")
"""Words that `gemmule bench` has for something else."""
DRAFT = "draft"
"""Name under which the passes of a method's own drafting are charged."""


def file_of(name: str) -> str:
    """The file of a method: words of its name joined by _, and one behind a word of Python's own or of its library's.
    """
    return name.replace("-", "_") + "_" * (iskeyword(name) or name == "self")


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a method. Methods that share one declare it alike but for its default.

    Attributes:
        name: on the command line.
        limits: integers or decimals from and to, a list of numbers or of words, the shape of a tree, or words; of
            words the first is the default where none is named.
        default: None: the method finds one (``otherwise`` says which).
        help: what it means, a sentence.
        otherwise: the default in words.
    """

    name: str
    limits: Range | Decimals | Listed | Several | Shaped | tuple[str, ...]
    help: str
    default: float | str | None = None
    otherwise: str = ""

    @property
    def key(self) -> str:
        """In JSON and in :attr:`Request.options`."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def kind(self) -> type[int] | type[float] | type[str]:
        """Of its values."""
        return int if isinstance(self.limits, Range) else float if isinstance(self.limits, Decimals) else str

    def check(self, value: Any) -> Any:
        """``value``.

        Raises:
            InputError: it is out of range.
        """
        limits = self.limits
        return check_choice(self.name, value, limits) if isinstance(limits, tuple) else limits.check(self.name, value)


VOCABULARY = Option(
    name="--draft-vocabulary", limits=Range(16, 1 << 20, "tokens"), otherwise="all tokens",
    help="Tokens that the draft chooses among, the most frequent ones: its logits layer has so many rows.")
"""Of methods whose drafts pay for a head of their own."""
SHAPED = Shaped(15)
"""One pass verifies 16 rows."""
TREE = Option(
    name="--tree", limits=SHAPED, otherwise="the method's own trees",
    help="Shape that every tree gets, such as gemmule tree writes with --out.")
"""Of methods whose candidates behind a path have ranks."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a drafter may be made of.

    Attributes:
        draft: a smaller model with the target's tokens; None where there is none.
        target: the model that verifies, charged as :data:`DRAFT`: for methods that draft with it.
        cache: the target's cache of this text.
        lengths: how many tokens are drafted a step.
        ends: tokens that end a text.
        rule: how tokens are chosen.
        host: what the host's work costs.
        options: values of the method's own options, by key, defaults included.
        kept: whether KV caches keep their rows from pass to pass.
        trained: drafters that were trained on the target's hidden rows, by kind.
        skipping: finds which of the target's layers are best left out in drafting; None where nobody does.
        int4: the target's int4 copy, whose passes go on in the target's cache; None where there is none.
        datastore: gives the texts of a corpus in the target's tokens; None where there are none.
        writes: whether there is a datastore of texts that the target wrote.
        chooser: chooses rows of the target's cache for a second one; None where there is none.
        memory: what the method keeps from text to text of a session that are decoded the same way.
        curve: what passes of the target cost; None: nobody knows beforehand.
        exit_heads: trained for the target's early exits; None where there are none.
        streams: rows of the target that guess further tokens; None where it was not tuned for them.
    """

    draft: LoadedModel | None
    target: LoadedModel
    cache: TextKV
    lengths: Lengths
    ends: frozenset[int]
    rule: Rule
    host: Host
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = True
    trained: Mapping[str, TrainedModel] = field(default_factory=dict)
    skipping: Callable[[], tuple[int, ...]] | None = None
    int4: LoadedModel | None = None
    datastore: Callable[[str], Datastore] | None = None
    writes: bool = False
    chooser: Chooser | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    curve: CostCurve | None = None
    exit_heads: ExitHeads | None = None
    streams: Streams | None = None

    def check_vocabulary(self) -> None:
        """Whether drafts may choose among some tokens.

        Raises:
            InputError: they are drawn, or end by confidence, which takes the weights of all tokens.
        """
        if self.options.get(VOCABULARY.key) and not self.rule.want(1, self.lengths.needs_confidence).plain:
            raise InputError(f"{VOCABULARY.name} takes greedy drafts: use --temperature 0 without --draft-lengths "
                             "confidence, or drop it")

    def shape(self, *, most: int, behind: int, levels: int) -> tuple[Place, ...] | None:
        """The shape that every tree gets, level by level; None where none is given.

        ``most``: candidates that a step drafts; ``behind``: candidates that the method finds behind a path;
        ``levels``: on which it finds some.

        Raises:
            InputError: the shape has more of one of them.
        """
        text = self.options.get(TREE.key)
        if text is None:
            return None
        places = SHAPED.places(TREE.name, text)
        for limit, count, what in (
                (most, len(places), "candidates, as a step drafts"),
                (behind, 1 + max(place[-1] for place in places), "candidates behind one path, as the method finds"),
                (levels, max(map(len, places)), "levels, as the method drafts")):
            if count > limit:
                raise InputError(f"{TREE.name} must have at most {limit} {what} with these options, not {count}: leave "
                                 "some out, or let the method draft more")
        return places


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to propose tokens.

    Attributes:
        name: of ``--method``.
        says: what it proposes, for help and docs.
        make: a new drafter for a text. Raises InputError: what it needs is not there.
        drafts: the option that says how many tokens are drafted a step; None: none are.
        options: others of its own.
        needs_draft: whether a draft model proposes; its weights count as the method's.
        trained: kind of the drafter, trained on the target's hidden rows, that proposes; empty: none does.
        needs_int4: whether the target's int4 copy drafts.
        parts: other methods whose drafters it asks, by its own options; None: none.
        needs_general: whether the target runs some of its layers, or gives other answers than tokens.
        schedule: what a second cache of the target's holds, in which it drafts, by the method's own options and the
            target's positions; None: there is no such cache.
        wide: whether it proposes as many candidates as are worth their rows, so that passes of many rows pay.
        scheduled: whether a schedule can say how many tokens a step drafts: those of trees stand in no order in which
            they are accepted.
        confident: whether a draft can end by how sure the drafter is of its last token.
        verify: how drawn tokens are verified unless said: ``match`` or ``rejection``.
        warm: values of its options with which it keeps what it learned from one text to the next.
        cuts: what makes its drafts cheaper than passes of the target: layers, width, length or no passes; for docs.
        source: of the idea, for docs.
        labels: names under which its own passes are charged, beside the target's.
        needs_streams: whether rows of a target that was tuned for it draft (:mod:`gemmule.sw.models.drafting.tuned`).
        lossless: whether the text is that of autoregressive decoding, or has its law.
        policy: of a lossy one a plain reading: what it chooses behind a prompt and each token of a text that follows,
            computed from nothing.

    Raises:
        InputError: the name is none for a command line, a default is out of range, or a lossy method has no policy.
    """

    name: str
    says: str
    make: Callable[[Request], Drafter]
    drafts: Option | None = None
    options: tuple[Option, ...] = ()
    needs_draft: bool = False
    needs_general: bool = False
    trained: str = ""
    needs_int4: bool = False
    parts: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    schedule: Callable[[Mapping[str, Any], int], Pruning] | None = None
    wide: bool = False
    scheduled: bool = True
    confident: bool = False
    verify: str = "match"
    warm: Mapping[str, Any] = field(default_factory=dict)
    cuts: str = ""
    source: str = ""
    labels: tuple[str, ...] = ()
    needs_streams: bool = False
    lossless: bool = True
    policy: Callable[[Plain], list[int]] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name) or self.name in RESERVED:
            raise InputError(f"a method's name must be lower-case letters, digits and -, and none of "
                             f"{', '.join(RESERVED)}, not {self.name!r}")
        if self.lossless != (self.policy is None):
            raise InputError(f"a lossy method must have a policy to be checked against, and no other has one: "
                             f"{self.name}")
        for option in self.every_option():
            if option.default is not None:
                option.check(option.default)

    @property
    def file(self) -> str:
        """Of its module, without the suffix."""
        return file_of(self.name)

    @property
    def digest(self) -> str:
        """SHA-256 of its file: results of another version are others."""
        return sha256(Path(import_module(self.make.__module__).__file__ or "").read_bytes()).hexdigest()

    @property
    def alone(self) -> bool:
        """Whether it takes one greedy text with its whole cache: passes go through some layers at a time."""
        return self.needs_streams or not self.lossless

    @property
    def common(self) -> bool:
        """Whether it needs nothing that was trained for the target."""
        return not self.trained and not self.needs_streams

    def every_option(self) -> Iterator[Option]:
        """The one that says how many tokens are drafted comes first."""
        yield from (self.drafts,) if self.drafts else ()
        yield from self.options

    def check_alone(self, given: Mapping[str, bool]) -> None:
        """Whether a method that goes alone goes with what else is asked for: by name, whether it is.

        Raises:
            InputError: it does not.
        """
        for option in given:
            if given[option] and self.alone:
                raise InputError(f"--method {self.name} takes one greedy text with its whole cache, a pass a launch, "
                                 f"not {option}: drop one of the two")

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its own options by key: as given, else their defaults.

        Raises:
            InputError: a value out of range, or of an option that it has not.
        """
        known = {option.key: option for option in self.options}
        for key in given:
            if key not in known:
                raise InputError(f"method {self.name} has no option {key}: leave it out")
        return {key: option.check(given[key]) if given.get(key) is not None else option.default
                for key, option in known.items()}
