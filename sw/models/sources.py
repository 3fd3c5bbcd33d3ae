"""What a model is read from: a Hugging Face folder, a GGUF file, or the name of a published model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from gemmule.compiler.files.chat import Chat
from gemmule.compiler.importers import end_tokens, label_names, load_network
from gemmule.compiler.importers.gguf.checkpoint import gguf_notes
from gemmule.compiler.importers.gguf.file import is_gguf, open_gguf
from gemmule.compiler.ir import Network
from gemmule.io.reading import named
from gemmule.sw.errors import InputError
from gemmule.sw.models.added_tokens import apply_beside
from gemmule.sw.models.beside import chat_of, generation_of
from gemmule.sw.models.gguf_tokenizer import parse_gguf_text, tokenizer_text
from gemmule.sw.models.published import PUBLISHED, published_file
from gemmule.sw.text.tokens import load_tokenizer, parse_tokenizer

__all__ = ["Source", "read_source"]


@dataclass(frozen=True)
class Source:
    """A float network and everything about its text."""

    network: Network
    tokenizer: Tokenizer
    tokenizer_json: str
    """The same as text, as model files keep it."""
    ends: tuple[int, ...]
    """Tokens that end a text."""
    chat: Chat | None
    bos: tuple[int, ...]
    """Tokens that the tokenizer itself puts before a raw prompt."""
    notes: tuple[str, ...]
    """What was applied or ignored, a line each."""
    labels: tuple[str, ...]
    """Names of a classifier's classes."""


def read_source(source: str | Path) -> Source:
    """Read a folder, a ``.gguf`` file, or a published model by its name; a folder or file of that name comes first.

    Raises:
        CompileError: the network cannot be read; one line that names file, value and rule.
        InputError: the same of the tokenizer and what stands beside.
    """
    path = Path(source)
    if str(source) in PUBLISHED and not path.exists():
        path = published_file(str(source))
    return _file(path) if is_gguf(path) else _folder(path)


def _file(path: Path) -> Source:
    """A GGUF file."""
    network, file = load_network(path), open_gguf(path)
    vocab = network.graph.vocab
    try:
        keys = parse_gguf_text(file.metadata)
        if len(keys.tokens) > vocab:
            raise InputError(f"tokenizer.ggml.tokens must be at most the model's {vocab:,}, not {len(keys.tokens):,}")
        text = tokenizer_text(keys)
    except InputError as error:
        raise InputError(f"{named(path)}: {error}") from None
    tokenizer = parse_tokenizer(text, named(path), vocab)
    return Source(
        network=network, tokenizer=tokenizer, tokenizer_json=text, ends=keys.ends, chat=keys.chat,
        bos=_before(tokenizer), notes=tuple(gguf_notes(file)), labels=())


def _folder(folder: Path) -> Source:
    """A Hugging Face folder."""
    network = load_network(folder)
    vocab = network.graph.vocab
    tokenizer, text = load_tokenizer(folder, vocab)
    before = tokenizer.to_str()
    config, notes = apply_beside(tokenizer, folder, vocab)
    if (after := tokenizer.to_str()) != before:  # read again: the library lets no token stop being special
        tokenizer, text = parse_tokenizer(after, named(folder / "tokenizer.json"), vocab), after
    ends, more = generation_of(folder, vocab, end_tokens(folder, vocab))
    chat, of_chat = chat_of(folder, config)
    return Source(
        network=network, tokenizer=tokenizer, tokenizer_json=text, ends=ends, chat=chat, bos=_before(tokenizer),
        notes=(*notes, *more, *of_chat), labels=label_names(folder) if network.graph.heads else ())


def _before(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What a tokenizer puts before a text."""
    whole = tokenizer.encode("a", add_special_tokens=True)
    return tuple(whole.ids[:next((at for at, special in enumerate(whole.special_tokens_mask) if not special),
                                 len(whole.ids))])
