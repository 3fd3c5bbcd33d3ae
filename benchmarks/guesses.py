"""How often the guesses of `chooser` are right, by where they come from: what its chances were set by.

    python -m benchmarks.guesses --out docs/results

SmolLM2 answers requests that are not those of `gemmule bench`, by the integer interpreter, greedily. Every committed
token is counted: at which place of the table it stood (`CHANCES`), whether it followed the longest run of last tokens
again, by the length of the run (`TRUST`), and, where the table had nothing, at which place among the answers behind
rejected candidates it stood (`BESIDE`).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from gemmule import __version__
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.chooser import Chooser
from gemmule.sw.decoding.methods.recycling import Table
from gemmule.sw.decoding.methods.suffix import Texts
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.pair import open_pair
from gemmule.sw.step import Asking, Forward
from gemmule.sw.text.chat import Template

REQUESTS = (
    "Write a Python function that merges two sorted lists into one sorted list.",
    "What is the difference between a virus and a bacterium?",
    "Write a short poem about the sea in winter.",
    "Here is a paragraph: 'The library opens at nine in the morning on weekdays and at ten on Saturdays. Members may "
    "borrow up to six books for three weeks, and renew them twice unless somebody else has reserved them. Fines are "
    "ten cents a day.' Summarise it in two sentences.",
    "Explain how a refrigerator keeps food cold.",
    "Correct the spelling and return the whole text: 'Yesturday we went to the markit and bougth apples, pears and a "
    "larg pumpkin. The seller was freindly and gave us a discount becuase it was late.'",
    "Write a JavaScript class for a stack with push, pop and peek.",
    "Give me five tips for learning a new language.",
)
NEW_TOKENS, DEPTH, MOST_LENGTH = 64, 24, 6
NOTHING = "nothing"


class Watched(Chooser):
    """Counts where each committed token stood among the guesses."""

    def __init__(self, most: int, found: dict[str, Counter[str]]) -> None:
        super().__init__(most, Texts(DEPTH), Table(8))
        self.found = found

    def propose(self, ids: list[int], budget: int) -> Asking[Tree] | Tree:
        self.before = dict(self.table.behind)
        self.ordered = sorted(self.beside, key=lambda token: -self.beside[token])
        self.longest = next(iter(self.texts.places(ids)), None)
        return super().propose(ids, budget)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        tokens = [self.tree.tokens[node] for node in path[:len(new)]]
        for token, behind in zip(tokens, new):
            self._count("table", self.before.get(token), behind)
        if tokens[0] not in self.before:
            self._count("beside", self.ordered or None, new[0])
        if self.longest is not None:
            length, node = self.longest
            self._count(f"run of {min(length, MOST_LENGTH)}", [node.likely()[0][0]], new[0])
        super().observe(out, path, new)

    def _count(self, source: str, guesses: list[int] | None, token: int) -> None:
        place = NOTHING if guesses is None else str(guesses.index(token)) if token in guesses[:8] else "none of them"
        self.found.setdefault(source, Counter())[place] += 1


def measure(requests: int) -> dict[str, Any]:
    """All requests."""
    config, pair = load_config("base"), open_pair("smollm2")
    assert pair.chat
    template, found, tokens, steps = Template(pair.chat, pair.name), dict[str, Counter[str]](), 0, 0
    with Session(config, pair=pair, general=True, interpreted=True) as session:
        for request in REQUESTS[:requests]:
            ids = pair.plain(template.render([{"role": "user", "content": request}]))
            drafter = Watched(session.target.program.max_rows - 1, found)
            run = generate(session.target, drafter, ids, NEW_TOKENS, Ledger(config), pair.ends)
            tokens, steps = tokens + len(run.tokens), steps + len(run.steps)
    return {"schema": "gemmule/benchmark-guesses/1", "version": __version__, "config": "base",
            "config_sha256": config.sha256, "model": pair.name, "requests": requests, "tokens": tokens, "steps": steps,
            "guesses": {source: dict(sorted(places.items())) for source, places in sorted(found.items())}}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=len(REQUESTS), help="the first so many")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    record = measure(args.requests)
    for source, places in record["guesses"].items():
        total = sum(places.values())
        shares = ", ".join(f"{place}: {count / total:.1%}" for place, count in places.items())
        print(f"{source:10} {total:5}  {shares}")
    write_atomically(args.out / "guesses.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
