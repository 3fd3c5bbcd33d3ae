"""The generation loop: one for every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.decoding.verify import GREEDY, Rule, cut_at_stop
from gemmule.sw.ledger import Ledger
from gemmule.sw.runtime import LoadedModel
from gemmule.sw.step import Want

__all__ = ["Generation", "generate"]


@dataclass
class Generation:
    """What a run produced, and how.

    Attributes:
        tokens: new tokens, a stop token included.
        steps: per decoding step (drafted, accepted) counts.
        ledger: cycles of everything, prefill included.
        prefill: the ledger as it was before the first decoding step.
        finish_reason: why the text ended: ``length`` (``max_new_tokens``), ``stop`` (a stop token), ``context`` (full).
    """

    tokens: list[int]
    ledger: Ledger
    steps: list[tuple[int, int]] = field(default_factory=list)
    prefill: Ledger = field(init=False)
    finish_reason: Literal["length", "stop", "context"] = "length"

    def __post_init__(self) -> None:
        self.prefill = self.ledger.so_far()

    @property
    def tokens_per_step(self) -> float:
        """Mean committed tokens per target pass, bonus included (autoregressive: 1.0)."""
        return len(self.tokens) / max(1, len(self.steps))

    @property
    def acceptance(self) -> float:
        """Accepted drafts over drafted tokens; 0 when nothing was drafted."""
        return sum(a for _, a in self.steps) / max(1, self.drafted)

    @property
    def drafted(self) -> int:
        """Drafted tokens."""
        return sum(d for d, _ in self.steps)


def generate(
    target: LoadedModel,
    drafter: Drafter,
    prompt: list[int],
    max_new_tokens: int,
    ledger: Ledger,
    stop: frozenset[int] = frozenset(),
    progress: Callable[[list[int]], None] | None = None,
    rule: Rule = GREEDY,
) -> Generation:
    """Generate up to ``max_new_tokens`` after ``prompt``, tokens chosen by ``rule``; lossless for every drafter.

    Invariant after every step: the target's KV cache holds ``len(ids) - 1`` rows; the last committed
    token is pending. A rollback is a shorter cache length, since the next pass overwrites the slots.

    Raises:
        ValueError: the prompt is empty or does not fit the context, or the drafter proposes a tree and the target's
            program sees rows in order.
    """
    target = target.charging(ledger)
    context = target.program.max_positions
    if not prompt:
        raise ValueError("the prompt must hold at least one token, not none")
    if len(prompt) >= context:
        raise ValueError(
            f"the prompt must hold at most {context - 1} tokens, not {len(prompt)}; shorten it")
    ids = list(prompt)
    run = Generation([], ledger)
    if len(ids) > 1:
        target.forward(Rows.chain(ids[:-1]), Want(last=0))
    drafter.begin(ids)
    run.prefill = ledger.so_far()
    stopped = False
    while len(run.tokens) < max_new_tokens and len(ids) < context and not stopped:
        budget = min(
            max_new_tokens - len(run.tokens) - 1, context - len(ids) - 1, target.program.max_rows - 1)
        tree = drafter.propose(ids, budget)
        out = target.forward(Rows.tree(tree.tokens, tree.parent, len(ids) - 1), rule.want())
        path, new = rule.verify(tree, out, target.logit_scale, len(ids))
        target.commit(len(ids) - 1, path)
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
