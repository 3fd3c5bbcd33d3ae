"""Text that an import calibrates with and measures on, as windows of what the device sees of it.

Without files of the user's: the Python reference that every Python brings (``pydoc_data.topics``, PSF licence) as
prose, modules of its standard library as code, and, for models with a chat template, the same prose as conversations.
Paragraphs and modules of measurement are others than those of calibration.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.files.chat import Chat
from gemmule.sw.errors import InputError
from gemmule.sw.models.sources import Source
from gemmule.sw.text.chat import Template
from gemmule.sw.text.tokens import sentence_windows, token_windows

__all__ = ["CALIBRATION_WINDOWS", "Texts", "default_texts", "read_text", "texts_of"]

TEXT_BYTES = 64 << 20
"""Of a text file."""
HELD_OUT = 5
"""Without --evaluate every so many-th part of --calibrate is measured on and not calibrated with: its end."""
CALIBRATION_WINDOWS = 16
EVALUATION_WINDOWS = 8
"""Windows of all kinds together, and two of each at least: enough to judge by, quick enough to wait for."""
CHAT_SHARE = 4
"""Of a chat model every so many-th window of calibration is a conversation."""
MODULES = {
    "calibration": ("argparse", "csv", "heapq", "json.decoder", "statistics", "textwrap"),
    "evaluation": ("difflib", "fractions", "random", "shlex", "string", "zipapp"),
}
DEFAULT = "the default text"


@dataclass(frozen=True)
class Texts:
    """Windows of tokens, each int64 [windows, length]."""

    used: np.ndarray
    """Those of calibration."""
    measured: dict[str, np.ndarray]
    """Those of measurement by kind of text."""


def read_text(path: Path, option: str) -> str:
    """A text file's content.

    Raises:
        InputError: it cannot be read, is too large, empty or not UTF-8.
    """
    try:
        with path.open("rb") as opened:
            data = opened.read(TEXT_BYTES + 1)
    except OSError as error:
        raise InputError(f"{option} must name a file that can be read, not {str(path)!r}: {error.strerror}") from None
    if len(data) > TEXT_BYTES:
        raise InputError(f"{option} must hold at most {TEXT_BYTES:,} bytes, not more: give a part of {str(path)!r}")
    try:
        words = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{option} must be UTF-8 text, not with byte {data[error.start]:#04x} at {error.start} of "
                         f"{str(path)!r}: convert it") from None
    if not words.strip():
        raise InputError(f"{option} must hold text, not {str(path)!r}, which is empty")
    return words


def default_texts(part: str) -> dict[str, str]:
    """Text by kind for ``part``: calibration or evaluation; equal wherever Python's version is.

    Raises:
        InputError: this Python lacks its own sources or documentation.
    """
    try:
        from pydoc_data.topics import topics

        code = [_source(name) for name in MODULES[part]]
    except (ImportError, OSError):
        raise InputError("--calibrate must name a text file where Python is installed without its standard library's "
                         "sources and documentation") from None
    names = sorted(topics)
    used, measured = (dict.fromkeys(paragraph for name in names[first::2] for paragraph in topics[name].split("\n\n"))
                      for first in (0, 1))  # some topics stand within others
    prose = used if part == "calibration" else [paragraph for paragraph in measured if paragraph not in used]
    return {"prose": "\n\n".join(prose), "code": "\n\n".join(code)}


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        raise ImportError(name)
    return Path(spec.origin).read_text("utf-8")


def texts_of(source: Source, length: int, calibrate: str | None, evaluate: dict[str, str]) -> Texts:
    """Windows of ``length`` tokens, each beginning with what the tokenizer puts before a prompt.

    ``calibrate`` None: the default text; ``evaluate`` empty: the end of ``calibrate``, or the default text.

    Raises:
        InputError: a text has not one window, or a chat template refuses a conversation.
    """
    cut = _Cutter(source, length)
    measured = {kind: cut.windows(text, "--evaluate") for kind, text in evaluate.items()}
    if calibrate is not None:
        used = cut.windows(calibrate, "--calibrate")
        if not measured:
            if len(used) < 2:
                raise InputError(f"--calibrate must hold at least {2 * length} tokens, not fewer: give more text, or "
                                 "--evaluate another file")
            end = max(1, len(used) // HELD_OUT)
            used, measured = used[:-end], {"text": used[-end:]}
    else:
        used = np.concatenate([_spread(cut.windows(text, DEFAULT), CALIBRATION_WINDOWS // 2)
                               for text in default_texts("calibration").values()])
        if not measured:
            texts = default_texts("evaluation")
            measured = {kind: cut.windows(text, DEFAULT) for kind, text in texts.items()}
            if source.chat and not source.network.graph.encoder:
                measured["chat"] = cut.chats(source.chat, texts["prose"])
    used = _spread(used, CALIBRATION_WINDOWS)
    if source.chat and not source.network.graph.encoder:
        used[::CHAT_SHARE] = cut.framed(source.chat, used[::CHAT_SHARE])
    each = max(2, EVALUATION_WINDOWS // len(measured))
    return Texts(used, {kind: _spread(windows, each) for kind, windows in measured.items()})


class _Cutter:
    """Cuts text into windows."""

    def __init__(self, source: Source, length: int) -> None:
        self.source, self.length = source, length
        self.tokenizer: Tokenizer = source.tokenizer

    def windows(self, text: str, option: str) -> np.ndarray:
        """Windows of a text  # int64 [windows, length]."""
        if self.source.network.graph.encoder:
            return sentence_windows(self.tokenizer, text, self.length, option)
        before = self.source.bos
        if len(before) + 2 > self.length:
            raise InputError(f"--window must be more than {len(before) + 1} tokens, not {self.length}: prompts begin "
                             f"with {len(before)} of the tokenizer's own")
        found = token_windows(self.tokenizer, text, self.length - len(before), option)
        return np.concatenate([np.tile(np.array(before, dtype=np.int64), (len(found), 1)), found], axis=1)

    def chats(self, chat: Chat, text: str) -> np.ndarray:
        """Windows that are conversations."""
        return self.framed(chat, _spread(self.windows(text, DEFAULT), EVALUATION_WINDOWS))

    def framed(self, chat: Chat, windows: np.ndarray) -> np.ndarray:
        """The same windows as conversations: their first half is what the user says, their second half the answer."""
        template, found = Template(chat, "the model"), []
        for window in windows.tolist():
            own = window[len(self.source.bos):]
            said, answer = (self.tokenizer.decode(part) for part in (own[:len(own) // 2], own[len(own) // 2:]))
            asked = template.render([{"role": "user", "content": said}])
            ids = [token for part in (asked, answer)
                   for token in self.tokenizer.encode(part, add_special_tokens=False).ids]
            found.append((ids + own)[:self.length])
        return np.array(found, dtype=np.int64)


def _spread(windows: np.ndarray, most: int) -> np.ndarray:
    """At most so many windows, evenly over the text."""
    count = min(len(windows), most)
    return windows[np.linspace(0, len(windows) - 1, count).astype(np.int64)]
