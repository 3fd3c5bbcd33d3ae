"""The copy test: 40 held-out functions to be written again under other names, chosen by a rule that knows no results.

    python -m gemmule.sw.prompts.copies --write     # choose them again from the running Python's library

They are kept in ``sw/prompts/copies.json``. A prompt is a function, then the signature of its copy in which 0 to 3 of
its names are others; what is asked for is the copy's body. The rule: functions of the held-out split with a body of 6
lines or more and at most 1,000 characters (both copies fit the target's context), the first 40 by the SHA-256 of their
place; the number of edits, the names that change and the new names (of other held-out functions) are drawn from that
hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.io.files import write_atomically
from gemmule.sw.prompts.functions import MOST_EDITS, Function, functions_of, joined, name_pool, rename, renamings
from gemmule.sw.text.corpus import Corpus, load_corpus

__all__ = ["Copy", "choose_copies", "fitting", "load_copies", "similarity"]

FILE = Path(__file__).resolve().parents[1] / "prompts" / "copies.json"
COUNT = 40
LEAST_BODY = 6
MOST_CHARS = 1000
LICENCE = (
    "Excerpts of CPython's standard library, Copyright (c) 2001-2023 Python Software Foundation and, where a text "
    "names them, its authors; Python Software Foundation License Version 2, https://docs.python.org/3/license.html")


@dataclass(frozen=True)
class Copy:
    """``text`` is the function, ``head`` the lines of its signature, ``edits`` the names that change: (old, new)."""

    where: str
    text: str
    head: int
    edits: tuple[tuple[str, str], ...]

    def _edited(self) -> str:
        text = self.text
        for old, new in self.edits:
            text = rename(text, old, new)
        return text

    @property
    def prompt(self) -> str:
        """The function and the signature of its copy."""
        return joined(self.text, "".join(self._edited().splitlines(keepends=True)[:self.head]))

    @property
    def wanted(self) -> str:
        """The body of the copy."""
        return "".join(self._edited().splitlines(keepends=True)[self.head:])


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def fitting(function: Function) -> bool:
    """Whether a function is one for the test: a body of enough lines, so short that the context holds it twice."""
    return function.body.count("\n") >= LEAST_BODY and len(function.text) <= MOST_CHARS


def choose_copies(corpus: Corpus, count: int = COUNT) -> list[Copy]:
    """Apply the rule.

    Raises:
        ValueError: the held-out files hold fewer functions.
    """
    every = [function for document in corpus.held_out for function in functions_of(document)]
    found = [one for one in every if fitting(one)]
    if len(found) < count:
        raise ValueError(f"the held-out files must hold {count} functions of {LEAST_BODY} lines, not {len(found)}")
    pool = name_pool(every)
    chosen = []
    for function in sorted(found, key=lambda one: _hash(one.where))[:count]:
        random = np.random.default_rng(_hash(function.where))
        edits = renamings(function, int(random.integers(MOST_EDITS + 1)), pool, random)
        chosen.append(Copy(function.where, function.text, function.head, tuple(edits)))
    return chosen


def digest(copies: list[Copy]) -> str:
    """The SHA-256 of the list as JSON."""
    return hashlib.sha256(json.dumps([asdict(copy) for copy in copies], sort_keys=True).encode()).hexdigest()


def load_copies(path: Path) -> list[Copy]:
    """The kept list.

    Raises:
        ValueError: it is not the list that its hash is of.
    """
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    copies = [Copy(one["where"], one["text"], one["head"], tuple((old, new) for old, new in one["edits"]))
              for one in record["copies"]]
    if digest(copies) != record["sha256"]:
        raise ValueError(f"{path}: the list's sha256 must be {record['sha256']}, not {digest(copies)}")
    return copies


def similarity(found: list[int], wanted: list[int]) -> float:
    """1 - Levenshtein distance over the longer length, of two token lists; two empty ones are equal."""
    row = np.arange(len(wanted) + 1)
    for count, token in enumerate(found, 1):
        swap = row[:-1] + (np.asarray(wanted) != token)  # [wanted]: the token replaces, or equals
        above = np.minimum(swap, row[1:] + 1)  # or is inserted
        # what is deleted costs one a step: a running minimum of cost minus place
        row = np.minimum.accumulate(np.concatenate(([count], above)) - np.arange(len(row))) + np.arange(len(row))
    return 1 - int(row[-1]) / max(1, len(found), len(wanted))


def main() -> None:
    """Print the list, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="choose again and write the file")
    parser.add_argument("--file", type=Path, default=FILE)
    args = parser.parse_args()
    if args.write:
        corpus = load_corpus()
        copies = choose_copies(corpus)
        record = {"python": platform.python_version(), "licence": LICENCE, "splits": corpus.digests(),
                  "sha256": digest(copies), "copies": [asdict(copy) for copy in copies]}
        write_atomically(args.file, json.dumps(record, indent=1) + "\n")
    for copy in load_copies(args.file):
        print(f"{copy.where:40} {copy.text.count(chr(10)):3} lines, {len(copy.edits)} edits")


if __name__ == "__main__":
    main()
