"""Texts by every method equal, token by token, those of autoregressive decoding, and so do the caches they leave.

    python -m benchmarks.equality --model small --batch 1 --batch 4 --out docs/results/equality.json

On the integer interpreter, which the device is proven equal to (tests/equivalence, tests/sw/test_interpreted.py): each
prompt by autoregressive decoding alone, then by every method and draft length. Behind every commit the keys and values
of all layers are compared with those that autoregressive decoding has of the same rows. With --batch 4 four texts
share passes by the loop of `gemmule generate --batch`, each with its own drafts, acceptance and end. --weights int4:
the same models with int4 weights. --prune FILE: by every method with a cache that is pruned by that schedule, beside
autoregressive decoding with the same one; the kept cache is compared behind every commit, with the running sums by
which rows are chosen (score: heavy), or the whole one where rows choose pages.

Prompts are the held-out ones of `gemmule bench`, in their order: completions, copies, docstrings, tables, repetitions.
Each method runs at every number of --drafts, some with other options, too (SETTINGS). --temperature 0.8 draws tokens by
noise of their positions. What is done is kept in --out by method and prompts, and not run again for the same files of
the pair; a method that is new adds its runs to those. A run in which fewer than a fifth of the steps that drafted had
anything accepted says so. Exit code 1 where a token or a byte differs.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.progress import track

from benchmarks.common import console, show, write
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.quantize.narrow import narrowed
from gemmule.config import load_config
from gemmule.sw.decoding.asking import alone, together
from gemmule.sw.decoding.generate import Conversation, Generation
from gemmule.sw.decoding.lengths import Constant
from gemmule.sw.decoding.methods import DRAFT, METHODS, Request
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.limits import CATEGORIES, SMALL
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.step import Asking, Forward, Want
from gemmule.sw.workloads.pruned import Untimed

LENGTHS = (1, 2, 3, 5, 8, 15)
ROWS = max(LENGTHS) + 1
DRAFTING = tuple(name for name, one in METHODS.items() if name != "ar" and one.common and one.lossless)
FEW = 0.2
"""Share of the drafting steps of a run that accept something, below which it shows less."""
OPTIONS: dict[str, dict[str, Any]] = {
    "triforce": {"cache_budget": 32, "cache_sinks": 4, "cache_window": 16, "retrieve_every": 24,
                 "lowest_cache_budget": 48}}
"""Of methods whose defaults are for longer texts."""
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "jacobi": {"forks": {"jacobi_form": "forks"}},
    "lookahead": {name: dict(zip(("lookahead_window", "lookahead_ngram", "lookahead_guesses"), sizes, strict=True))
                  for name, sizes in (("W5 N4 G2", (5, 4, 2)), ("W9 N3 G4", (9, 3, 4)))}}
"""Other options that a method runs with, too, by name."""
OBSERVED = 16
"""Rows that choose where a cache is pruned."""


@dataclass(frozen=True)
class Models:
    """Networks of a pair, and what reads text for them."""

    pair: Pair
    target: Network
    draft: Network

    @cached_property
    def narrow(self) -> Network:
        """The target's int4 copy."""
        return narrowed(self.target)


def load(name: str, weights: str) -> Models:
    """A bundled pair; int4 weights are made of the int8 ones, as `gemmule generate --weights int4` does."""
    pair = bundled_pair(name)
    networks = [bundled_model(role, name).network for role in ("target", "draft")]
    if weights == "int4":
        networks = [narrowed(network) for network in networks]
    return Models(pair, *networks)


Contents = dict[str, tuple[np.ndarray, np.ndarray]]
"""Keys and values of each attention, int8 [rows, columns]."""


class Uncharged(InterpretedModel):
    """A model whose passes nobody counts."""

    def charging(self, ledger: Ledger | None, name: str | None = None) -> Self:
        if name in (None, self.name):
            return self
        made = copy.copy(self)
        made.name = name
        return made


class WholeCache(ContiguousKV):
    """A text's cache, which is compared behind every step with what autoregressive decoding left of the same rows.

    It must have a row for every token but the pending one: the next rows of the text begin right behind the last ones.
    """

    model: Any
    reference: Contents | None = None
    commits = different = 0
    begun: int | None = None
    """Rows before the last candidates."""
    cached: int | None = None
    """Rows behind the last step."""

    def candidates(self, rows: Rows, want: Want) -> Asking[Forward]:
        self.begun = self.length
        return (yield from super().candidates(rows, want))

    def accept(self, tokens: Sequence[int], path: Sequence[int]) -> Asking[None]:
        yield from super().accept(tokens, path)
        if self.reference is None:
            return
        self.commits += 1
        self.different += self.cached not in (None, self.begun)
        self.cached = rows = (self.begun or 0) + len(path)
        held = self.contents()
        self.different += any(len(part) != rows or part.tobytes() != whole[:rows].tobytes() for name in held
                              for part, whole in zip(held[name], self.reference[name], strict=True))

    def contents(self) -> Contents:
        """What it holds."""
        return {name: self.model.cache.contents(name, self.sequence) for name in self.model.cache.width}


Kept = dict[int | None, Contents]
"""What a pruned cache held behind the last commit before each selection, by the rows of the text at the one before."""


class KeptCache(SelectedKV):
    """A pruned cache that is compared behind every commit with what autoregressive decoding left of the same rows."""

    reference: Kept | None = None

    def __init__(self, target: InterpretedModel, pruning: Pruning, reference: Kept | None) -> None:
        super().__init__(target, InterpretedChooser(target, pruning, OBSERVED), pruning, target.room)
        self.reference, self.found = reference, Kept()
        self.commits = self.different = 0

    def commit(self, path: Sequence[int]) -> int:
        super().commit(path)
        held = {name: self.model.cache.contents(name) for name in self.model.cache.width}
        assert isinstance(self.chooser, InterpretedChooser)
        held |= {f"{name}: running sums": (sums, sums) for name, sums in self.chooser.sums.items()}
        if self.reference is None:
            self.found[self.since] = held
            return 0
        self.commits += 1
        whole = self.reference.get(self.since, {})
        self.different += any(
            name not in whole or part.tobytes() != wanted[:len(part)].tobytes()
            for name, parts in held.items() for part, wanted in zip(parts, whole.get(name, parts), strict=True))
        return 0

    def contents(self) -> Kept:
        """What autoregressive decoding left."""
        return self.found


@dataclass(frozen=True, eq=False)
class Text:
    """A prompt that was continued, and what compared its cache."""

    run: Generation
    held: WholeCache | KeptCache


@dataclass(frozen=True)
class Way:
    """How texts are decoded: a method, tokens drafted a step, and options by a name of :data:`SETTINGS`."""

    method: str
    length: int = 0
    setting: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.length}" + f" {self.setting}" * bool(self.setting)

    @property
    def options(self) -> dict[str, Any]:
        """Values of the method's own options."""
        chosen = SETTINGS[self.method][self.setting] if self.setting else {}
        return METHODS[self.method].values(OPTIONS.get(self.method, {}) | chosen)


def ways(method: str, lengths: Sequence[int]) -> list[Way]:
    """All in which it runs."""
    drafted = lengths if METHODS[method].drafts else (0,)
    return [Way(method, length, setting) for setting in ("", *SETTINGS.get(method, {})) for length in drafted]


def _talk(target: Uncharged, draft: InterpretedModel, chosen: Way, rule: Rule, cache: TextKV,
          int4: InterpretedModel | None) -> Conversation:
    config, way, own = load_config("base"), METHODS[chosen.method], target.charging(None, DRAFT)
    options, chooser = chosen.options, None
    if way.schedule:
        chooser = InterpretedChooser(own, way.schedule(options, own.room), OBSERVED)
    request = Request(draft=draft, target=own, cache=cache, lengths=Constant(chosen.length), ends=frozenset(),
                      rule=rule, host=config.host, options=options, chooser=chooser,
                      datastore=bundled_pair(SMALL).datastore, int4=int4, skipping=lambda: (1,))
    return Conversation(target, way.make(request), Ledger(config), rule=rule, kv=cache)


def _held(target: InterpretedModel, number: int, pruning: Pruning | None, reference: Any) -> WholeCache | KeptCache:
    if pruning:
        return KeptCache(target, pruning, reference)
    made = WholeCache(target, target.room, number)
    made.reference = reference
    return made


def decode(models: Models, prompts: Sequence[list[int]], way: Way, new_tokens: int, rule: Rule,
           references: Sequence[Any] = (), pruning: Pruning | None = None) -> list[Text]:
    """Texts of ``new_tokens`` behind prompts, together, or of one with a pruned cache; caches are compared with
    ``references`` where there are any.
    """
    count = len(prompts)
    pages, values = (pruning.pages, pruning.values or 1) if pruning else (None, 1)
    below = (pruning.progressive or 0.0) if pruning else 0.0
    pruning = pruning if pruning and pruning.selects else None  # else the whole cache is in place
    target, draft = (
        Uncharged(name, network, Untimed(network.graph, ROWS, count), None, pages=chosen, values=least, below=flat)  # type: ignore[arg-type]
        for name, network, chosen, least, flat in ((TARGET, models.target, pages, values, below),
                                                   (DRAFT, models.draft, None, 1, 0.0)))
    helds: list[Any] = [_held(target, number, pruning, references[number] if references else None)
                        for number in range(count)]
    int4 = None
    if METHODS[way.method].needs_int4:
        int4 = Uncharged(DRAFT, models.narrow, Untimed(models.narrow.graph, 1, count), None, whole=target).in_cache_of(  # type: ignore[arg-type]
            target)
    talks = [_talk(target, draft, way, rule, held, int4) for held in helds]
    askings = [talk.turning(prompt, new_tokens) for talk, prompt in zip(talks, prompts, strict=True)]
    runs = together(askings, (DRAFT, TARGET), count) if count > 1 else [alone(asking) for asking in askings]
    return [Text(run, held) for run, held in zip(runs, helds, strict=True)]


def compare(models: Models, prompts: Sequence[list[int]], new_tokens: int, rule: Rule,
            pruning: Pruning | None = None, methods: Sequence[str] | None = None,
            lengths: Sequence[int] | None = None) -> dict[str, Any]:
    """Prompts that are decoded together, in each way of the methods: what was equal, and how steps ended.

    ``methods``: by default all that can run so, with int8 weights; ``lengths``: tokens drafted a step, by default
    :data:`LENGTHS`.
    """
    plain = [decode(models, [prompt], Way("ar"), new_tokens, rule, pruning=pruning)[0] for prompt in prompts]
    references = [text.held.contents() for text in plain]
    found: dict[str, Any] = {}
    for way in (way for name in methods or able("int8", len(prompts), pruning)
                for way in ways(name, lengths or LENGTHS)):
        texts = decode(models, prompts, way, new_tokens, rule, references, pruning)
        ended = Counter("undrafted" if not drafted else "none" if not accepted else "all" if accepted == drafted
                        else "some" for text in texts for drafted, accepted in text.run.steps)
        found[str(way)] = {
            "texts": len(texts), "tokens": sum(len(text.run.tokens) for text in texts),
            "equal": sum(text.run.tokens == before.run.tokens for text, before in zip(texts, plain, strict=True)),
            "commits": sum(text.held.commits for text in texts),
            "different_caches": sum(text.held.different for text in texts),
            "steps": {kind: ended[kind] for kind in ("none", "some", "all", "undrafted")}}
    return found


def able(weights: str, batch: int, pruning: Pruning | None) -> tuple[str, ...]:
    """Methods that can run so: int4 weights have no narrower copy; a second cache is one text's, beside a whole one."""
    return tuple(name for name in DRAFTING if not (weights == "int4" and METHODS[name].needs_int4)
                 and not (METHODS[name].schedule and (batch > 1 or pruning)))


def added(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all groups together."""
    total: dict[str, Any] = {}
    for group in groups:
        for name, value in group.items():
            total[name] = added([total.get(name, {}), value]) if isinstance(value, dict) else total.get(name, 0) + value
    return total


def held_out(pair: Pair, count: int, new_tokens: int) -> list[list[int]]:
    """The first prompts, cut to fit the context with ``new_tokens`` behind them."""
    every = [prompt for name in CATEGORIES for prompt in load_categories()[name]]
    return [pair.encode(prompt.text)[:pair.positions - new_tokens] for prompt in every[:count]]


def begun(parts: dict[str, Any], name: str, models: list[str]) -> dict[str, Any]:
    """What is done of a part; it begins anew where it is of other models."""
    if parts.get(name, {}).get("models") != models:
        parts[name] = {"models": models, "done": {}, "total": {}}
    part: dict[str, Any] = parts[name]
    return part


def accepting(steps: dict[str, int]) -> float:
    """Share of the steps that drafted in which a candidate was accepted."""
    drafted = sum(steps.values()) - steps["undrafted"]
    return (steps["some"] + steps["all"]) / drafted if drafted else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", choices=("small", "default"))
    parser.add_argument("--weights", default="int8", choices=("int8", "int4"))
    parser.add_argument("--batch", type=int, action="append", help="texts decoded together; again for another number")
    parser.add_argument("--method", choices=DRAFTING, action="append", help="one of them; again for another; else all")
    parser.add_argument("--drafts", type=int, action="append", help="tokens drafted a step; again for another number")
    parser.add_argument("--temperature", type=float, default=0.0, help="above 0: drawn by noise of the position")
    parser.add_argument("--prune", type=Path, help="schedule of the target's cache; not with a batch")
    parser.add_argument("--prompts", type=int, default=100, help="the first so many")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of drawn tokens")
    parser.add_argument("--out", type=Path, default=Path("build/equality.json"))
    args = parser.parse_args()
    pruning = load_pruning(args.prune) if args.prune else None
    if pruning and any(batch > 1 for batch in args.batch or ()):
        parser.error("--prune takes one text at a time: leave out --batch")
    models, lengths = load(args.model, args.weights), tuple(args.drafts or LENGTHS)
    prompts = held_out(models.pair, args.prompts, args.new_tokens)
    sampling = Sampling(args.temperature) if args.temperature else None
    rule = Match(sampling, Noise(args.seed)) if sampling else GREEDY
    record = json.loads(args.out.read_text()) if args.out.is_file() else {"parts": {}}
    failed = False
    for batch in args.batch or [1]:
        methods = [name for name in able(args.weights, batch, pruning) if name in (args.method or DRAFTING)]
        name = (f"{args.model} {args.weights} batch {batch} temperature {args.temperature:g} seed {args.seed} "
                f"new tokens {args.new_tokens} drafts {','.join(map(str, lengths))}"
                + (f" {pruning}" if pruning else ""))
        groups = [prompts[first:first + batch] for first in range(0, len(prompts), batch)]
        kept = begun(record["parts"], name, [bundled_model(role, args.model).sha256 for role in ("target", "draft")])
        for group in track(groups, description=name, console=console, disable=not console.is_terminal):
            done = kept["done"].setdefault(sha256(json.dumps(group).encode()).hexdigest()[:16], [])
            if missing := [method for method in methods if method not in done]:
                found = compare(models, group, args.new_tokens, rule, pruning, missing, lengths)
                kept["total"] = added([kept["total"], found])
                done += missing
                write(args.out, record)
        show(name, [{
            "method": method, "texts": part["texts"], "equal": part["equal"], "tokens": part["tokens"],
            "caches compared": part["commits"], "different": part["different_caches"], **part["steps"],
            "accepting": f"{(share := accepting(part['steps'])):.0%}" + " (few)" * (share < FEW),
        } for method, part in kept["total"].items()])
        failed |= any(part["equal"] != part["texts"] or part["different_caches"] for part in kept["total"].values())
    if failed:
        sys.exit("tokens or caches differ from those of autoregressive decoding")


if __name__ == "__main__":
    main()
