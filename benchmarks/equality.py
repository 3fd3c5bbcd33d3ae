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
Finished groups of prompts are kept in --out and not run again for the same files of the pair and the same methods; what
is there of other settings stays. Exit code 1 where a token or a byte differs.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.progress import track

from benchmarks.common import console, show, write
from gemmule.compiler.ir import Network
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
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.limits import CATEGORIES, SMALL
from gemmule.sw.models.bundled_models import bundled_model
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.workloads.pruned import Untimed

LENGTHS = (1, 2, 3, 5, 8, 15)
ROWS = max(LENGTHS) + 1
DRAFTING = tuple(name for name, one in METHODS.items() if name != "ar" and not one.needs_one_pass)
OPTIONS: dict[str, dict[str, Any]] = {
    "triforce": {"cache_budget": 32, "cache_sinks": 4, "cache_window": 16, "retrieve_every": 24,
                 "lowest_cache_budget": 48}}
"""Of methods whose defaults are for longer texts."""
OBSERVED = 16
"""Rows that choose where a cache is pruned."""


@dataclass(frozen=True)
class Models:
    """Networks of a pair, and what reads text for them."""

    pair: Pair
    target: Network
    draft: Network


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


class Target(Uncharged):
    """A target, as each text of a batch has it: its cache is compared behind every commit.

    With what autoregressive decoding left of the same rows. It must have a row for every token but the pending one: the
    next rows of the text begin right behind its last commit.
    """

    sequence = 0
    reference: Contents | None = None
    commits = different = 0
    cached: int | None = None

    def of(self, sequence: int, reference: Contents | None) -> Self:
        """The same model as a text has it."""
        made = copy.copy(self)
        made.sequence, made.reference = sequence, reference
        return made

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        assert sequence == self.sequence
        super().commit(position, path, sequence)
        self.different += self.cached not in (None, position)
        if self.reference is not None:
            self.commits += 1
            self.cached = rows = position + len(path)
            held = self.contents()
            self.different += any(len(part) != rows or part.tobytes() != whole[:rows].tobytes() for name in held
                                  for part, whole in zip(held[name], self.reference[name], strict=True))
        return 0

    def contents(self) -> Contents:
        """What the cache holds."""
        return {name: self.cache.contents(name, self.sequence) for name in self.cache.width}


Kept = dict[int | None, Contents]
"""What a pruned cache held behind the last commit before each selection, by the rows of the text at the one before."""


class KeptCache(SelectedKV):
    """A pruned cache that is compared behind every commit with what autoregressive decoding left of the same rows."""

    reference: Kept | None = None

    def __init__(self, target: Target, pruning: Pruning, reference: Kept | None) -> None:
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
    held: Target | KeptCache


def _talk(target: Target, draft: InterpretedModel, method: str, length: int, rule: Rule, cache: TextKV,
          int4: InterpretedModel | None) -> Conversation:
    config, way, own = load_config("base"), METHODS[method], target.charging(None, DRAFT)
    options, chooser = way.values(OPTIONS.get(method, {})), None
    if way.schedule:
        own = own.of(own.sequence, None)  # what drafts in a small cache leaves other rows than the text
        chooser = InterpretedChooser(own, way.schedule(options, own.room), OBSERVED)
    request = Request(draft=draft, target=own, cache=cache, lengths=Constant(length), ends=frozenset(), rule=rule,
                      host=config.host, options=options, chooser=chooser, datastore=bundled_pair(SMALL).datastore,
                      int4=int4, skipping=lambda: (1,))
    return Conversation(target, METHODS[method].make(request), Ledger(config), rule=rule, kv=cache)


def decode(models: Models, prompts: Sequence[list[int]], method: str, length: int, new_tokens: int, rule: Rule,
           references: Sequence[Any] = (), pruning: Pruning | None = None) -> list[Text]:
    """Texts of ``new_tokens`` behind prompts, together, or of one with a pruned cache; caches are compared with
    ``references`` where there are any.
    """
    count = len(prompts)
    pages, values = (pruning.pages, pruning.values or 1) if pruning else (None, 1)
    below = (pruning.progressive or 0.0) if pruning else 0.0
    pruning = pruning if pruning and pruning.selects else None  # else the whole cache is in place
    whole, draft = (
        kind(name, network, Untimed(network.graph, ROWS, count), None, pages=chosen, values=least, below=flat)  # type: ignore[arg-type]
        for kind, name, network, chosen, least, flat in ((Target, "target", models.target, pages, values, below),
                                                         (Uncharged, "draft", models.draft, None, 1, 0.0)))
    assert isinstance(whole, Target)
    targets = [whole.of(number, references[number] if references and not pruning else None) for number in range(count)]
    helds: list[Any] = [KeptCache(target, pruning, references[0] if references else None) if pruning else target
                        for target in targets]
    int4 = None
    if METHODS[method].needs_int4:
        narrow = narrowed(models.target)
        int4 = Uncharged(DRAFT, narrow, Untimed(narrow.graph, 1, count), None, whole=whole).in_cache_of(  # type: ignore[arg-type]
            whole)
    talks = [_talk(target, draft, method, length, rule, held if pruning else target.kv(), int4)
             for target, held in zip(targets, helds, strict=True)]
    askings = [talk.turning(prompt, new_tokens) for talk, prompt in zip(talks, prompts, strict=True)]
    runs = together(askings, (DRAFT, TARGET), count) if count > 1 else [alone(asking) for asking in askings]
    return [Text(run, held) for run, held in zip(runs, helds, strict=True)]


def compare(models: Models, prompts: Sequence[list[int]], new_tokens: int, rule: Rule,
            pruning: Pruning | None = None, methods: Sequence[str] = DRAFTING) -> dict[str, Any]:
    """Prompts that are decoded together, by each method and length: what was equal, and how steps ended."""
    plain = [decode(models, [prompt], "ar", 0, new_tokens, rule, pruning=pruning)[0] for prompt in prompts]
    references = [text.held.contents() for text in plain]
    found: dict[str, Any] = {}
    able = [name for name in methods if METHODS[name].schedule is None or (len(prompts) == 1 and pruning is None)]
    for method, length in ((name, length) for name in able
                           for length in (LENGTHS if METHODS[name].drafts else (0,))):
        texts = decode(models, prompts, method, length, new_tokens, rule, references, pruning)
        ended = Counter("undrafted" if not drafted else "none" if not accepted else "all" if accepted == drafted
                        else "some" for text in texts for drafted, accepted in text.run.steps)
        found[f"{method} {length}"] = {
            "texts": len(texts), "tokens": sum(len(text.run.tokens) for text in texts),
            "equal": sum(text.run.tokens == before.run.tokens for text, before in zip(texts, plain, strict=True)),
            "commits": sum(text.held.commits for text in texts),
            "different_caches": sum(text.held.different for text in texts),
            "steps": {kind: ended[kind] for kind in ("none", "some", "all", "undrafted")}}
    return found


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
        parts[name] = {"models": models, "groups": {}}
    part: dict[str, Any] = parts[name]
    return part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", choices=("small", "default"))
    parser.add_argument("--weights", default="int8", choices=("int8", "int4"))
    parser.add_argument("--batch", type=int, action="append", help="texts decoded together; again for another number")
    parser.add_argument("--method", choices=DRAFTING, action="append", help="one of them; again for another; else all")
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
    models = load(args.model, args.weights)
    methods = tuple(args.method or (name for name in DRAFTING  # of int4 weights there is no narrower copy
                                    if args.weights == "int8" or not METHODS[name].needs_int4))
    prompts = held_out(models.pair, args.prompts, args.new_tokens)
    sampling = Sampling(args.temperature) if args.temperature else None
    rule = Match(sampling, Noise(args.seed)) if sampling else GREEDY
    record = json.loads(args.out.read_text()) if args.out.is_file() else {"parts": {}}
    failed = False
    for batch in args.batch or [1]:
        name = (f"{args.model} {args.weights} batch {batch} temperature {args.temperature:g} seed {args.seed} "
                f"new tokens {args.new_tokens}" + (f" {pruning}" if pruning else "")
                + f" by {', '.join(methods)}" * bool(args.method))
        groups = [prompts[first:first + batch] for first in range(0, len(prompts), batch)]
        kept = begun(record["parts"], name, [
            *(bundled_model(role, args.model).sha256 for role in ("target", "draft")), *methods])
        for group in track(groups, description=name, console=console, disable=not console.is_terminal):
            key = sha256(json.dumps(group).encode()).hexdigest()[:16]
            if key not in kept["groups"]:
                kept["groups"][key] = compare(models, group, args.new_tokens, rule, pruning, methods)
                kept["total"] = added(list(kept["groups"].values()))
                write(args.out, record)
        show(name, [{
            "method": method, "texts": part["texts"], "equal": part["equal"], "tokens": part["tokens"],
            "caches compared": part["commits"], "different": part["different_caches"], **part["steps"],
        } for method, part in kept["total"].items()])
        failed |= any(part["equal"] != part["texts"] or part["different_caches"] for part in kept["total"].values())
    if failed:
        sys.exit("tokens or caches differ from those of autoregressive decoding")


if __name__ == "__main__":
    main()
