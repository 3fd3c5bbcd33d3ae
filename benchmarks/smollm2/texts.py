"""Windows of text of four kinds that calibration does not see, chosen before anything was measured on them.

Prose: paragraphs of Python's reference that :func:`gemmule.sw.models.import_texts.default_texts` keeps for measurement.
Code: modules of the standard library that no import reads. Chat, and questions about a text that stands before them:
``conversations.json``, written by people for this benchmark, in the model's own chat template.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np

from gemmule.sw.models.import_texts import MODULES, default_texts
from gemmule.sw.models.sources import Source
from gemmule.sw.text.chat import Template
from gemmule.sw.text.tokens import token_windows

__all__ = ["CODE", "LENGTH", "conversations", "digest", "windows_of"]

LENGTH, EACH = 512, 4
"""Tokens of a window, windows of a kind."""
CODE = ("calendar", "configparser", "queue", "tempfile")
CONVERSATIONS = Path(__file__).parent / "conversations.json"


def conversations(kind: str) -> list[list[dict[str, str]]]:
    """Those of ``chat`` or ``context``."""
    found: list[list[dict[str, str]]] = json.loads(CONVERSATIONS.read_text())[kind]
    return found


def windows_of(source: Source, prefix: tuple[int, ...]) -> dict[str, np.ndarray]:
    """By kind, int64 [4, 512]; ``prefix`` stands in the cache, so a conversation that begins with it goes on behind it.
    """
    if set(CODE) & {name for part in MODULES.values() for name in part}:
        raise SystemExit(f"modules that are measured on must not be calibrated with, as one of {CODE} is")
    prose = token_windows(source.tokenizer, default_texts("evaluation")["prose"], LENGTH, "prose")
    found = {"prose": prose[np.linspace(0, len(prose) - 1, EACH).astype(np.int64)],
             "code": np.stack([_middle(source, name) for name in CODE])}
    return found | {kind: np.stack([_conversation(source, messages, prefix) for messages in conversations(kind)])
                    for kind in ("chat", "context")}


def _middle(source: Source, module: str) -> np.ndarray:
    """The window in the middle of a module."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        raise SystemExit(f"the standard library's sources are needed, and {module} is not there")
    windows = token_windows(source.tokenizer, Path(spec.origin).read_text("utf-8"), LENGTH, module)
    return windows[len(windows) // 2]


def _conversation(source: Source, messages: list[dict[str, str]], prefix: tuple[int, ...]) -> np.ndarray:
    """The first tokens of a conversation, without those that are in the cache."""
    if source.chat is None:
        raise SystemExit("a model without a chat template has no conversations")
    ids = source.tokenizer.encode(Template(source.chat, "the model").render(messages), add_special_tokens=False).ids
    if tuple(ids[:len(prefix)]) == prefix:
        ids = ids[len(prefix):]
    if len(ids) < LENGTH:
        raise SystemExit(f"a conversation must have {LENGTH} tokens behind {prefix}, not {len(ids)}")
    return np.array(ids[:LENGTH], dtype=np.int64)


def digest(windows: dict[str, np.ndarray]) -> str:
    """SHA-256 of all windows."""
    return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in windows.values())).hexdigest()
