"""A draft that runs while the target verifies, on one device: what it could gain at most.

The next draft is begun on the guess that all drafts are accepted and that the token behind them is the draft model's
own next one. It has the DRAM bus only when the verifying pass leaves it idle, and counts only where the guess was
right. The bound grants it every idle cycle of the bus but refresh, units that never collide, and nothing that a wrong
guess costs; beside it stands a draft model on a device of its own, which shares no bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmule.compiler.ir import Rows
from gemmule.config import Config
from gemmule.sim.result import Result
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.step import Asking, Forward
from gemmule.sw.studies import Row, Study

__all__ = ["STUDY", "Ahead", "Overlap", "overlap_rows"]

LENGTHS = (1, 3, 7)
PROMPTS, MOST_PROMPT, NEW_TOKENS = 3, 96, 64
"""Held-out completions, their tokens at most, and what is generated behind each."""
POSITION = 128
"""Cached rows of the passes that are timed."""


class Ahead(Drafter):
    """A draft model that guesses one token more than it proposes, and counts how often the next draft would count."""

    def __init__(self, model: LoadedModel, num_tokens: int) -> None:
        self.drafter, self.num_tokens = DraftModel(model, num_tokens + 1), num_tokens
        self.steps = self.useful = self.drafted = 0
        self.guess: int | None = None

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        yield from self.drafter.begin(ids, dropped)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        self.drafted = min(self.num_tokens, budget)
        tokens = (yield from self.drafter.propose(ids, self.drafted + 1)).tokens
        self.guess = tokens[self.drafted + 1]
        return Tree.chain(ids[-1], tokens[1:self.drafted + 1])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.drafter.observe(out, path, new)
        if self.drafted:
            self.steps += 1
            self.useful += len(path) - 1 == self.drafted and len(new) == len(path) and new[-1] == self.guess


@dataclass(frozen=True)
class Overlap:
    """A step's launches, and the share of steps behind which a draft begun ahead counts."""

    config: Config
    verify: Result
    draft: Result
    useful: float

    def busy(self, result: Result) -> int:
        """Cycles in which the bus moves data."""
        return sum(result.dram_bytes.values()) // self.config.bus_bytes * self.config.dram.beat_cycles

    @property
    def idle(self) -> float:
        """Cycles of the verifying pass in which it does not, refresh aside."""
        return max(0.0, self.verify.cycles * (1 - self.config.dram.refresh_share) - self.busy(self.verify))

    @property
    def fits(self) -> float:
        """Share of a draft whose data the idle bus could move."""
        return min(1.0, self.idle / self.busy(self.draft))

    def gain(self, fits: float) -> float:
        """Of decoding, where so much of a draft takes no time, if it counts; host counted, a launch a step."""
        host = self.config.host
        step = self.verify.cycles + self.draft.cycles + host.launch_cycles + host.step_cycles
        return step / (step - self.useful * min(fits * self.draft.cycles, self.verify.cycles)) - 1


def overlap_rows(pair: Pair, config: Config, prompts: Sequence[list[int]], lengths: Sequence[int],
                 new_tokens: int) -> Iterator[Row]:
    """All rows of each number of drafts."""
    for length in lengths:
        steps = useful = 0
        with Session(config, pair=pair, interpreted=True) as session:
            assert session.draft is not None
            for ids in prompts:
                drafter = Ahead(session.draft, length)
                generate(session.target, drafter, ids, new_tokens, Ledger(config), pair.ends)
                steps, useful = steps + drafter.steps, useful + drafter.useful
        with Session(config, pair=pair, launch="draft") as session:
            assert session.draft is not None
            position = min(POSITION, pair.positions // 2)
            (verify,) = session.target.forward(Rows.chain([0] * (length + 1), position)).results
            cache = session.draft.kv()
            cache.append(position)
            (draft,) = session.draft.greedy(cache, [0], length).results
        yield from _rows(length, Overlap(config, verify, draft, useful / max(1, steps)), steps)


def _rows(length: int, found: Overlap, steps: int) -> Iterator[Row]:
    verify, draft = found.verify, found.draft

    def row(setting: str, here: float, unit: str, why: str) -> Row:
        return Row(setting=f"{length} drafts: {setting}", published=None, here=here, unit=unit, why=why)

    yield row("the pass that verifies", int(verify.cycles), "cycles",
              f"{length + 1} rows; the bus moves data in {found.busy(verify):,}")
    yield row("its bus idle, refresh aside", found.idle, "cycles", f"{found.idle / int(verify.cycles):.1%} of the pass")
    yield row("the draft", int(draft.cycles), "cycles", f"one launch; the bus moves data in {found.busy(draft):,}")
    yield row("of a draft, what fits the idle bus", found.fits, "share", "bytes alone: every idle cycle is granted")
    yield row("steps behind which it would count", found.useful, "share",
              f"of {steps} steps: all drafts accepted, and the token behind them guessed")
    yield row("gain at most", found.gain(found.fits), "share", "of decoding on this device, host counted")
    yield row("gain at most, a device for each model", found.gain(1.0), "share",
              "the draft takes no time where it counts, as long as the pass takes longer")


def _run(config: Config) -> list[Row]:
    pair = bundled_pair(DEFAULT)
    prompts = [pair.encode(prompt.text)[:MOST_PROMPT] for prompt in load_categories()["completion"][:PROMPTS]]
    return list(overlap_rows(pair, config, prompts, LENGTHS, NEW_TOKENS))


STUDY = Study(
    title="a draft while the target verifies, the default pair", config="base", run=_run,
    source="no figure of others: those who overlap have a device for each model")
