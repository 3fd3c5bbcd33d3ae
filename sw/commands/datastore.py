"""``gemmule datastore``: texts to draft from, made for a model's tokens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gemmule.sw.commands.shared.common import JsonOption, ModelOption, Output, choice
from gemmule.sw.errors import InputError
from gemmule.sw.limits import CORPORA, DEFAULT

__all__ = ["datastore"]


def datastore(
    model: ModelOption = DEFAULT,
    corpus: Annotated[str, choice(
        "--corpus", CORPORA, "Texts of the datastore: modules of Python's standard library (code), their documentation "
        "and the language reference (prose), or both (all); own: your newest --text.")] = CORPORA[0],
    text: Annotated[Path | None, typer.Option(
        "--text", metavar="FILE", show_default=False,
        help="Make the datastore `own` of this file (UTF-8), in the place of the one before.")] = None,
    json: JsonOption = None,
) -> None:
    """Make the datastore that --method retrieval drafts from, or show it: tokens, bytes, file.

    It is kept in the cache (`gemmule cache show`). --method retrieval makes what is missing by itself, but for a text
    of yours.

    \b
    Examples:
      gemmule datastore --model small
      gemmule datastore --model small --text CHANGELOG.md
    """
    if text is not None and corpus not in (CORPORA[0], CORPORA[-1]):
        raise InputError(f"--text makes the datastore {CORPORA[-1]}, not {corpus}: drop --corpus")
    out = Output(json)

    from gemmule.sw.datastore.kept import make_own, open_datastore
    from gemmule.sw.models.import_texts import read_text
    from gemmule.sw.models.pair import open_pair

    pair = open_pair(model)
    tokenizer = pair.known_tokenizer
    begin = time.perf_counter()
    kept = (open_datastore(pair.name, tokenizer, corpus) if text is None else
            make_own(pair.name, tokenizer, read_text(text, "--text")))
    seconds, size, tokens = time.perf_counter() - begin, kept.path.stat().st_size, len(kept.datastore.tokens)
    out.print(f"{pair.name}: datastore {CORPORA[-1] if text else corpus}, {tokens:,} tokens, {size / 1e6:.1f} MB, "
              f"{seconds:.1f} s")
    out.console.print(str(kept.path), markup=False, soft_wrap=True)
    out.write("datastore", None, {
        "model": pair.name, "corpus": CORPORA[-1] if text else corpus, "tokens": tokens, "bytes": size,
        "path": str(kept.path), "digest": kept.datastore.digest})
