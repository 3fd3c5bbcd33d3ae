"""How good the one-pass drafter's guesses are on texts that nothing is judged by: what its trees' chances are set by.

    python -m benchmarks.drafted --out docs/results

SmolLM2 answers the requests of `benchmarks/smollm2/held_out.json`, by the integer interpreter, greedily. At each token
of an answer the drafter guesses the next seven. Of them follow, by position, the temperature at which its softmax is
closest to what came (`TEMPERATURES` in sw/decoding/methods/parallel.py), how often each rank was right (`RANKS`), and
the tokens a step of trees, by themselves and joined with runs of the text that count more or less (`TRUST` in
joined.py) and with texts that the model wrote to prompts that it made up.
Each answer's guesses are kept in `--kept`, so that a run that was broken off goes on. New weights of the drafter want a
new run and these three tables, though texts are the same without.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show
from benchmarks.smollm2.greedy import greedy
from gemmule import __version__
from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.quantize.narrow import narrowed
from gemmule.io.files import write_atomically
from gemmule.sw.decoding.candidates.branches import grow
from gemmule.sw.decoding.candidates.stored import Stored
from gemmule.sw.decoding.methods.chooser import Chooser
from gemmule.sw.decoding.methods.chooser import Path as Candidates
from gemmule.sw.decoding.methods.joined import TRUST, guesses_at
from gemmule.sw.decoding.methods.parallel import FORMS, TEMPERATURES, WIDEST, Guesses, OnePassDrafter
from gemmule.sw.decoding.methods.recycling import Table
from gemmule.sw.decoding.methods.suffix import Texts
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import greedy as accepted
from gemmule.sw.limits import WRITINGS
from gemmule.sw.models.pair import open_pair
from gemmule.sw.models.quantised import quantised
from gemmule.sw.models.sources import read_source
from gemmule.sw.models.trained.calibrate import hidden_rows
from gemmule.sw.models.trained.drafter import DrafterFile, trained_drafter
from gemmule.sw.text.chat import Template

NAME = "smollm2"
REQUESTS = Path(__file__).parent / "smollm2" / "held_out.json"
NEW_TOKENS, DEPTH, RANKED = 96, 24, 8
GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7, 2.0)
TRUSTS = tuple(tuple(round(scale * one, 3) for one in TRUST) for scale in (0.25, 0.5, 0.75, 1.0, 1.15))
"""Tables that are tried: the one in use, and smaller and larger ones."""
TREES: tuple[tuple[str, str, int, int], ...] = (
    ("chain of 7", "fixed", 1, 7), ("fixed tree of 7", "fixed", 4, 7), ("tree of 7", "confident", 4, 7),
    ("tree of 11", "confident", 4, 11), ("tree of 15", "confident", 4, 15))
"""(what is proposed, form, candidates of a position, candidates)."""


@dataclass(frozen=True)
class Answer:
    """A text, and by weights what the drafter guesses at each token of its answer.

    Attributes:
        tokens: of each guess, int64 [anchors, positions, WIDEST].
        logits: real ones, float64, likewise.
    """

    name: str
    ids: list[int]
    prompt: int
    tokens: dict[str, np.ndarray]
    logits: dict[str, np.ndarray]

    def anchors(self, weights: str) -> Iterator[tuple[int, np.ndarray, np.ndarray, list[int]]]:
        """(tokens so far, guessed tokens, their logits, what comes)."""
        for at, (tokens, logits) in enumerate(zip(self.tokens[weights], self.logits[weights]), self.prompt):
            yield at, tokens, logits, self.ids[at:at + tokens.shape[0]]


def answers(requests: int, kept: Path) -> list[Answer]:
    """Of so many requests of each category, by the target and by the drafter with int8 and int4 weights."""
    _, file = quantised(NAME, None)
    drafter = trained_drafter(NAME, "parallel", file)
    networks = {"int8": drafter.file.network, "int4": narrowed(drafter.file.network, head=True)}
    folder = kept / drafter.file.sha256[:16]
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, (prompt, answer) in _texts(file, requests, kept).items():
        path, ids = folder / f"{name.replace('/', '-')}.npz", [*prompt, *answer]
        if not path.is_file():
            guesses = {weights: _guesses(file.network, network, drafter, ids, len(prompt))
                       for weights, network in networks.items()}
            np.savez(path, **{f"{weights}.{part}": array for weights, arrays in guesses.items()
                              for part, array in zip(("tokens", "logits"), arrays)})
            print(f"{name}: {len(answer)} tokens")
        with np.load(path) as arrays:
            found.append(Answer(name, ids, len(prompt), *(
                {one: arrays[f"{one}.{part}"] for one in networks} for part in ("tokens", "logits"))))
    return found


def _texts(file: ModelFile, requests: int, kept: Path) -> dict[str, tuple[list[int], list[int]]]:
    """By name prompt and answer."""
    source, prefix = read_source(NAME), file.made.prefix
    assert source.chat is not None
    template, prompts = Template(source.chat, NAME), dict[str, list[int]]()
    for kind, texts in json.loads(REQUESTS.read_text())["prompts"].items():
        for number, text in enumerate(texts[:requests]):
            ids = source.tokenizer.encode(template.render([{"role": "user", "content": text}]),
                                          add_special_tokens=False).ids
            prompts[f"{kind}/{number}"] = ids[len(prefix):] if tuple(ids[:len(prefix)]) == prefix else ids
    path = kept / f"texts-{sha256(repr([file.sha256, NEW_TOKENS, prompts]).encode()).hexdigest()[:16]}.json"
    if not path.is_file():
        answers = greedy(file.network, list(prompts.values()), NEW_TOKENS, frozenset(source.ends))
        write_atomically(path, json.dumps(dict(zip(prompts, answers, strict=True))))
    written = json.loads(path.read_text())
    return {name: (prompt, written[name]) for name, prompt in prompts.items()}


def _guesses(target: Network, network: Network, drafter: DrafterFile, ids: list[int],
             prompt: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and logits at each anchor, as the decoding loop's passes give them."""
    borrowed = [node for node in network.graph.nodes if isinstance(node, Borrowed)]
    first, masks = target.graph.prefix, list(drafter.masks)
    hidden = hidden_rows(target, Rows.chain(ids, first), tuple(node.depth for node in borrowed))
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    scale = network.graph.by_name[network.graph.output].type.scale
    assert isinstance(scale, float)

    def passed(tokens: list[int], position: int, lent: list[int]) -> np.ndarray:
        return interpreter.forward(Rows.chain(tokens, first + position), cache, None,
                                   {node.name: hidden[node.depth][lent] for node in borrowed})

    passed(ids[1:prompt - 1], 0, list(range(prompt - 2)))
    tokens, found = [], []
    for at in range(prompt, len(ids)):
        logits = passed([ids[at - 1], *masks], at - 2, [at - 2] * (1 + len(masks)))
        cache.truncate(first + at - 1, 0)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :WIDEST]
        tokens.append(drafter.tokens[best])
        found.append(np.take_along_axis(logits, best, axis=1) * scale)
    return np.array(tokens), np.array(found)


def calibrated(every: list[Answer], weights: str) -> dict[str, Any]:
    """Temperatures and ranks by position, of anchors at which what comes before was among the candidates."""
    temperatures, ranks, counts = list[float](), list[list[float]](), list[int]()
    for position in range(every[0].tokens[weights].shape[1]):
        inside = [(tokens[position], logits[position], comes, tokens) for answer in every
                  for _, tokens, logits, comes in answer.anchors(weights) if len(comes) > position]
        near = [(own, logits, comes) for own, logits, comes, tokens in inside
                if all(comes[i] in tokens[i, :4] for i in range(position))]
        exact = [own[:RANKED] == comes[position] for own, _, comes, tokens in inside
                 if all(comes[i] == tokens[i, 0] for i in range(position))]
        temperatures.append(min(GRID, key=lambda one: _loss(near, position, one)))
        ranks.append([round(float(share), 3) for share in np.mean(exact, axis=0)])
        counts.append(len(exact))
    return {"temperatures": temperatures, "ranks": ranks, "anchors": counts}


def _loss(anchors: list[tuple[np.ndarray, np.ndarray, list[int]]], position: int, temperature: float) -> float:
    """Brier's, over the candidates of a position."""
    total = 0.0
    for tokens, logits, comes in anchors:
        chances = np.exp((logits - logits[0]) / temperature)
        total += float(np.square(chances / chances.sum() - (tokens == comes[position]))[:RANKED].sum())
    return total


class Guessing(Chooser):
    """Joins guesses that are given with runs of the text, which count so much."""

    def __init__(self, most: int, trust: Sequence[float], stored: Stored | None) -> None:
        super().__init__(most, Texts(DEPTH), Table(1), stored=stored)
        self.trust, self.guesses = trust, Guesses()

    def guessed(self, path: Candidates) -> Mapping[int, float]:
        return guesses_at(self.guesses, path)


def steps_of(every: list[Answer], weights: str, form: str, top: int, count: int,
             trust: Sequence[float] | None = None, stored: Stored | None = None) -> float:
    """Tokens a step of trees of so many candidates; ``trust``: joined with runs of the text, which count so much, and
    with those of ``stored``. Answers behind wrong candidates are not known here, so none are used.
    """
    tokens = steps = 0
    for answer in every:
        at, joined = answer.prompt, Guessing(count, trust or (), stored)
        joined.begin(answer.ids[:at])
        while at < len(answer.ids):
            place, ids = at - answer.prompt, answer.ids[:at]
            parts = zip(answer.tokens[weights][place].tolist(), answer.logits[weights][place].tolist())
            joined.guesses = [list(zip(own, FORMS[form](position, logits)))[:top]
                              for position, (own, logits) in enumerate(parts)]
            tree = grow(ids[-1], count, 0, partial(OnePassDrafter.behind, joined.guesses)).tree if trust is None else \
                joined.chosen(ids, count, joined.place(ids), joined.mixed, 0)
            new = answer.ids[at:at + len(accepted(*_told(tree, answer.ids[at:]))[0])]
            joined.texts.add(new)
            at += len(new)
            steps += 1
        tokens += len(answer.ids) - answer.prompt
    return tokens / steps


def _told(tree: Tree, comes: list[int]) -> tuple[Tree, list[int]]:
    """The tree and what the target answers behind each node on the text's own path; -1 elsewhere."""
    answered = [comes[0]] + [-1] * (len(tree.tokens) - 1)
    depths = [0]
    for node, parent in enumerate(tree.parent[1:], 1):
        depths.append(depths[parent] + 1)
        if answered[parent] == tree.tokens[node] and depths[node] < len(comes):
            answered[node] = comes[depths[node]]
    return tree, answered


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8, help="the first so many of each category")
    parser.add_argument("--kept", type=Path, default=Path("build/drafted"))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    every, stored = answers(args.requests, args.kept), Stored(open_pair(NAME).datastore(WRITINGS))
    record: dict[str, Any] = {
        "schema": "gemmule/benchmark-drafted/1", "version": __version__, "model": NAME, "requests": len(every),
        "tokens": sum(len(one.ids) - one.prompt for one in every), "in use": {
            "temperatures": list(TEMPERATURES), "trust": list(TRUST)}}
    rows = []
    for weights in every[0].tokens:
        found = record[weights] = calibrated(every, weights)
        right = [tokens[0, 0] == comes[0] for one in every for _, tokens, _, comes in one.anchors(weights)]
        steps = {name: round(steps_of(every, weights, form, top, count), 3) for name, form, top, count in TREES}
        found["tokens a step"] = steps
        found["joined"] = [{"trust": trust} | {f"of {count}": round(steps_of(
            every, weights, "confident", 4, count, trust, stored), 3) for count in (7, 15)} for trust in TRUSTS]
        found["joined with the text alone"] = round(steps_of(every, weights, "confident", 4, 15, TRUST), 3)
        rows.append({"weights": weights, "first token right": float(np.mean(right)), **steps})
        print(f"{weights}: temperatures {found['temperatures']}, ranks {found['ranks']}")
        show(f"joined with runs of the text, {weights}", found["joined"])
    show("tokens a step on held-out texts", rows)
    write_atomically(args.out / "drafted.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
