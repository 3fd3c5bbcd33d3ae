"""What a model is read from: a Hugging Face folder, a GGUF file, or the name of a published model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from gemmule.compiler.chat import Chat
from gemmule.compiler.importers import end_tokens, label_names, load_network
from gemmule.compiler.ir import Network
from gemmule.sw.published import PUBLISHED, published_file
from gemmule.sw.tokens import load_tokenizer

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
    network = load_network(path)
    tokenizer, text = load_tokenizer(path, network.graph.vocab)
    return Source(
        network=network, tokenizer=tokenizer, tokenizer_json=text, ends=end_tokens(path, network.graph.vocab),
        chat=None, bos=(), notes=(), labels=label_names(path) if network.graph.heads else ())
