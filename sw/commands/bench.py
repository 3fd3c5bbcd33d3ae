"""``gemmule bench``: decoding methods side by side on held-out prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.report import html_page
from gemmule.sw.commands.shared.common import (
    ComputeOption,
    ConfigOption,
    HtmlOption,
    JsonOption,
    ModelOption,
    Output,
    SeedOption,
    SkipZerosOption,
    WeightsOption,
    choice,
    conditions,
    read_config,
    write_trace,
)
from gemmule.sw.commands.shared.energy import EnergyOption, read_energy
from gemmule.sw.commands.shared.lists import values_of
from gemmule.sw.commands.shared.method_options import own_options, with_method_options
from gemmule.sw.commands.shared.prune import PruneOption, read_pruning
from gemmule.sw.commands.shared.sampling import (
    AdaptiveOption,
    LaunchOption,
    PrefillOption,
    TopKOption,
    TopPOption,
    VerifyOption,
    check_launch,
    make_rule,
    rule_name,
)
from gemmule.sw.commands.shared.texts import read_parts
from gemmule.sw.decoding.methods import METHODS, Method, of_option
from gemmule.sw.errors import InputError
from gemmule.sw.limits import (
    BACKENDS,
    BATCH,
    CATEGORIES,
    DEFAULT,
    DRAFTS,
    REQUESTS,
    TEMPERATURE,
    check_choice,
    either,
    new_tokens,
)
from gemmule.sw.reports.files import check_writable, write_file

if TYPE_CHECKING:
    from gemmule.sw.benches.bench import Case
    from gemmule.sw.models.pair import Pair
    from gemmule.sw.prompts.choose import Prompt

__all__ = ["bench"]

EVERY = "draft,pld,always,never"
ALL = "all"
LENGTHS = "1,3,5"
FEW = 5
"""Prompts of a category where all methods run."""
CALIBRATION = "calibration"
MOST_PROMPT = 96
"""Tokens of a prompt to complete; the others are taken whole."""


@with_method_options(*(one.drafts.name for one in METHODS.values() if one.drafts))
def bench(
    config: ConfigOption = "base",
    model: ModelOption = DEFAULT,
    draft_model: Annotated[Path | None, typer.Option(
        "--draft-model", metavar="FILE", show_default=False,
        help="Draft model: another file of `gemmule import` with the same tokens; only with --model FILE.")] = None,
    weights: WeightsOption = None,
    skip_zeros: SkipZerosOption = False,
    method: Annotated[str, typer.Option(
        "--method", metavar="M,..", help=f"Methods, separated by commas: {', '.join(METHODS)}, and the bounds always "
                                         "and never, whose drafts are all right or all wrong and cost nothing. all: "
                                         "every method that the model has, in one table.",
    )] = EVERY,
    num_speculative_tokens: Annotated[str | None, typer.Option(
        "--num-speculative-tokens", metavar="N,..", show_default=False,
        help=f"Tokens drafted per step, {DRAFTS}, separated by commas. Default: {LENGTHS}; with --method all each "
             "method's own number.")] = None,
    method_options: Any = None,
    temperature: Annotated[str, typer.Option(
        "--temperature", metavar="T,..", help=f"Temperatures, separated by commas: 0 (greedy), or {TEMPERATURE[0]:g} "
                                              f"to {TEMPERATURE[1]:g}.")] = "0",
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    verify: VerifyOption = None,
    launch: LaunchOption = "pass",
    adaptive: AdaptiveOption = False,
    prefill_rows: PrefillOption = None,
    prune: PruneOption = None,
    category: Annotated[str | None, typer.Option(
        "--category", metavar="C,..", show_default=False,
        help=f"Categories of prompts, separated by commas: {', '.join(CATEGORIES)}; {', '.join(REQUESTS)} (requests in "
             f"the model's chat template); {CALIBRATION}: separate prompts for choosing options. Default: all requests "
             "if the model has a template, else all of the first group.")] = None,
    prompts: Annotated[int | None, typer.Option(
        "--prompts", metavar="N", min=1, show_default=False, help="Use only the first N of each category. Default: "
                                                                  f"all; with --method all {FEW}.",
    )] = None,
    prompt_file: Annotated[Path | None, typer.Option(
        "--prompt-file", metavar="FILE", show_default=False,
        help="Use prompts from this file instead (UTF-8), separated by lines that are '---'; '-': "
             "standard input.")] = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", metavar="N", min=1, help="For each prompt.")] = 64,
    batch: Annotated[int, typer.Option(
        "--batch", metavar="N", callback=lambda n: BATCH.check("--batch", n),
        help=f"Prompts of a category decoded together, {BATCH}; above 1, each prompt is also decoded alone for "
             "comparison; not with --launch draft or step.")] = 1,
    backend: Annotated[str, choice(
        "--backend", BACKENDS, "model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    compute: ComputeOption = "auto",
    warm: Annotated[bool, typer.Option(
        "--warm", help="Also run methods that learn from texts with what they learned kept from prompt to prompt, in "
                       "rows of their own; by default each prompt begins with nothing.")] = False,
    jsonl: Annotated[Path | None, typer.Option(
        "--jsonl", metavar="FILE", show_default=False, callback=lambda path: check_writable("--jsonl", path),
        help="Also write a JSON line for each prompt and method, as Spec-Bench does; not with --batch.")] = None,
    resume: Annotated[Path | None, typer.Option(
        "--resume", metavar="FILE", show_default=False,
        help="Store each prompt's results in this file, and reuse those already there.")] = None,
    html: HtmlOption = None,
    trace: Annotated[Path | None, typer.Option(
        "--trace", metavar="FILE", show_default=False, callback=lambda path: check_writable("--trace", path),
        help="Also decode the first prompt once more in each case, alone, and write every command of every unit as a "
             "trace for ui.perfetto.dev; FILE.gz is compressed.")] = None,
    energy: EnergyOption = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Decode prompts with several methods; report token equality, speed-up over autoregressive decoding, acceptance and
    loops.

    The prompts are cut from files used neither to train nor to calibrate the bundled models, or are requests that were
    not used to choose anything (docs/decoding.md).
    Exit code 1 if a text differs from that of autoregressive decoding although it must not, or a lossy method's from
    that of its policy.

    \b
    Examples:
      gemmule bench --model small --category repetition --prompts 2 --max-new-tokens 24
      gemmule bench --num-speculative-tokens 1,2,3,5,7 --temperature 0,0.8 --resume build/bench.jsonl
      gemmule bench --model smollm2 --method pld --num-speculative-tokens 7 --category grounded
      gemmule bench --category completion --prompts 8 --batch 4 --compute interpreter
      gemmule bench --method all --resume build/all.jsonl
      gemmule bench --category copy --prompts 1 --num-speculative-tokens 3 --trace build/bench.json.gz
    """
    whole = method == ALL
    prompts = prompts or (FEW if whole and prompt_file is None else None)
    lengths = [0] if whole and num_speculative_tokens is None else values_of(
        "--num-speculative-tokens", LENGTHS if num_speculative_tokens is None else num_speculative_tokens, int)
    for length in lengths if lengths != [0] or num_speculative_tokens is not None else []:
        DRAFTS.check("--num-speculative-tokens", length)
    methods = list(METHODS) if whole else values_of(
        "--method", method, lambda name: check_choice("--method", name, (*METHODS, "always", "never")))
    if batch > 1 and (warm or jsonl):
        raise InputError(f"{'--warm' if warm else '--jsonl'} takes prompts one by one, not a --batch: drop one of the "
                         "two")
    names = category and values_of("--category", category, lambda name: check_choice(
        "--category", name, (*CATEGORIES, *REQUESTS, CALIBRATION)))
    cases = _cases(methods, lengths, values_of("--temperature", temperature, float), verify, warm)
    for option in method_options:
        if not set(of_option(option)).intersection(methods):
            raise InputError(f"{option} needs --method {either(of_option(option))}: add it, or drop the option")
    rules = {case: make_rule(case.rule, case.temperature, top_k, top_p, seed) for case in cases}
    out, device, prices = Output(json), read_config(config), read_energy(energy)
    pruning = read_pruning(prune, launch, batch)

    from gemmule.io.progress import say
    from gemmule.sw.benches.overview import overview_of
    from gemmule.sw.benches.plan import Plan
    from gemmule.sw.benches.rows import best_of, rows_of
    from gemmule.sw.device.interpreted import LARGE, interprets
    from gemmule.sw.models.pair import open_pair
    from gemmule.sw.records import complete
    from gemmule.sw.reports.bench_table import print_bench, print_overview
    from gemmule.sw.reports.energy import bench_rows, print_energy
    from gemmule.sw.reports.resident import print_caches, resident_line
    from gemmule.sw.reports.spec_bench import spec_bench_lines

    pair = open_pair(model, draft_model, weights, skip_zeros=skip_zeros)
    new_tokens(pair.positions).check("--max-new-tokens", max_new_tokens)
    if whole or method == EVERY:
        rules = {case: rule for case, rule in rules.items() if case.method not in METHODS or _has(
            pair, METHODS[case.method], alone=batch == 1 and pruning is None and not case.temperature,
            adaptive=adaptive)}
    every = _prompts(names or (REQUESTS if pair.chat else CATEGORIES), prompts, prompt_file, pair, max_new_tokens)
    check_launch(launch, any(case.temperature for case in rules), batch=batch)
    quick = interprets(compute, LARGE if whole else pair.parameters, backend=backend,
                       launch=launch if pair.draft else "pass", chosen=pruning is not None or pair.skips)
    options = {name: own_options(METHODS[name], method_options) for name in methods if name in METHODS}
    begin = time.perf_counter()
    with Plan(device=device, backend=backend, pair=pair, rules=rules, options=options, new_tokens=max_new_tokens,
              launch=launch, prefill_rows=prefill_rows, batch=batch, interpreted=quick,
              pruning=pruning, adaptive=adaptive,
              given=(top_k, top_p, seed, *([asdict(pruning)] if pruning else []))) as plan:
        found = plan.run(every, resume, traced=trace is not None)
    say(f"{len(every)} prompts in {time.perf_counter() - begin:.0f} s")
    rows = bench_rows(rows_of(found.results, found.parameters, device.host), device, prices)
    best, overview = best_of(rows), overview_of(rows)
    record = {
        "model": pair.name, "weights": weights, "skip_zeros": skip_zeros, "backend": backend,
        "compute": "interpreter" if quick else "device", "seed": seed,
        "max_new_tokens": max_new_tokens, "launch": launch, "prefill_rows": prefill_rows, "batch": batch,
        "top_k": top_k, "top_p": top_p, "prune": asdict(pruning) if pruning else None,
        "method_options": {name: METHODS[name].values(mine) for name, mine in options.items() if METHODS[name].options},
        "adaptive": adaptive, "rows": rows, "best": best, "overview": overview, "pass_costs": found.pass_costs,
        "resident": found.resident,
        "prompts": [{"category": prompt.kind, "name": prompt.name, "tokens": len(ids)} for prompt, ids in every]}
    if html:
        write_file(html, html_page(complete("bench", device, record)), "--html")
    if jsonl:
        lines = spec_bench_lines(found.results, pair.name, device.host, [(one.kind, one.name) for one, _ in every],
                                 pair.decode)
        write_file(jsonl, "".join(f"{line}\n" for line in lines), "--jsonl")
    write_trace(trace, found.timeline, device)
    out.write("bench", device, record)
    out.print(f"{conditions(device)}; {pair.name} model, {max_new_tokens} new tokens, seed {seed}", style="dim")
    if whole:
        print_overview(out.console, overview)
    else:
        print_bench(out.console, rows, best, found.pass_costs)
    print_energy(out.console, rows[-len(overview):] if whole else rows)
    out.print(resident_line(found.resident))
    print_caches(out.console, found.resident)
    if any(row["lossless"] and row["equal_to_ar"] is not None and row["equal_to_ar"] < row["prompts"] for row in rows):
        out.print("tokens differ from autoregressive decoding", style="red")
        raise typer.Exit(1)
    if any(row["policy_equal"] is not None and row["policy_equal"] < row["prompts"] for row in rows):
        out.print("tokens of a lossy method differ from those of its policy", style="red")
        raise typer.Exit(1)


def _has(pair: Pair, method: Method, *, alone: bool, adaptive: bool) -> bool:
    """Whether a method can run with these models. ``alone``: greedily, on a text that has the passes and its cache.

    ``adaptive``: what steps draft is decided for all methods.
    """
    if method.alone and (adaptive or not alone):
        return False
    return not ((method.needs_draft and pair.draft is None)
                or (method.trained and (method.trained not in pair.trained or not alone))
                or (method.needs_streams and pair.streams is None)
                or (method.needs_int4 and (pair.int4 is None or not pair.int4.able)))


def _cases(methods: Sequence[str], lengths: Sequence[int], temperatures: Sequence[float], verify: str | None,
           warm: bool = False) -> list[Case]:
    """``warm``: with a second case of each method that can keep what it learned."""
    from gemmule.sw.benches.bench import BOUNDS, Case

    found = []
    for temperature in temperatures:
        if temperature != 0 and not TEMPERATURE[0] <= temperature <= TEMPERATURE[1]:
            raise InputError(f"--temperature must be 0 or from {TEMPERATURE[0]:g} to {TEMPERATURE[1]:g}, not "
                             f"{temperature:g}")
        for name in methods:
            asked = "match" if name in BOUNDS and temperature else verify if temperature else None
            rule = rule_name(name, temperature, asked)
            kept = (False, True) if warm and name in METHODS and METHODS[name].warm else (False,)
            found += [Case(method=name, num_tokens=length, temperature=temperature, rule=rule, warm=keeps)
                      for length in (lengths if name in BOUNDS or METHODS[name].drafts else [0]) for keeps in kept]
    if verify is not None and not any(temperatures):
        rule_name("ar", 0, verify)  # says what is wrong
    return found


def _prompts(names: Sequence[str], most: int | None, file: Path | None, pair: Pair,
             max_new_tokens: int) -> list[tuple[Prompt, list[int]]]:
    """Prompts and their tokens.

    Raises:
        InputError: the file cannot be read or holds none; one does not fit the context.
    """
    from gemmule.sw.prompts.categories import load_categories
    from gemmule.sw.prompts.choose import Prompt
    from gemmule.sw.prompts.requests import load_requests

    if file is not None:
        texts = read_parts(file, "--prompt-file")
        chosen = [Prompt(f"{file.name}:{i}", "file", text) for i, text in enumerate(texts, 1)]
    else:
        known = load_categories() | load_requests()
        # A kind says more of a completion; here it is the category.
        chosen = [Prompt(prompt.name, name, prompt.text) for name in names for prompt in known[name][:most]]
    asked = _asking(pair, {prompt.kind for prompt in chosen}.intersection(REQUESTS))
    found = []
    for prompt in chosen:
        ids = asked(prompt.text) if prompt.kind in REQUESTS else pair.encode(prompt.text)
        ids = ids[:MOST_PROMPT] if prompt.kind in ("completion", CALIBRATION) else ids
        if len(ids) + max_new_tokens > pair.positions:
            if file is not None:
                raise InputError(f"--prompt-file {file}: a prompt and {max_new_tokens} new tokens must fit the context "
                                 f"of {pair.positions}, not {len(ids)} + {max_new_tokens}: shorten it")
            ids = ids[:pair.positions - max_new_tokens]
        found.append((prompt, ids))
    return found[:most] if file is not None else found


def _asking(pair: Pair, kinds: set[str]) -> Callable[[str], list[int]]:
    """Tokens of a request in the model's chat template; ``kinds``: of the requests that there are.

    Raises:
        InputError: there are some, and the model has no template.
    """
    from gemmule.sw.text.chat import Template

    if pair.chat is None:
        if kinds:
            raise InputError(f"--category {min(kinds)} needs a model with a chat template, such as smollm2, not "
                             f"{pair.name}: take {', '.join(CATEGORIES)}")
        return pair.encode
    template = Template(pair.chat, pair.name)
    return lambda text: pair.plain(template.render([{"role": "user", "content": text}]))
