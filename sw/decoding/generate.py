"""The generation loop: one for every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import cut_at_stop, greedy
from gemmule.sw.ledger import Ledger
from gemmule.sw.runtime import Forward, LoadedModel

__all__ = ["Generation", "generate"]


@dataclass
class Generation:
    """What a run produced, and how.

    Attributes:
        tokens: new tokens, a stop token included.
        steps: per decoding step (drafted, accepted) counts.
        ledger: cycles of everything, prefill included.
        prefill_cycles: the share of ``ledger.cycles`` before the first decoding step.
        finish_reason: why the text ended: ``length`` (``max_new_tokens``), ``stop`` (a stop token), ``context`` (full).
    """

    tokens: list[int]
    ledger: Ledger
    steps: list[tuple[int, int]] = field(default_factory=list)
    prefill_cycles: int = 0
    finish_reason: Literal["length", "stop", "context"] = "length"

    @property
    def tokens_per_step(self) -> float:
        """Mean committed tokens per target pass, bonus included (autoregressive: 1.0)."""
        return len(self.tokens) / max(1, len(self.steps))

    @property
    def acceptance(self) -> float:
        """Accepted drafts over drafted tokens; 0 when nothing was drafted."""
        return sum(a for _, a in self.steps) / max(1, sum(d for d, _ in self.steps))


def _verify_pass(target: LoadedModel, tree: Tree, position: int) -> Forward:
    """The target's choice after every candidate, in one pass; row i sees the rows before it, so they must be a chain.

    Raises:
        ValueError: the tree branches.
    """
    branch = tree.branch()
    if branch is not None:
        raise ValueError(
            f"the drafter's candidates must be a chain (the parent of node {branch} is node {branch - 1}), not a tree "
            f"in which it is {tree.parent[branch]}: programs see rows in order, propose one path a step")
    return target.forward(tree.tokens, position)


def generate(
    target: LoadedModel,
    drafter: Drafter,
    prompt: list[int],
    max_new_tokens: int,
    ledger: Ledger,
    stop: frozenset[int] = frozenset(),
    progress: Callable[[list[int]], None] | None = None,
) -> Generation:
    """Generate up to ``max_new_tokens`` after ``prompt``; greedy, lossless for every drafter.

    Invariant after every step: the target's KV cache holds ``len(ids) - 1`` rows; the last committed
    token is pending. A rollback is a shorter cache length, since the next pass overwrites the slots.

    Raises:
        ValueError: the prompt is empty or does not fit the context, or the drafter proposes a branching tree.
    """
    context = target.program.max_positions
    if not prompt:
        raise ValueError("the prompt must hold at least one token, not none")
    if len(prompt) >= context:
        raise ValueError(
            f"the prompt must hold at most {context - 1} tokens, not {len(prompt)}; shorten it")
    ids = list(prompt)
    run = Generation([], ledger)
    if len(ids) > 1:
        for result in target.forward(ids[:-1], 0, 0).results:
            ledger.launch(target.name, result)
    drafter.begin(ids)
    run.prefill_cycles = ledger.cycles
    stopped = False
    while len(run.tokens) < max_new_tokens and len(ids) < context and not stopped:
        budget = min(
            max_new_tokens - len(run.tokens) - 1, context - len(ids) - 1, target.program.max_rows - 1)
        tree = drafter.propose(ids, budget)
        out = _verify_pass(target, tree, len(ids) - 1)
        for result in out.results:
            ledger.launch(target.name, result)
        path, new = greedy(tree, out.argmax)
        run.steps.append((len(tree.tokens) - 1, len(path) - 1))
        new, stopped = cut_at_stop(new, stop)
        ids += new
        run.tokens += new
        drafter.observe(out, path, new)
        ledger.step()
        if progress is not None:
            progress(new)
    run.finish_reason = "stop" if stopped else "length" if len(run.tokens) >= max_new_tokens else "context"
    return run
