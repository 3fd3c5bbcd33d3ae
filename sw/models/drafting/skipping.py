"""Which of a target's layers are best left out in drafting: found once by agreement and cycles, then from the cache.

From all layers on, the layer goes whose absence leaves most of the target's greedy tokens on calibration text as they
are, then the next one. A set with agreement a whose pass takes c times the target's gives, with n drafts a step,
``(1 - a^(n+1)) / (1 - a) / (c n + 1)`` times the tokens per cycle (Leviathan et al. 2023, theorem 3.8); the best set
counts. The search ends where that falls several times in a row.

It tries :data:`MOST_TRIED` sets of layers at most, each in a pass over the texts, whatever the machine. A network with
so many layers that every step cannot try all that are left tries all in the first step only, and then those whose
absence alone changed the least.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, layer_part
from gemmule.compiler.sources import SOURCES, sources
from gemmule.config import Config
from gemmule.io.cache import cache_folder, cache_root, writing
from gemmule.io.files import write_atomically
from gemmule.io.progress import counting, say
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.interpreted import LARGE, InterpretedModel
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.models.placed import Placed
from gemmule.sw.step import Want

__all__ = ["FOLDER", "Trial", "ranges_without", "skipped_layers", "trials"]

FOLDER = "skipping"
"""Of the cache."""
WINDOW = {False: 256, True: 96}
"""Tokens of a calibration text, by whether the network is large."""
PATIENCE = 3
"""Sets in a row that are worse than the best one, behind which the search ends."""
MOST_DRAFTS = 7
MOST_TRIED, STEPS = 64, 8
"""Sets that are tried, of more than half as many layers twice those; steps behind the first one that they are for."""
OWN_SOURCE = "sw/models/drafting/skipping.py"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A set of layers that are left out.

    Attributes:
        skipped: the layers, rising.
        agreement: share of calibration tokens behind which the rest says what the target says.
        cost: cycles of a pass of the rest, host included, over those of the target.
        drafts: a step, with which tokens per cycle are most.
        speedup: expected with so many.
    """

    skipped: tuple[int, ...]
    agreement: float
    cost: float
    drafts: int
    speedup: float


def ranges_without(skipped: Sequence[int], layers: int) -> list[tuple[int, int]]:
    """First and number of each range of neighbours among the layers that are left."""
    found: list[tuple[int, int]] = []
    for layer in (layer for layer in range(layers) if layer not in skipped):
        first, count = found[-1] if found else (-1, 0)
        if first + count == layer:
            found[-1] = first, count + 1
        else:
            found.append((layer, 1))
    return found


def skipped_layers(placed: Placed, name: str, texts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The best set of layers to leave out, of a target with the general program; ``texts``: calibration tokens.

    The first call finds it, which takes a while; later ones read it.

    Raises:
        CacheError: it cannot be kept.
    """
    program = placed.program
    key = sha256(sources((*SOURCES, OWN_SOURCE)) + program.image
                 + repr((program.config.sha256, [*map(list, texts)])).encode()).hexdigest()
    path = cache_root() / FOLDER / f"{name}-{key[:16]}.json"
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8"))["skipped"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or it is damaged
    most, best = _most_tried(program.graph.layers), None
    say(f"which layers of {name} draft best is found once, by at most {most} passes over calibration texts, and kept: "
        f"{path}")
    with counting("sets of layers tried", most) as tell:
        for trial in trials(placed, texts, tell):
            said = ", ".join(map(str, trial.skipped))
            say(f"without layers {said}: {trial.agreement:.1%} of tokens agree, a draft costs {trial.cost:.2f}, "
                f"{trial.speedup:.2f}x expected")
            best = trial if best is None or trial.speedup > best.speedup else best
    assert best is not None, "a network has at least two layers"
    cache_folder(FOLDER)
    with writing():
        write_atomically(path, json.dumps(asdict(best)) + "\n")
    return best.skipped


def _most_tried(layers: int) -> int:
    """Sets of layers that are tried at most."""
    return min(layers * (layers + 1) // 2 - 1, max(MOST_TRIED, 2 * layers))


def trials(placed: Placed, texts: Sequence[Sequence[int]], tell: Callable[[int, str], None] | None = None,
           ) -> Iterator[Trial]:
    """The set of each size that the search goes through, a layer more each time; ``tell``: how many sets were tried."""
    network, config = placed.network, placed.program.config
    cut = WINDOW[network.graph.parameters >= LARGE]
    windows = [list(text[:cut]) for text in texts]
    whole, layers = _answers(network, windows), network.graph.layers
    full = _cycles(placed, config, windows[0], None)
    skipped: tuple[int, ...] = ()
    best = falls = 0.0
    order, tried, most = [*range(layers)], 0, _most_tried(layers)
    width = layers if most == layers * (layers + 1) // 2 - 1 else max(1, (most - layers) // STEPS)
    while len(skipped) < layers - 1 and falls < PATIENCE and tried < most:
        found = []
        for layer in [layer for layer in order if layer not in skipped][:width if skipped else layers][:most - tried]:
            part = layer_part(network, *ranges_without(tuple(sorted((*skipped, layer))), layers))
            found.append((float(np.mean(_answers(part, windows) == whole)), layer))
            tried += 1
            if tell is not None:
                tell(tried, f"{found[-1][0]:.1%} of tokens agree")
        if not skipped:  # behind the first step, those whose absence alone changed the least go first
            order = [layer for _, layer in sorted(found, key=lambda one: (-one[0], one[1]))]
        agreement, gone = max(found, key=lambda one: (one[0], -one[1]))
        skipped = tuple(sorted((*skipped, gone)))
        cost = _cycles(placed, config, windows[0], ranges_without(skipped, layers)) / full
        speedup, drafts = max((_speedup(agreement, cost, count), -count) for count in range(1, MOST_DRAFTS + 1))
        yield Trial(skipped=skipped, agreement=agreement, cost=cost, drafts=-drafts, speedup=speedup)
        best, falls = (speedup, 0) if speedup > best else (best, falls + 1)


def _answers(network: Network, windows: Sequence[list[int]]) -> np.ndarray:
    """Greedy tokens behind every token of the texts."""
    interpreter = IntegerInterpreter(network)
    return np.concatenate([interpreter.forward(Rows.chain(window, network.graph.prefix), Cache(network.graph)).argmax(1)
                           for window in windows])


def _speedup(agreement: float, cost: float, drafts: int) -> float:
    return sum(agreement ** place for place in range(drafts + 1)) / (cost * drafts + 1)


def _cycles(placed: Placed, config: Config, text: Sequence[int], ranges: Sequence[tuple[int, int]] | None) -> int:
    """Of a pass over one row behind a text, or behind each of a batch, host included; ``ranges`` of layers, None: all,
    by the plain program.
    """
    model = InterpretedModel(TARGET, placed.network, placed.program, Simulator(config, dram_bytes=1),
                             narrow=placed.narrow)
    each = [model.first + len(text) - 1] * placed.program.batch
    found = model.launched(Rows.ragged([[text[-1]]] * len(each), each), Want(last=1), np.ones(len(each), dtype=bool),
                           each, tuple(ranges) if ranges else ((0, placed.network.graph.layers),))
    return sum(int(result.cycles) + config.host.launch_cycles for result in found)
