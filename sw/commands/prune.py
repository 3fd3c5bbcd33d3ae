"""``gemmule prune``: the schedule of a pruned cache that saves most within a budget of quality."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ConfigOption,
    JsonOption,
    ModelOption,
    Output,
    WeightsOption,
    conditions,
    read_config,
)
from gemmule.sw.commands.shared.lists import values_of
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DEFAULT, SCORES, check_choice
from gemmule.sw.reports.files import check_writable, write_file

__all__ = ["prune"]

SEARCHED = tuple(score for score in SCORES if score != "chunks")
"""One selecting pass chooses rows by all of these."""


def prune(
    config: ConfigOption = "base",
    model: ModelOption = DEFAULT,
    weights: WeightsOption = None,
    keep: Annotated[str, typer.Option(
        "--keep", metavar="K,..", help="Shares of the cached rows, or numbers of rows, separated by commas.",
    )] = "0.75,0.5,0.35,0.25",
    every: Annotated[str, typer.Option(
        "--every", metavar="N,..", help="Positions from one selection to the next, separated by commas.")] = "16,32",
    score: Annotated[str, typer.Option(
        "--score", metavar="S,..", help="attention (what the last rows attend to), heavy (what all rows have "
                                        "attended to), none (first and newest rows), pages (each row chooses "
                                        "pages for itself), separated by commas.",
    )] = "attention,none",
    page: Annotated[str, typer.Option(
        "--page", metavar="N,..", help="Rows of a page, separated by commas; only for pages.")] = "8",
    first: Annotated[int, typer.Option("--first", metavar="N", help="Oldest rows that are always kept.")] = 4,
    last: Annotated[int, typer.Option("--last", metavar="N", help="Newest rows that are always kept.")] = 16,
    whole: Annotated[int, typer.Option("--whole", metavar="N", help="Rows up to which all are kept.")] = 32,
    budget: Annotated[float, typer.Option(
        "--budget", metavar="P", min=0.0, help="Rise of perplexity that is allowed, in percent.")] = 5.0,
    text: Annotated[Path | None, typer.Option(
        "--text", metavar="FILE", show_default=False,
        help="Measure on this text (UTF-8). Default: code that imports calibrate with; measure the result on other "
             "text.")] = None,
    window: Annotated[int, typer.Option(
        "--window", metavar="N", min=2,
        help="Tokens of a window, and cached rows behind which cycles are told.")] = 200,
    windows: Annotated[int, typer.Option("--windows", metavar="N", min=1, help="Windows of text.")] = 2,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", show_default=False, callback=lambda path: check_writable("--out", path),
        help="Write the schedule to this file (YAML), for --prune.")] = None,
    figure: Annotated[Path | None, typer.Option(
        "--figure", metavar="FILE", show_default=False,
        help="Draw perplexity over cycles (SVG, PNG or PDF; extra figures).")] = None,
    resume: Annotated[Path | None, typer.Option(
        "--resume", metavar="FILE", show_default=False,
        help="Store each schedule's numbers in this file, and reuse those already there.")] = None,
    json: JsonOption = None,
) -> None:
    """Compare schedules of a pruned KV cache: perplexity of a text, and cycles of a token; choose one within a budget.

    Values are the integer interpreter's, with the choices that the device makes; cycles are exact.

    \b
    Examples:
      gemmule prune --keep 0.75,0.5 --every 16 --windows 1 --budget 10
      gemmule prune --model smollm2 --window 1000 --keep 0.5,0.25 --budget 3 --out build/schedule.yaml
      gemmule prune --score pages --page 8,16 --keep 0.5,0.25
    """
    keeps = values_of("--keep", keep, lambda word: float(word) if "." in word else int(word))
    everys = values_of("--every", every, int)
    scores = values_of("--score", score, lambda word: check_choice("--score", word, SEARCHED))
    console, device = Output(json), read_config(config)

    from gemmule.io.progress import counting
    from gemmule.sw.benches.finished import Finished
    from gemmule.sw.device.forward import logit_scale
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.models.import_texts import default_texts, read_text
    from gemmule.sw.models.pair import open_pair
    from gemmule.sw.reports.figures import check_figure, schedules_figure
    from gemmule.sw.reports.schedules import described, print_schedules
    from gemmule.sw.workloads.schedules import best, grid, measured, with_pareto

    if figure:
        check_figure(figure)
    always = Pruning(keep=1.0, first=first, last=last, whole=whole)
    schedules = grid(always, keeps, everys, scores, values_of("--page", page, int))
    pair = open_pair(model, None, weights)
    if window > pair.positions:
        raise InputError(f"--window must be at most {pair.positions} tokens (the context of {pair.name}), not {window}")
    words = read_text(text, "--text") if text else default_texts("calibration")["code"]
    parts = _windows(pair.plain(words), window, windows)
    placed = pair.target(device, 0, prefill=0, pruning=always)
    if logit_scale(placed.network.graph) == 1:
        raise InputError(f"--model {model} does not tell the scale of its logits, so a text has no perplexity: take "
                         f"--model {DEFAULT}, or import the model again")
    kept = Finished(resume, [pair.digests, device.sha256, parts, asdict(always)])

    def numbers(schedule: Any) -> dict[str, Any]:
        import numpy as np

        def found() -> list[dict[str, Any]]:
            apart = schedule and (schedule.pages or schedule.counts)
            own = pair.target(device, 0, prefill=0, pruning=schedule) if apart else placed
            return [measured(own, np.array(parts), schedule, window)]

        return kept.of(repr(schedule), found)[0]

    with counting("schedules", len(schedules) + 1) as tell:
        dense = numbers(None)
        tell(1, "the whole cache")
        rows = []
        for done, schedule in enumerate(schedules, 2):
            rows.append(numbers(schedule))
            tell(done, described(asdict(schedule)))
    told = with_pareto(rows, dense)
    console.print(f"{conditions(device)}; {pair.name} model, {windows} windows of {window} tokens", style="dim")
    print_schedules(console.console, told, dense)
    if figure:
        schedules_figure(figure, told)
    chosen = best(told, budget / 100)
    found = {name: chosen[name] for name in asdict(always)}
    console.write("prune", device, {
        "model": pair.name, "weights": weights, "window": window, "windows": windows, "budget": budget / 100,
        "dense": dense, "rows": told, "chosen": found})
    console.print(f"within {budget:g} percent: {described(chosen)}: "
                  f"perplexity {chosen['perplexity_change']:+.2%}, {chosen['speedup']:.2f}x")
    if out:
        other = "every" if found["score"] == "pages" else "page"
        write_file(out, "".join(f"{name}: {value}\n" for name, value in found.items()
                                if name != other and value is not None), "--out")


def _windows(ids: list[int], length: int, count: int) -> list[list[int]]:
    """Spread evenly over a text.

    Raises:
        InputError: the text is too short.
    """
    if len(ids) < length * count:
        raise InputError(f"--text must hold at least {length * count} tokens, not {len(ids)}: give more text, fewer "
                         "--windows or a smaller --window")
    step = (len(ids) - length) // max(1, count - 1) if count > 1 else 0
    return [ids[i * step:i * step + length] for i in range(count)]
