"""Trained drafters of a published model: quantised once for the target as it is in integers, then from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from gemmule.compiler.files.model_file import ModelFile, load_model
from gemmule.compiler.ir import Borrowed, Network
from gemmule.compiler.quantize.restore import restore_network
from gemmule.compiler.quantize.rotate import Rotation
from gemmule.compiler.sources import sources
from gemmule.io.cache import cache_folder, cache_root, writing
from gemmule.io.files import write_atomically
from gemmule.io.locks import exclusive
from gemmule.io.progress import say
from gemmule.io.steady import steadily
from gemmule.sw.errors import InputError
from gemmule.sw.limits import MODELS, MODELS_FOLDER, TRAINED_FOR
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.models.import_texts import default_texts, texts_of
from gemmule.sw.models.published import PUBLISHED
from gemmule.sw.models.quantised import FOLDER, LOCK, SOURCES, read_cached
from gemmule.sw.models.sources import read_source
from gemmule.sw.models.trained.calibrate import calibrated, heads_calibrated, quantised_bytes, steps_of
from gemmule.sw.models.trained.eagle import eagle_network
from gemmule.sw.models.trained.heads import heads_network
from gemmule.sw.models.trained.hydra import hydra_network
from gemmule.sw.models.trained.nodes import Target
from gemmule.sw.models.trained.parallel import parallel_network
from gemmule.sw.models.trained.read import Trained, read_trained

__all__ = ["KINDS", "DrafterFile", "drafter_path", "instead", "trained_drafter"]

KINDS = {"parallel": (parallel_network, "one-pass drafter"), "eagle": (eagle_network, "sequential drafter"),
         "medusa": (heads_network, "Medusa heads"), "blockwise": (heads_network, "blockwise heads"),
         "hydra": (hydra_network, "Hydra heads")}
"""By kind, what makes the float network, and what people call it."""
WINDOW = 128
"""Tokens of a window of calibration, the masks behind them among these."""
WINDOWS = 8
"""Of each kind of text by which a bundled target's heads are calibrated."""
TRAINING = "gemmule.sw.training.heads.published"
"""Trains those of a published model."""
ALONE = ("medusa", "blockwise", "hydra")
"""Kinds whose rows see no others, so that nothing of a text is kept."""


@dataclass(frozen=True)
class DrafterFile:
    """A drafter in integers.

    Attributes:
        file: its network; the masks are its last tokens.
        every: layers of the target from one depth that it reads to the next.
        tokens: the target's token of each number of its logits, int64.
        masks: ids of the masks, in the order of positions.
        shares: of paths of ranks, as of :class:`gemmule.sw.models.trained.read.Trained`.
    """

    file: ModelFile
    every: int
    tokens: np.ndarray
    masks: tuple[int, ...]
    shares: Mapping[tuple[int, ...], float]

    @property
    def chained(self) -> bool:
        """Whether its passes read rows that earlier ones left."""
        return any(isinstance(node, Borrowed) and node.own for node in self.file.network.graph.nodes)


def drafter_path(name: str, kind: str) -> Path | None:
    """Where the drafter of a kind that was trained for a published or bundled model lies; None: there is none."""
    path = MODELS_FOLDER / name / f"{kind}.safetensors"
    return path if path.is_file() else None


def instead(name: str, kind: str) -> str:
    """What a user does about a drafter that a model does not have."""
    train = f"train it (python -m {TRAINING}), " if name in PUBLISHED and kind in ALONE else ""
    return f"{train}take --model {TRAINED_FOR[kind]}, or another --method"


def trained_drafter(name: str, kind: str, target: ModelFile) -> DrafterFile:
    """A drafter of a published or bundled model, for its file in integers. The first call makes it, which takes up to a
    minute.

    Raises:
        CacheError: it cannot be kept.
        CompileError: the trained drafter, or the model, cannot be read.
        InputError: no drafter of this kind was trained for it.
    """
    path, called = drafter_path(name, kind), KINDS[kind][1]
    if path is None:
        raise InputError(f"{name} comes with no trained {called}: {instead(name, kind)}")
    trained = read_trained(path, kind)
    key = sha256(sources((*SOURCES, "sw/models/trained/*.py")) + path.read_bytes() + target.sha256.encode())
    kept = cache_root() / FOLDER / f"{name}-{kind}-{key.hexdigest()[:16]}.safetensors"
    if (found := read_cached(kept)) is None:
        cache_folder(FOLDER)
        with ExitStack() as alone:
            with writing():
                alone.enter_context(exclusive(kept.with_name(kept.name + LOCK), kept.name))
            if (found := read_cached(kept)) is None:  # else another process has just made it
                say(f"making the {called} of {name} once, which takes a minute; kept as {kept}")
                content = steadily(_made, name, trained, target)
                with writing():
                    write_atomically(kept, content)
                found = load_model(kept)
    vocab = found.network.graph.vocab
    return DrafterFile(found, min(trained.depths), trained.tokens, tuple(range(vocab - trained.masks, vocab)),
                       trained.shares)


def _made(name: str, trained: Trained, target: ModelFile) -> bytes:
    source, texts = _bundled(name, target) if name in MODELS else _published(name)
    turn = Rotation(target.network.graph.nodes[0].columns, target.made.seed) if target.made.rotate else None
    network = KINDS[trained.kind][0](trained, Target(source, steps_of(target.network, trained.depths), turn))
    if trained.kind in ALONE:
        return quantised_bytes(network, heads_calibrated(trained, target, texts), ())
    return quantised_bytes(network, calibrated(trained, target, source, texts, turn), target.made.prefix)


def _published(name: str) -> tuple[Network, np.ndarray]:
    """The float network, and windows that calibrate  # int64 [windows, tokens]"""
    source = read_source(name)
    return source.network, texts_of(source, WINDOW + 2, None, {}).used


def _bundled(name: str, target: ModelFile) -> tuple[Network, np.ndarray]:
    """The same of a bundled target: what its integers stand for."""
    windows = []
    for _, text in sorted(default_texts("calibration").items()):
        ids, length = encode(text, name), min(WINDOW + 2, target.network.graph.text_positions)
        starts = np.linspace(0, len(ids) - length, WINDOWS).astype(int)
        windows += [ids[start:start + length] for start in starts]
    return restore_network(target.network), np.array(windows, np.int64)
