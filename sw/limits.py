"""What options may be: choices, ranges and their units; light, so that help need not load the device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmule.sw.errors import InputError

__all__ = [
    "ACTIVATION", "ADAPTIVE_MOST", "ARCHITECTURES", "ATTENTION", "BACKENDS", "BATCH", "BEST", "BITS", "CATEGORIES",
    "COMMANDS", "COMPUTES", "CONTEXTS", "CORPORA", "DATAFLOWS", "DEFAULT", "Decimals", "DRAFTS", "ENGINES",
    "FIRST_SEED", "FUSION", "KV_CACHES", "LAUNCHES", "LAYER_SEARCHES", "LENGTHS", "Listed", "METHODS_OF_ROUNDING",
    "MINUTES", "MODELS", "MODELS_FOLDER", "MUTANTS", "NO_CORPUS", "OVERFLOWS", "PENALTY", "PHASES", "POSITION",
    "PREFILL", "PRESETS", "PROGRAMS", "PROMPTS", "PROMPTS_BYTES", "PROMPT_BYTES", "PROVED", "RANKS", "REQUESTS", "ROWS",
    "SCORES", "SEARCHES", "SEED", "SEEDS", "SERVED", "SERVED_RATE", "SIZE", "SMALL", "SOFTMAX", "SWEPT", "Several",
    "TARGETS", "TEMPERATURE", "THREADS", "TOP_K", "TRAINED_FOR", "TUNED", "VERIFY", "WEIGHTS", "WIDTH", "WRITINGS",
    "Range", "check_choice", "either", "new_tokens", "parse_shape", "resolve_pair",
]

PRESETS = ("tiny", "edge", "base")
BACKENDS = ("model", "rtl")
DATAFLOWS = ("ws", "os")
SEARCHES = ("formula", "exhaustive", "optuna", "cp-sat")
LAYER_SEARCHES = ("first", "branch-and-bound")
WEIGHTS = ("int8", "int4")
BITS = WEIGHTS
ARCHITECTURES = (
    "bert-base", "bert-large", "gpt2", "gpt2-medium", "gpt2-xl", "opt-125m", "opt-1.3b", "opt-6.7b", "tinyllama-1.1b",
    "phi-1.3b", "open-llama-7b", "llama-68m", "llama-2-7b", "mistral-7b")
ENGINES = ("local", "ray", "dask")
SWEPT = ("seq", "rows", "layers", "hidden")
"""What `gemmule run arch --sweep` can change."""
METHODS_OF_ROUNDING = ("auto", "nearest", "second-order")
LENGTHS = ("constant", "heuristic", "confidence", "cost", "batch")
ADAPTIVE_MOST = 8
"""Tokens of a step at most where a schedule chooses and no option says how many."""
LAUNCHES = ("pass", "draft", "step")
OVERFLOWS = ("stop", "crop", "sinks")
KV_CACHES = ("full", "none")
SCORES = ("attention", "heavy", "none", "pages", "chunks")
"""By what rows of a cache are chosen: what the last rows attend to, by KV head; what all rows have attended to (heavy
hitters); or nothing, so that the first and the newest ones stay; or by each row itself, in pages; or by the last row's
products with the means of chunks. All but pages choose at fixed positions."""
COMPUTES = ("auto", "device", "interpreter")
VERIFY = ("match", "rejection")
TEMPERATURE = (0.001, 1000.0)
RANKS = ("mean", "majority")
"""By what the best of several sampled texts is chosen."""
ATTENTION = ("exact", "standard", "online")
SOFTMAX = ("exact", "softermax", "ibert")
ACTIVATION = ("table", "word", "ibert")
FUSION = ("on", "off")
PHASES = ("prefill", "decode")
CATEGORIES = ("completion", "copy", "docstring", "table", "repetition")
REQUESTS = ("code", "chat", "grounded", "rewrite", "summary", "translation", "reasoning")
"""Categories of prompts of chat models."""
WRITINGS, NO_CORPUS = "writings", "none"
CORPORA = ("all", "code", "prose", WRITINGS, "own")
"""Texts to draft from: of Python, those that the model brings of its own, and the last one is a user's."""
TARGETS = ("ecp5-85k", "gowin-138k", "osu018", "sky130")
PROVED = ("registers", "control", "watchdog", "fetch", "fetch-repeats", "loops", "dispatch", "queue", "head-queue",
          "waits", "issue", "claims", "bursts", "load-requests", "load-whole", "store-reader", "store-sender",
          "read-arbiter")
"""What `gemmule formal` proves something of."""
DEFAULT, SMALL, TUNED = MODELS = ("default", "small", "tuned")
"""Bundled pairs of target and draft: one worth decoding, one for RTL runs and quick tests, and the first one with its
target tuned to draft for itself."""
TRAINED_FOR = {"parallel": "smollm2", "eagle": "smollm2", "medusa": DEFAULT, "blockwise": DEFAULT, "hydra": DEFAULT}
"""By kind of drafter that reads the target's hidden rows, a model that comes with one."""
CONTEXTS = {DEFAULT: 1024, SMALL: 256, TUNED: 1024}
"""Positions of a pair, prompt and new tokens together."""
MODELS_FOLDER = Path(__file__).resolve().parent / "models"
PROMPT_BYTES = 1 << 16
PROMPTS_BYTES = 1 << 24
"""Of a file of several texts."""


@dataclass(frozen=True)
class Range:
    """An integer option's range, both ends included.

    Attributes:
        unit: what is counted; empty for plain numbers.
        why: the reason of the upper end, where it is not obvious.
    """

    low: int
    high: int
    unit: str = ""
    why: str = ""

    def __str__(self) -> str:
        """As help shows it."""
        return f"{self.low:,} to {self.high:,}" + f" {self.unit}" * bool(self.unit)

    def check(self, option: str, value: int) -> int:
        """``value``.

        Raises:
            InputError: it is outside.
        """
        if not self.low <= value <= self.high:
            why = f" ({self.why})" if self.why else ""
            raise InputError(f"{option} must be from {self.low} to {self.high}{why}, not {value}")
        return value


@dataclass(frozen=True)
class Decimals:
    """A number option's range, both ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        """As help shows it."""
        return f"{self.low:g} to {self.high:g}"

    def check(self, option: str, value: float) -> float:
        """``value``.

        Raises:
            InputError: it is outside.
        """
        if not self.low <= value <= self.high:
            raise InputError(f"{option} must be from {self.low:g} to {self.high:g}, not {value:g}")
        return value


WIDTH = Range(1, 16, "texts", "one pass has 16 rows")
BEST = Range(2, 16, "texts", "one pass has 16 rows")
PENALTY = Decimals(-10, 10)
SEED = Range(0, 2**32 - 1)
THREADS = Range(1, 256, "threads")
DRAFTS = Range(1, 15, "tokens", "one pass verifies 16 rows")
BATCH = Range(1, 32, "texts")
SERVED = Range(1, 10_000, "requests")
SERVED_RATE = Decimals(1e-3, 1e6)
PROMPTS = ("ahead", "beside")
"""Where rows of prompts go in a batch: before the rows that decode, or beside them."""
ROWS = Range(1, 16, "rows")
PREFILL = Range(0, 512, "rows")
POSITION = Range(0, CONTEXTS[SMALL] - 1, "positions")
MUTANTS = Range(1, 1000, "mutants")
MINUTES = Range(1, 10**4, "minutes")
PROGRAMS = Range(1, 10**6, "programs")
SEEDS = Range(1, 9, "times")
FIRST_SEED = Range(1, 9)
COMMANDS = Range(40, 1000, "commands")
TOP_K = Range(1, 1 << 16, "tokens")
SIZE = Range(1, 1 << 20, "rows or columns")


def resolve_pair(name: str, folder: Path = MODELS_FOLDER) -> str:
    """The bundled pair whose files ``name`` stands for: ``default`` is ``small`` until its own are there.

    Raises:
        InputError: there is no such pair.
    """
    check_choice("--model", name, MODELS)
    if name == TUNED:
        return DEFAULT
    return SMALL if name == DEFAULT and not (folder / DEFAULT / "manifest.json").exists() else name


def new_tokens(context: int) -> Range:
    """How many tokens a model with a context of so many positions can generate."""
    return Range(1, context - 1, "tokens", f"prompt and new tokens share a context of {context}")


@dataclass(frozen=True)
class Listed:
    """An option that names several of some numbered things: ``3,7-9``.

    Attributes:
        high: the largest number.
        unit: what is numbered.
    """

    high: int
    unit: str

    def __str__(self) -> str:
        return f"numbers of {self.unit} from 0 to {self.high:,}, such as 3,7-9"

    def check(self, option: str, value: str) -> str:
        """``value``.

        Raises:
            InputError: it is no such list.
        """
        self.numbers(option, value)
        return value

    def numbers(self, option: str, value: str) -> tuple[int, ...]:
        """What it names, rising."""
        found: set[int] = set()
        for part in value.split(","):
            named = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
            first, last = (int(named[1]), int(named[2] or named[1])) if named else (1, 0)
            if not first <= last <= self.high:
                raise InputError(f"{option} must be {self}, not {value!r}")
            found.update(range(first, last + 1))
        return tuple(sorted(found))


@dataclass(frozen=True)
class Several:
    """An option that names several of some words: ``draft,suffix``."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"some of {', '.join(self.words)}, separated by commas"

    def check(self, option: str, value: str) -> str:
        """``value``.

        Raises:
            InputError: it is no such list, or names a word twice.
        """
        named = self.named(value)
        if not set(named) <= set(self.words) or len(set(named)) < len(named):
            raise InputError(f"{option} must be {self}, each once, not {value!r}")
        return value

    def named(self, value: str) -> tuple[str, ...]:
        """What it names."""
        return tuple(part.strip() for part in value.split(","))


def check_choice(option: str, value: str, known: tuple[str, ...]) -> str:
    """``value``.

    Raises:
        InputError: it is none of the known ones.
    """
    if value not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}, not {value!r}")
    return value


def either(words: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def parse_shape(text: str, option: str = "--shape") -> tuple[int, int, int]:
    """``MxKxN`` to three integers in range.

    Raises:
        InputError: not three such integers; ``option`` is named.
    """
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", text)
    if not match or not all(SIZE.low <= int(size) <= SIZE.high for size in match.groups()):
        raise InputError(f"{option} must be MxKxN with integers from {SIZE.low} to {SIZE.high}, not {text!r}; try "
                         f"512x768x768")
    m, k, n = map(int, match.groups())
    return m, k, n
