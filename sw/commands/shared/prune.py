"""The option that prunes, of commands that generate and of those that run passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmule.sw.errors import InputError

if TYPE_CHECKING:
    from gemmule.sw.kv.pruning import Pruning

__all__ = ["PruneOption", "ScheduleOption", "read_pruning"]

PruneOption = Annotated[Path | None, typer.Option(
    "--prune", metavar="FILE", show_default=False,
    help="Prune the target's KV cache by this schedule (YAML): keep, every, first, last, whole, score, page, "
         "values. The select unit chooses rows at fixed positions, or pages for each row (score: pages), and values "
         "by their probability, so every method decodes the same text as ar with the same schedule.")]

ScheduleOption = Annotated[Path | None, typer.Option(
    "--prune", metavar="FILE", show_default=False,
    help="Schedule of pruning (YAML). Decoders: rows of the cache that are kept (docs/pruning.md), for decode; "
         "encoders: rows and heads that leave behind the attention of layers (docs/encoders.md).")]


def read_pruning(path: Path | None, launch: str, batch: int) -> Pruning | None:
    """The schedule of ``--prune``, if it is given.

    Raises:
        InputError: it is none, or does not go with what a launch holds, or with several texts.
    """
    if path is None:
        return None
    from gemmule.sw.kv.pruning import load_pruning

    if launch == "step":
        raise InputError(f"--prune {path} does not go with --launch step, whose passes find their cache in one place: "
                         "use --launch draft")
    if batch > 1:
        raise InputError(f"--prune {path} does not go with --batch {batch}: it is of one text")
    return load_pruning(path)
