"""Drawings of what methods of decoding propose: trees and masks by their own drafters on a toy language, time lines.

In the toy language each word has a list of likely next ones, and the target says the first. Drafters run for some
steps; the tree of the last one is drawn, with the mask of the rows that the pass verifies.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from gemmule.config import Host
from gemmule.sw.datastore.datastore import DEPTH, Datastore
from gemmule.sw.datastore.suffix_array import suffix_array
from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.lengths import Constant
from gemmule.sw.decoding.methods import METHODS, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.step import Forward, TopK

__all__ = ["drawing_of", "mask_lines", "time_line", "tree_lines"]

LIKELY = {
    "a": "cat dog man", "cat": "sees sat ran", "sees": "the a", "the": "dog cat man", "dog": "and ran sees",
    "and": "a the", "man": "sat ran", "sat": "and .", "ran": "and .", ".": "a the"}
"""Of each word the next ones, the likeliest first."""
WORDS = list(LIKELY)
PROMPT = "a man sat . the cat ran and the cat sees the dog and a"
CORPUS = "a cat sees a dog . a cat sees the man . a cat ran . the dog sees a cat ."
BUDGET = {"lookahead": 15}
"""Candidates of a step; of the others :data:`ROWS`."""
ROWS = 7
STEPS = {"lookahead": 6, "jacobi": 4, "recycling": 3, "ngram": 4, "multi-draft": 3}
"""Steps before; of the others one."""
OPTIONS = {"lookahead": {"lookahead_window": 3, "lookahead_ngram": 3, "lookahead_guesses": 2},
           "jacobi": {}, "pld": {"prompt_lookup_max": 2}}
BY_MODELS: dict[str, list[tuple[str, int, str]]] = {
    "draft": [("draft model, 1 row", 5, "##")],
    "int4-self": [("int4 copy, 1 row", 2, "########")],
    "self": [("target without 2 layers, 1 row", 1, "##.##.##")],
    "layerskip": [("first layers, 1 row", 3, "##......")],
    "parallel": [("one-pass drafter, 7 rows", 1, "##")],
    "blockwise": [("heads, a row each", 1, "#")],
    "medusa": [("heads, a row each", 1, "#")],
    "hydra": [("first head, 1 row", 1, "#"), ("next head, 4 rows", 4, "#")],
    "streaming": [("first layers, 10 candidates", 1, "####...."), ("last layers, 10 candidates, 6 streams", 1,
                                                                  "....####")],
    "eagle": [("drafter, 2 rows of the text", 1, "#"), ("drafter, 4 paths and what is before", 3, "#")]}
"""Of a method whose drafts come from models: its passes, how often, and which layers they run."""
WHOLE = "########"


def time_line(passes: list[tuple[str, int, str]], verified: int) -> list[str]:
    """A step: passes one behind the other, a column each; layers that run are #, those that do not are dots.

    ``verified``: rows of the pass that verifies; 0: the passes do that themselves.
    """
    columns = [(label, layers) for label, count, layers in passes for _ in range(count)]
    if verified:
        columns.append((f"target, {verified} rows", WHOLE))
    widest = max(len(label) for label, _ in columns)
    return [f"{number:2}  {label:{widest}}  {layers}" for number, (label, layers) in enumerate(columns, 1)]


def tree_lines(tree: Tree, words: Callable[[int], str]) -> list[str]:
    """Nodes, each below its parent."""
    lines = [words(tree.tokens[0]) + "  (pending)"]

    def below(node: int, before: str) -> None:
        children = tree.children(node)
        for child in children:
            last = child == children[-1]
            lines.append(before + ("└─ " if last else "├─ ") + words(tree.tokens[child]))
            below(child, before + ("   " if last else "│  "))

    below(0, "")
    return lines


def mask_lines(tree: Tree, words: Callable[[int], str]) -> list[str]:
    """A line a row: its word, its place behind the pending one, and the rows that it sees."""
    rows = tree.rows(0)
    widest = max(len(words(token)) for token in rows.tokens.tolist())
    return [f"{words(token):{widest}} +{position:<2} " + " ".join("#" if seen else "." for seen in mask)
            for token, position, mask in zip(rows.tokens.tolist(), rows.positions.tolist(), rows.mask)]


def drawing_of(name: str) -> str:
    """A method's drawing, as text; empty: there is none."""
    method = METHODS[name]
    if name in BY_MODELS:
        drafts = int(method.drafts.default or 1) if method.drafts else 0
        rows = 0 if method.needs_streams else drafts + 1
        return "\n".join(["a step, pass by pass; # a layer that runs, . one that does not:", "",
                          *time_line(BY_MODELS[name], rows)])
    if method.needs_draft or method.needs_int4 or method.trained or method.schedule or name == "ar" or (
            not method.lossless):
        return ""
    tree, text = _proposed(name)

    def words(token: int) -> str:
        return WORDS[token]

    return "\n".join([
        "behind the text: .. " + " ".join(map(words, text[-14:])), "", *tree_lines(tree, words), "",
        "rows of the pass that verifies, and which rows each sees (#):", "", *mask_lines(tree, words)])


def _ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def _datastore(corpus: str) -> Datastore:
    tokens = np.array([*_ids(CORPUS), len(WORDS)], dtype=np.uint16)
    return Datastore(tokens, suffix_array(tokens, DEPTH), len(WORDS), corpus)


def _drafter(name: str) -> Drafter:
    method = METHODS[name]
    return method.make(Request(
        draft=None, target=SimpleNamespace(program=SimpleNamespace(max_rows=16)), cache=None, lengths=Constant(ROWS),  # type: ignore[arg-type]
        ends=frozenset(), rule=GREEDY, host=Host(), options=method.values(OPTIONS.get(name, {})), datastore=_datastore))


def _proposed(name: str) -> tuple[Tree, list[int]]:
    """What a drafter proposes after some steps, and the text so far."""
    ids, drafter = _ids(PROMPT), _drafter(name)
    if drafter.prompt_want():
        drafter.read(ids[:-1], _answers(ids[:-1]))
    drafter.begin(ids)
    steps = STEPS.get(name, 1)
    for step in range(steps + 1):
        found = drafter.propose(ids, BUDGET.get(name, ROWS))
        tree = found if isinstance(found, Tree) else alone(found)  # it asks drafters, none of which asks a model
        if step == steps:
            break
        out = _answers([*tree.tokens, *(row.token for row in tree.extra)])
        path = [0]
        while child := next((node for node in tree.children(path[-1]) if tree.tokens[node] == out.argmax[path[-1]]), 0):
            path.append(child)
        new = [out.argmax[node] for node in path]
        drafter.observe(out, path, new)
        ids += new
    return tree, ids


def _answers(tokens: list[int]) -> Forward:
    """What the target says behind each of them."""
    top = [[*_ids(LIKELY[WORDS[token]])] for token in tokens]
    top = [(found + [other for other in range(len(WORDS)) if other not in found])[:8] for found in top]
    made = np.array(top)
    return Forward(made[:, 0].tolist(), (), top=TopK(made, -np.arange(8)[None].repeat(len(top), 0)))
