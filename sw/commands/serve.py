"""``gemmule serve``: requests that arrive over time, in one running batch; latency and throughput."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ComputeOption,
    ConfigOption,
    JsonOption,
    ModelOption,
    Output,
    SeedOption,
    WeightsOption,
    choice,
    conditions,
    read_config,
)
from gemmule.sw.commands.shared.lists import values_of
from gemmule.sw.commands.shared.sampling import AdaptiveOption
from gemmule.sw.decoding.methods import METHODS, Method
from gemmule.sw.errors import InputError
from gemmule.sw.limits import (
    BATCH,
    CATEGORIES,
    DEFAULT,
    DRAFTS,
    PROMPTS,
    REQUESTS,
    SERVED,
    SERVED_RATE,
    check_choice,
    new_tokens,
)

if TYPE_CHECKING:
    from gemmule.sw.models.pair import Pair
    from gemmule.sw.serving.arrivals import Arrival

__all__ = ["serve"]

POOLED = 512
"""Positions of a text in a pool: lists of two texts fit the index list of the presets."""


def serve(
    config: ConfigOption = "base",
    model: ModelOption = DEFAULT,
    draft_model: Annotated[Path | None, typer.Option(
        "--draft-model", metavar="FILE", show_default=False,
        help="Draft model: another file of `gemmule import` with the same tokens; only with --model FILE.")] = None,
    weights: WeightsOption = None,
    method: Annotated[str, typer.Option(
        "--method", metavar="M,..", help=f"Methods, separated by commas: {', '.join(METHODS)}. Each serves the same "
                                         "requests.")] = "ar,pld",
    num_speculative_tokens: Annotated[int, typer.Option(
        "--num-speculative-tokens", metavar="N", callback=lambda n: DRAFTS.check("--num-speculative-tokens", n),
        help=f"Tokens drafted per step, {DRAFTS}.")] = 3,
    adaptive: AdaptiveOption = False,
    arrivals: Annotated[Path | None, typer.Option(
        "--arrivals", metavar="FILE", show_default=False,
        help="YAML: `requests`, each with `at_us` (microseconds of the device's clock), a `prompt` or the name of a "
             "bundled `request`, and perhaps `max_new_tokens` (docs/serving.md).")] = None,
    rate: Annotated[str | None, typer.Option(
        "--rate", metavar="R,..", show_default=False,
        help="Requests per second of the device's clock, separated by commas: random arrivals of that rate (Poisson), "
             "the same prompts at each. Default: 1.")] = None,
    requests: Annotated[int | None, typer.Option(
        "--requests", metavar="N", show_default=False,
        callback=lambda n: n if n is None else SERVED.check("--requests", n),
        help=f"With --rate: number of requests, {SERVED}. Default: 16.")] = None,
    category: Annotated[str | None, typer.Option(
        "--category", metavar="C,..", show_default=False,
        help=f"With --rate: categories of prompts, taken in turn: {', '.join((*CATEGORIES, *REQUESTS))}. Default: all "
             "requests if the model has a chat template, else completion.")] = None,
    max_new_tokens: Annotated[int, typer.Option(
        "--max-new-tokens", metavar="N", min=1, help="For each request that does not say how many.")] = 32,
    batch: Annotated[int, typer.Option(
        "--batch", metavar="N", callback=lambda n: BATCH.check("--batch", n),
        help=f"Texts of a pass at most, {BATCH}, at least 2.")] = 4,
    context: Annotated[int | None, typer.Option(
        "--context", metavar="N", show_default=False, min=2,
        help="Positions of a text, prompt and new tokens together. Default: the model's; with --pool 512 at most.",
    )] = None,
    pool: Annotated[int | None, typer.Option(
        "--pool", metavar="N", show_default=False, min=1,
        help="Rows of one KV cache that the target's texts share in pages, taken as texts grow. Default: each text "
             "reserves a whole context.")] = None,
    page: Annotated[int, typer.Option(
        "--page", metavar="N", min=1, max=256, help="Rows of a page.")] = 8,
    prompts: Annotated[str, choice(
        "--prompts", PROMPTS, "ahead: the rows of a prompt go before everything else, by a program of their own; "
        "beside: in pieces, in the rows that a pass has for the text.")] = "ahead",
    compute: ComputeOption = "auto",
    figure: Annotated[Path | None, typer.Option(
        "--figure", metavar="FILE", show_default=False,
        help="Draw latency and throughput over the offered load (SVG, PNG or PDF; extra figures).")] = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Serve requests that arrive over time by continuous batching; report latency and throughput.

    Requests join and leave the running batch at every pass. The clock is the device's, host work included. Every text
    is compared with the one that autoregressive decoding gives for its prompt alone. Exit code 1 if one differs.

    \b
    Examples:
      gemmule serve --rate 400,800 --requests 8 --max-new-tokens 16 --compute interpreter
      gemmule serve --rate 1600 --requests 8 --method draft --batch 8 --compute interpreter --adaptive
    """
    methods = values_of("--method", method, lambda name: check_choice("--method", name, tuple(METHODS)))
    if batch < 2:
        raise InputError(f"--batch must be at least 2, not {batch}: a text alone is what `gemmule generate` decodes")
    if arrivals is not None and (given := [name for name, value in (
            ("--rate", rate), ("--requests", requests), ("--category", category)) if value is not None]):
        raise InputError(f"--arrivals says when requests come and what they ask: drop {given[0]}")
    if pool and (general := [name for name in methods if METHODS[name].needs_general]):
        raise InputError(f"--pool takes methods without the general program, not {general[0]}: drop one of the two")
    rates = values_of("--rate", rate or "1", lambda text: SERVED_RATE.check("--rate", float(text)))
    names = category and values_of("--category", category, lambda name: check_choice(
        "--category", name, (*CATEGORIES, *REQUESTS)))
    out, device = Output(json), read_config(config)

    from gemmule.io.progress import counting, say
    from gemmule.sw.device.interpreted import interprets
    from gemmule.sw.models.pair import open_pair
    from gemmule.sw.reports.figures import check_figure
    from gemmule.sw.reports.serving import print_served, serving_figure
    from gemmule.sw.serving.arrivals import poisson, read_trace, traced
    from gemmule.sw.serving.plan import ServingPlan
    from gemmule.sw.serving.prompts import Prompts

    if figure:
        check_figure(figure)
    pair = open_pair(model, draft_model, weights)
    new_tokens(pair.positions).check("--max-new-tokens", max_new_tokens)
    for name in methods:
        _check(METHODS[name], pair)
    known = Prompts(pair)
    if arrivals is not None:
        load, shared = traced(read_trace(arrivals), device, pair, known.named, max_new_tokens)
        loads: list[tuple[float | None, list[Arrival]]] = [(None, load)]
    else:
        chosen, shared = known.first(names, requests or 16), []
        loads = [(one, poisson(one, chosen, max_new_tokens, device, seed)) for one in rates]
    positions = min(context or (POOLED if pool else pair.positions), pair.positions)
    for arrival in loads[0][1]:
        if len(arrival.ids) + arrival.new_tokens > positions:
            raise InputError(f"{arrival.name}: a prompt and its new tokens must fit the context of {positions}, not "
                             f"{len(arrival.ids)} + {arrival.new_tokens}: ask for fewer, or shorten the prompt")
    begin = time.perf_counter()
    quick = interprets(compute, pair.parameters)
    rows: list[dict[str, Any]] = []
    with ServingPlan(device=device, pair=pair, batch=batch, ahead=prompts == "ahead", drafts=num_speculative_tokens,
                     methods=methods, interpreted=quick, context=positions, pool=pool or 0, page=page,
                     shared=shared, adaptive=adaptive) as plan:
        references = plan.references(loads[0][1], pair.ends)
        total = len(loads) * len(methods) * len(loads[0][1])
        with counting("requests", total) as tell:
            for offered, load in loads:
                for name in methods:
                    done = len(rows) * len(load)
                    rows.append(plan.run(name, load, references, pair.ends, partial(_tell, tell, done))
                                | {"rate": offered})
    say(f"{total} requests in {time.perf_counter() - begin:.0f} s")
    record = {
        "model": pair.name, "weights": weights, "compute": "interpreter" if quick else "device", "seed": seed,
        "batch": batch, "prompts": prompts, "num_speculative_tokens": num_speculative_tokens,
        "adaptive": adaptive, "max_new_tokens": max_new_tokens, "context": plan.room, "pool": pool, "page": page,
        "shared_tokens": len(shared),
        "arrivals": None if arrivals is None else str(arrivals),
        "requests": [{"name": one.name, "prompt_tokens": len(one.ids), "max_new_tokens": one.new_tokens}
                     for one in loads[0][1]],
        "rows": rows}
    if figure:
        serving_figure(figure, pair.name, batch, rows)
    out.write("serve", device, record)
    out.print(f"{conditions(device)}; {pair.name} model, {len(loads[0][1])} requests, up to {batch} texts a pass, "
              f"prompts {prompts}, seed {seed}", style="dim")
    print_served(out.console, rows)
    if any(row["equal"] < row["requests"] for row in rows):
        out.print("tokens differ from autoregressive decoding", style="red")
        raise typer.Exit(1)


def _tell(tell: Callable[[int, str], None], before: int, number: int, name: str) -> None:
    """So many requests are done behind those before."""
    tell(before + number, name)


def _check(method: Method, pair: Pair) -> None:
    """Refuse methods that cannot serve a batch of this model.

    Raises:
        InputError: there is no draft model, or the method takes one text.
    """
    if method.needs_draft and pair.draft is None:
        raise InputError(f"--method {method.name} needs a draft model, and {pair.name} has none: take another method, "
                         "or give --draft-model")
    if method.trained or method.alone:
        raise InputError(f"--method {method.name} takes one text, not a batch: take another method")
