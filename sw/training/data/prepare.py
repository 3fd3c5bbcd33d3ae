"""The corpus as arrays on disk: tokens by origin, functions with their copies, and a record of what went in.

    python -m gemmule.sw.training.data.prepare --out build/train

Needs the packages of the extra ``train``, not torch itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gemmule.sw.prompts.functions import Function, copy_of, functions_of, joined, name_pool
from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.text.corpus import Document, byte_count, digest, load_corpus
from gemmule.sw.training.data.packages import (
    MOST_SHARED,
    SECOND,
    TRAINED,
    Source,
    Texts,
    assemble,
    choose,
    read_package,
)
from gemmule.sw.training.data.tokenizer import save_tokenizer, token_stream, train_tokenizer
from gemmule.sw.training.networks.export import write_json
from gemmule.sw.training.yardstick import Tokens

__all__ = ["SEPARATOR", "Arrays", "chosen_functions", "encoded", "functions_in", "load_arrays", "prepare", "read_texts"]

RECORD = "corpus.json"
STREAMS = ("library", "packages", "calibration")
PASSES = 2
"""Copies of each function of the library; as many are made of functions of the packages."""
SEPARATOR = "\n\n"


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """What training reads.

    Attributes:
        library, packages, calibration: token streams, ``<eos>`` between files.
        copies: functions, each followed by its copy, one pair behind the other.
        starts: where pairs begin in ``copies``, and where the last ends.
    """

    library: Tokens
    packages: Tokens
    calibration: Tokens
    copies: Tokens
    starts: Tokens


def read_texts() -> tuple[Texts, list[Source]]:
    """The documents of this interpreter's library and of the installed packages.

    Raises:
        ValueError: a package is missing or has another version.
    """
    trained, second = [read_package(package) for package in TRAINED], read_package(SECOND)
    texts = assemble(load_corpus(), [document for source in trained for document in source.documents],
                     choose(second.documents))
    return texts, [*trained, second]


def functions_in(documents: list[Document]) -> list[Function]:
    """Of all of them."""
    return [function for document in documents for function in functions_of(document)]


def chosen_functions(texts: Texts, random: np.random.Generator) -> tuple[list[Function], list[str]]:
    """Functions to copy, half of them of the library, in random order, and what their names can become."""
    library, packages = functions_in(texts.library), functions_in(texts.packages)
    names = name_pool([*library, *packages])
    chosen = library * PASSES
    chosen += [packages[i] for i in random.permutation(len(packages))[:len(chosen)]]
    return [chosen[i] for i in random.permutation(len(chosen))], names


def pairs_of(texts: Texts, seed: int) -> list[str]:
    """Functions with their copies, half of them of the library, in random order."""
    random = np.random.default_rng((seed, 1))
    chosen, names = chosen_functions(texts, random)
    return [joined(one.text, copy_of(one, names, random)) + SEPARATOR for one in chosen]


def _counts(documents: list[Document]) -> dict[str, Any]:
    return {"files": len(documents), "bytes": byte_count(documents), "sha256": digest(documents)}


def encoded(tokenizer: Tokenizer, texts: list[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Texts one behind the other, and where each begins and the last ends."""
    parts: list[NDArray[np.uint16]] = []
    for start in range(0, len(texts), 256):
        parts += [np.asarray(one.ids, dtype=np.uint16)
                  for one in tokenizer.encode_batch(texts[start:start + 256], add_special_tokens=False)]
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


def prepare(out: Path, seed: int) -> dict[str, Any]:
    """Write the tokenizer and the arrays below ``out`` and return the record; what is there already is read.

    Raises:
        ValueError: a package is missing or has another version.
    """
    folder = out / "corpus"
    if (folder / RECORD).exists():
        done: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return done
    texts, sources = read_texts()
    folder.mkdir(parents=True, exist_ok=True)
    if not (out / "tokenizer.json").exists():
        # of the library alone, whole train split, so that the models of every pair share their tokens
        save_tokenizer(train_tokenizer(text for _, text in load_corpus().train), out / "tokenizer.json")
    tokenizer = load_tokenizer(out / "tokenizer.json")
    splits: dict[str, Any] = {}
    for name in (*STREAMS, "held_out", "second"):
        documents: list[Document] = getattr(texts, name)
        stream = token_stream(tokenizer, documents)
        splits[name] = _counts(documents) | {"tokens": len(stream)}
        if name in STREAMS:
            np.save(folder / f"{name}.npy", stream.astype(np.uint16))
    pairs = pairs_of(texts, seed)
    copies, starts = encoded(tokenizer, pairs)
    np.save(folder / "copies.npy", copies)
    np.save(folder / "starts.npy", starts)
    record: dict[str, Any] = {
        "python": platform.python_version(), "seed": seed, "splits": splits,
        "copies": {"pairs": len(pairs), "tokens": len(copies)},
        "packages": [{"name": source.name, "version": source.version, "licence": source.licence,
                      "trained": source.name != SECOND.name} | _counts(source.documents) for source in sources],
        "dropped_above": MOST_SHARED,
        "dropped": [{"path": path, "shared": round(share, 4)} for path, share in texts.dropped],
    }
    write_json(folder / RECORD, record)
    return record


def load_arrays(out: Path) -> Arrays:
    """What :func:`prepare` wrote.

    Raises:
        ValueError: nothing is there.
    """
    if not (out / "corpus" / f"{STREAMS[0]}.npy").is_file():
        raise ValueError(f"{out}: has no corpus: run gemmule.sw.training.data.prepare, or give another --out")
    return Arrays(**{name: np.load(out / "corpus" / f"{name}.npy").astype(np.int64)
                     for name in (*STREAMS, "copies", "starts")})


def main() -> None:
    """Prepare, and print the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        record = prepare(args.out, args.seed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps({name: value for name, value in record.items() if name != "dropped"}, indent=1))
    print(f"dropped, since more than {MOST_SHARED:.0%} of their long lines are in held-out files:")
    for one in record["dropped"]:
        print(f"  {one['shared']:6.1%} {one['path']}")


if __name__ == "__main__":
    main()
