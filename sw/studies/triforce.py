"""TriForce's published speed-up on its own shapes: what passes over both caches cost here, and what that gives.

Llama-2-7B behind 122,880 tokens, 4,096 retrieved rows, 6 drafts of these, and one token at a time of a model of 68 M
parameters with 256 rows below. Passes are timed by shape, int8, without weights, up to the 65,536 positions that
networks have here; behind more, a pass over the whole cache is put on the line through the two lengths. How often a
token of the 68 M model is accepted is what its author told (issue 8 of the repository); how often the whole cache
accepts what the small one drafts is not told token by token, so the study asks which share would give the published
speed-up, and what others give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture
from gemmule.sw.workloads.hierarchy import Hierarchy

__all__ = ["STUDY", "Shapes", "triforce_rows"]

PUBLISHED = 2.31
"""On an A100, float16, Llama2-7B-128K (arXiv 2404.11912, abstract); the repository's command tells of 2.2."""
SHARES = (0.7, 0.8, 0.9, 1.0)
"""Of drafts that the whole cache accepts, assumed."""
POSITIONS, ADDRESS_BITS = 1 << 16, 42
"""Of the network, and of the DRAM that holds its cache."""


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """Networks and sizes of a published run."""

    target: Architecture
    draft: Architecture
    context: int
    """Tokens behind which the whole cache is timed."""
    published: int
    """Tokens of the published run."""
    budget: int
    """Rows of the small cache."""
    draft_rows: int
    """Of the draft model's."""
    drafts: int
    kept: float
    """Share of the draft model's tokens that the small cache accepts."""


def _on_chip() -> Shapes:
    target = architecture("llama-2-7b")
    long = replace(target, config=dict(target.config) | {"max_position_embeddings": POSITIONS})
    return Shapes(target=long, draft=architecture("llama-68m"), context=POSITIONS - 8,
                  published=122880, budget=4096, draft_rows=256, drafts=6, kept=0.35)


def _cycles(network: Architecture, config: Config, rows: int, context: int) -> int:
    """Of a pass over so many rows behind others, the launch included."""
    work = Work(phase="decode", seq=context, rows=rows, context=context + rows)
    return int(run_architecture(network, config, work)["cycles"]) + config.host.launch_cycles


def triforce_rows(shapes: Shapes, config: Config) -> Iterator[Row]:
    """All rows, length by length.

    Raises:
        CompileError: a network does not fit the device.
    """
    lowest = _cycles(shapes.draft, config, 1, shapes.draft_rows)
    small = {rows: _cycles(shapes.target, config, rows, shapes.budget) for rows in (1, 2)}
    yield _row("the draft model", lowest, f"one row of {shapes.draft.name} behind {shapes.draft_rows} others")
    for rows, found in small.items():
        yield _row(f"the small cache, rows: {rows}", found, f"{shapes.target.name} behind {shapes.budget:,} rows")
    whole = {rows: _cycles(shapes.target, config, rows, shapes.context) for rows in (1, shapes.drafts + 1)}
    for rows, found in whole.items():
        yield _row(f"{shapes.context:,} tokens, rows: {rows}", found, f"{shapes.target.name} with its whole cache")
    levels = Hierarchy(whole=whole, small=small, lowest=lowest, step=config.host.step_cycles)
    yield from _speed_ups(shapes, shapes.context, levels)
    longer = (shapes.published - shapes.context) / (shapes.context - shapes.budget)
    single = round(whole[1] + (whole[1] - small[1]) * longer)
    yield Row(setting=f"{shapes.published:,} tokens, rows: 1", unit="cycles", published=None, here=single,
              why=f"on the line through {shapes.budget:,} and {shapes.context:,}, not timed")
    verified = round(single * whole[shapes.drafts + 1] / whole[1])
    yield from _speed_ups(shapes, shapes.published, replace(levels, whole={1: single, shapes.drafts + 1: verified}))


def _row(setting: str, cycles: int, why: str) -> Row:
    return Row(setting=setting, unit="cycles", published=None, here=cycles, why=why + ", the launch included")


def _speed_ups(shapes: Shapes, context: int, levels: Hierarchy) -> Iterator[Row]:
    """By the share that is accepted."""
    published = context == shapes.published
    cost, verified = levels.small[1] / levels.whole[1], levels.whole[shapes.drafts + 1] / levels.whole[1]
    for proposed, who in ((1, "both levels"), (0, "the target alone")):
        for share in SHARES:
            found = levels.speed_up(share, shapes.drafts, proposed, shapes.kept if proposed else 0.0)
            yield Row(
                setting=f"{context:,} tokens: speed-up, {who}, {share:.0%} accepted", unit="times", here=found,
                published=PUBLISHED if published and proposed else None,
                why=f"a pass of the small cache takes {cost:.2f} of one of the whole, {shapes.drafts + 1} rows "
                    f"{verified:.2f} of one; the share is assumed")
    if published:
        needed = levels.needed(PUBLISHED, shapes.drafts, 1, shapes.kept)
        yield Row(
            setting=f"{context:,} tokens: acceptance that gives the published speed-up", unit="share", published=None,
            here=0.0 if needed is None else needed,
            why="no share does" if needed is None else "of each draft of the small cache; an A100 also spends time on "
                "kernels and sampling, which is not counted here")


def _run(config: Config) -> list[Row]:
    large = Config.model_validate(config.model_dump() | {
        "name": f"{config.name}-large-dram", "address_bits": max(config.address_bits, ADDRESS_BITS)})
    return list(triforce_rows(_on_chip(), large))


STUDY = Study(
    title="drafting in a retrieved cache on TriForce's shapes", config="base", run=_run,
    source="Sun et al. 2024, arXiv 2404.11912, abstract; repository Infini-AI-Lab/TriForce, README")
