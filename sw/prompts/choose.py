"""Prompts to complete: 50 texts from files that neither training nor calibration of the bundled models saw.

    python -m gemmule.sw.prompts.choose            # say which, and their sha256
    python -m gemmule.sw.prompts.choose --write    # choose them again from the running Python's library

They are kept in ``completion.json``, so that everybody measures on the same text: the library differs between Python
versions. The rule that chose them knows no results:

* Files: the held-out split of the corpus (``gemmule.sw.text.corpus``), in the order of their paths' hashes.
* Files take turns. Each gives its first lines in its first turn, later the lines that its hash order of line numbers
  names next; 2 to 8 whole lines, as many as the hash says.
* Left out: beginnings in a blank line, lines of an earlier prompt, text that a file of the other splits holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically
from gemmule.sw.text.corpus import Corpus, load_corpus

__all__ = ["COUNT", "FILE", "LICENCE", "Prompt", "choose", "digest", "load"]

FILE = Path(__file__).with_name("completion.json")
COUNT = 50
MIN_LINES, MAX_LINES = 2, 8
LICENCE = (
    "Excerpts of CPython's standard library, Copyright (c) 2001-2023 Python Software Foundation and, where a text "
    "names them, its authors; Python Software Foundation License Version 2, https://docs.python.org/3/license.html")
_DEFINITION = re.compile(r"^\s*(async def|def|class) ", re.M)


@dataclass(frozen=True)
class Prompt:
    """``kind``: ``beginning`` of a file, text with a ``definition`` in it, or from the ``middle`` of something."""

    name: str
    kind: str
    text: str


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def digest(prompts: list[Prompt]) -> str:
    """The sha256 of all texts, each behind its length in bytes."""
    state = hashlib.sha256()
    for prompt in prompts:
        content = prompt.text.encode()
        state.update(len(content).to_bytes(8, "little") + content)
    return state.hexdigest()


def candidates(path: str, text: str) -> Iterator[tuple[int, int, Prompt]]:
    """(first, end, prompt) of a file, lines from 0: its beginning, then by the hash of ``path:line``."""
    lines = text.splitlines(keepends=True)
    order = sorted(range(1, len(lines)), key=lambda line: _hash(f"{path}:{line + 1}"))
    for first in [0, *order]:
        name = f"{path}:{first + 1}"
        end = first + MIN_LINES + _hash(f"{name} lines") % (MAX_LINES - MIN_LINES + 1)
        if end <= len(lines) and lines[first].strip():
            content = "".join(lines[first:end])
            kind = "beginning" if first == 0 else "definition" if _DEFINITION.search(content) else "middle"
            yield first, end, Prompt(name, kind, content)


def choose(corpus: Corpus, count: int = COUNT) -> list[Prompt]:
    """Apply the rule.

    Raises:
        ValueError: the held-out files hold fewer prompts.
    """
    seen = [text for split in (corpus.train, corpus.calibration) for _, text in split]
    files = sorted(corpus.held_out, key=lambda document: _hash(document[0]))
    left = {path: candidates(path, text) for path, text in files}
    taken: dict[str, set[int]] = {path: set() for path in left}
    chosen: list[Prompt] = []
    while left:
        for path in list(left):
            for first, end, prompt in left[path]:
                if taken[path].isdisjoint(range(first, end)) and not any(prompt.text in text for text in seen):
                    taken[path].update(range(first, end))
                    chosen.append(prompt)
                    break
            else:
                del left[path]
            if len(chosen) == count:
                return chosen
    raise ValueError(f"the held-out files must hold {count} prompts, not {len(chosen)}")


def load() -> tuple[dict[str, Any], list[Prompt]]:
    """What ``completion.json`` says of its texts, and the prompts.

    Raises:
        ValueError: the texts are not those that their sha256 is of.
    """
    record = json.loads(FILE.read_text())
    prompts = [Prompt(**fields) for fields in record.pop("prompts")]
    if digest(prompts) != record["sha256"]:
        raise ValueError(f"{FILE.name}: the texts' sha256 must be {record['sha256']}, not {digest(prompts)}")
    return record, prompts


def make() -> dict[str, Any]:
    """The content of ``completion.json`` by the running Python's library."""
    corpus = load_corpus()
    prompts = choose(corpus)
    return {"python": platform.python_version(), "licence": LICENCE, "splits": corpus.digests(),
            "sha256": digest(prompts), "prompts": [asdict(prompt) for prompt in prompts]}


def main() -> None:
    """Print the list, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="choose again and write the file")
    if parser.parse_args().write:
        write_atomically(FILE, json.dumps(make(), indent=1) + "\n")
    record, prompts = load()
    for prompt in prompts:
        print(f"{prompt.name:40} {prompt.kind:10} {prompt.text.count(chr(10)):3} lines")
    print(f"from the library of Python {record['python']}, sha256 of the texts {record['sha256']}")


if __name__ == "__main__":
    main()
