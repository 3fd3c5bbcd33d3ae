"""``gemmule generate``: text by speculative decoding on the simulated accelerator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.io.reading import shown
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
    TraceOption,
    WeightsOption,
    choice,
    conditions,
    read_config,
    write_trace,
)
from gemmule.sw.commands.shared.energy import EnergyOption, read_energy
from gemmule.sw.commands.shared.method_options import with_method_options
from gemmule.sw.commands.shared.prune import PruneOption
from gemmule.sw.commands.shared.sampling import (
    AdaptiveOption,
    LaunchOption,
    PrefillOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    VerifyOption,
)
from gemmule.sw.commands.shared.searching import (
    BeamsOption,
    BestOfOption,
    EarlyStopOption,
    PenaltyOption,
    RankOption,
    Searching,
)
from gemmule.sw.commands.shared.settings import Settings
from gemmule.sw.commands.shared.texts import QUESTION, read_parts, read_prompt
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.errors import InputError
from gemmule.sw.limits import (
    ADAPTIVE_MOST,
    BACKENDS,
    BATCH,
    CONTEXTS,
    DEFAULT,
    KV_CACHES,
    LENGTHS,
    MODELS,
    OVERFLOWS,
    PROMPT_BYTES,
    check_choice,
    new_tokens,
    resolve_pair,
)
from gemmule.sw.reports.files import write_file

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.sim.energy.table import EnergyTable
    from gemmule.sw.commands.shared.decode import Job, Live
    from gemmule.sw.decoding.generation import Generation
    from gemmule.sw.decoding.script import Chatted, Script
    from gemmule.sw.decoding.stops import Stops
    from gemmule.sw.device.timeline import Timeline
    from gemmule.sw.models.pair import Pair

__all__ = ["generate"]

CONTEXT = CONTEXTS[resolve_pair(DEFAULT)]


@with_method_options()
def generate(
    config: ConfigOption = "base",
    model: ModelOption = DEFAULT,
    draft_model: Annotated[Path | None, typer.Option(
        "--draft-model", metavar="FILE", show_default=False,
        help="Draft model: another file of `gemmule import` with the same tokens; only with --model FILE.")] = None,
    weights: WeightsOption = None,
    skip_zeros: SkipZerosOption = False,
    prompt: Annotated[str | None, typer.Option(
        "--prompt", metavar="TEXT",
        help=f"Text to continue, at least one character, at most {CONTEXT - 1} tokens (about 3 characters each). "
             "Default: the head of a function; with --chat, a question.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(
        "--prompt-file", metavar="FILE",
        help=f"Read the text to continue from this file (UTF-8, at most {PROMPT_BYTES:,} bytes); '-': standard input. "
             "Not with --prompt.")] = None,
    turns: Annotated[Path | None, typer.Option(
        "--turns", metavar="FILE", show_default=False,
        help="A conversation: this file contains the turns, separated by lines that are '---'. Up to --max-new-tokens "
             "are generated after each turn; the KV cache is kept between turns. Not with --prompt, --prompt-file.",
    )] = None,
    batch: Annotated[int, typer.Option(
        "--batch", metavar="N", callback=lambda n: BATCH.check("--batch", n),
        help=f"Number of texts decoded together, {BATCH}; above 1, --prompt-file contains prompts separated by lines "
             "that are '---'. A finished text's slot goes to the next prompt.")] = 1,
    chat: Annotated[bool, typer.Option(
        "--chat", help="Use the model's chat template: the prompt, each turn of --turns and each text of a --batch is "
                       "a user message.")] = False,
    system: Annotated[str | None, typer.Option(
        "--system", metavar="TEXT", show_default=False,
        help="System message; only with --chat. Default: the template's own.")] = None,
    method: Annotated[str | None, typer.Option(
        "--method", metavar="|".join(METHODS), autocompletion=lambda: list(METHODS), show_default=False,
        callback=lambda name: name if name is None else check_choice("--method", name, tuple(METHODS)),
        help="Decoding method: " + "; ".join(f"{name}, {one.says}" for name, one in METHODS.items())
             + ". Default: draft if there is a draft model.")] = None,
    method_options: Any = None,
    draft_lengths: Annotated[str, choice(
        "--draft-lengths", LENGTHS, "How many of these tokens a step drafts: constant (all), heuristic (2 more after "
        "all were accepted, else 1 fewer), confidence (continue while the draft is 40 % sure), cost (most tokens per "
        "cycle, from acceptance so far), batch (one number for all texts of a --batch). Except for constant, at most "
        f"{ADAPTIVE_MOST} if no number is given.")] = "constant",
    adaptive: AdaptiveOption = False,
    max_new_tokens: Annotated[int, typer.Option(
        "--max-new-tokens", metavar="N",
        help=f"Tokens to generate, {new_tokens(CONTEXT)}; fewer if the text fills the context of {CONTEXT} positions. "
             "An imported model has its own context.")] = 64,
    context_overflow: Annotated[str, choice(
        "--context-overflow", OVERFLOWS, "When a text fills the context: end it (stop), continue with its newest half "
        "context (crop), or continue with that after its first 4 tokens (sinks).")] = "stop",
    stop: Annotated[list[str] | None, typer.Option(
        "--stop", metavar="TEXT", show_default=False,
        help="End the text before TEXT, which may contain special tokens; may be given several times.")] = None,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    verify: VerifyOption = None,
    beams: BeamsOption = None,
    length_penalty: PenaltyOption = None,
    early_stop: EarlyStopOption = False,
    best_of: BestOfOption = None,
    rank: RankOption = None,
    launch: LaunchOption = "pass",
    prefill_rows: PrefillOption = None,
    kv_cache: Annotated[str, choice(
        "--kv-cache", KV_CACHES, "full; or none: every pass recomputes the whole text, which shows what the cache is "
        "worth. The text is the same.")] = "full",
    prune: PruneOption = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Continue after a token that ends a text.")] = False,
    baseline: Annotated[bool | None, typer.Option(
        "--baseline/--no-baseline", show_default=False,
        help="Also run autoregressive decoding on the model and compare; with --method ar only if --kv-cache is none. "
             "Default: yes.",
    )] = None,
    stream: Annotated[bool | None, typer.Option(
        "--stream/--no-stream", show_default=False,
        help="Show the text as it is accepted; Ctrl-C ends it there. Default: on a terminal.")] = None,
    backend: Annotated[str, choice(
        "--backend", BACKENDS, "model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    compute: ComputeOption = "auto",
    html: HtmlOption = None,
    trace: TraceOption = None,
    energy: EnergyOption = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Generate text with a bundled, published or imported model and report where the cycles go.

    Bundled models run on base, edge and configurations with similar memories. With --temperature, tokens are sampled
    from --seed, in integers. Exit code 1 if the text differs from that of autoregressive decoding although it must
    not.

    \b
    Examples:
      gemmule generate --prompt "import os" --max-new-tokens 32
      gemmule generate --model smollm2 --chat --prompt "Why is the sky blue?" --method pld
      gemmule generate --prompt-file start.py --num-speculative-tokens 5 --json build/text.json
      gemmule generate --method pld --prompt-lookup-num-tokens 7 --prompt-lookup-form original
      gemmule generate --temperature 0.8 --top-p 0.95 --seed 3
      gemmule generate --prompt "def area(" --stop " class" --stop "import"
      gemmule generate --turns turns.txt --stream
      gemmule generate --model build/chat.safetensors --chat --system "Be brief." --prompt "Hello"
      gemmule generate --prompt-file turns.txt --batch 2
      gemmule generate --html build/text.html --trace build/text.json.gz
      gemmule generate --method ar --config edge
      gemmule generate --prune examples/pruning/half.yaml --max-new-tokens 200
      gemmule generate --beams 4 --length-penalty 0.8
      gemmule generate --best-of 8 --temperature 0.8 --rank majority
    """
    searching = Searching(beams=beams, length_penalty=length_penalty, early_stop=early_stop, best_of=best_of, rank=rank)
    settings = Settings(
        method=method or ("ar" if searching.wanted or (model not in MODELS and draft_model is None) else "draft"),
        method_options=method_options, temperature=temperature, top_k=top_k, top_p=top_p, verify=verify,
        draft_lengths=draft_lengths, adaptive=adaptive, launch=launch, prefill_rows=prefill_rows, kv_cache=kv_cache,
        prune=prune, context_overflow=context_overflow, batch=batch, backend=backend, compute=compute, seed=seed)
    searching.check(method, settings, {
        "--turns": turns is not None, "--stream": bool(stream), "--html": html is not None,
        "--trace": trace is not None, "--draft-model": draft_model is not None,
        "--skip-zeros": skip_zeros})
    settings.check(None if searching.wanted else baseline, **{
        "--stream": bool(stream), "--turns": turns is not None, "--prompt": prompt is not None})
    if not all(strings := stop or []):
        raise InputError("--stop must hold at least one character, not ''; leave it out")
    if system is not None and not chat:
        raise InputError(f"--system {shown(system)} needs --chat: give it, or leave out --system")
    rule, out, device, prices = settings.rule(), Output(json), read_config(config), read_energy(energy)
    texts, source = _texts(QUESTION if chat and prompt is prompt_file is turns is None else prompt, prompt_file, turns,
                           batch)

    from gemmule.sw.commands.shared.decode import Job, Live
    from gemmule.sw.decoding.stops import Stops
    from gemmule.sw.models.pair import open_pair
    from gemmule.sw.records import complete
    from gemmule.sw.reports.resident import resident_line
    from gemmule.sw.reports.terminal import print_generation
    from gemmule.sw.workloads.estimate import announce_tokens

    pair = open_pair(model, draft_model, weights, skip_zeros=skip_zeros)
    script, ids = _scripted(pair, texts, chat, system, batch)
    if context_overflow == "stop":
        _check_context(ids if batch > 1 else ids[:1], max_new_tokens, pair.positions, source)
    elif max_new_tokens < 1:
        raise InputError(f"--max-new-tokens must be at least 1, not {max_new_tokens}")
    stops = Stops(frozenset() if ignore_eos else pair.ends, strings, pair.words)
    announce_tokens(max_new_tokens * len(texts), backend, pair.parameters)
    if searching.wanted:
        _search(searching, settings, pair, ids[0], stops, out, {
            "weights": weights, "skip_zeros": skip_zeros, "prompt": texts[0], "chat": chat, "system": system,
            "stop": strings}, max_new_tokens, baseline is not False, device)
        return
    timeline: Timeline | None = [] if trace else None
    streamed = batch == 1 and (out.console.is_terminal if stream is None else stream)
    head, title = f"{conditions(device)}; seed {seed}", f"{pair.name} model, {settings.method} on {backend}"
    live = None
    if streamed:
        live = Live(out.console, pair.words, texts, strings, chat=chat, files=bool(json or html or trace))
        out.print(head, style="dim")
        out.print(title)
    job = Job(script=script, ids=ids, max_new_tokens=max_new_tokens, stops=stops, rule=rule,
              context_overflow=context_overflow, batch=batch)
    run, reference, told = _decoded(job, settings, device, pair, baseline, timeline, live, prices)
    parts = _parts(texts, run.turns or (run,), pair)
    record = told | {
        "model": pair.name, "weights": weights, "skip_zeros": skip_zeros, "prompt": texts[0],
        "prompt_tokens": run.given, "chat": chat, "system": system, "stop": strings,
        "dropped_tokens": run.dropped, "turns": parts if turns else None,
        "texts": parts if batch > 1 else None}
    if html:
        write_file(html, html_page(complete("generate", device, record)), "--html")
    write_trace(trace, timeline, device)
    out.write("generate", device, record)
    if not live:
        out.print(head, style="dim")
    print_generation(out.console, texts, run, reference,
                     settings.method if kv_cache == "full" else f"{settings.method}, no KV cache",
                     f"{title}: {run.given} prompt tokens, {len(run.tokens)} new tokens", pair,
                     same_text=rule.same_text, shown=streamed, by_positions=kv_cache == "none", batch=batch,
                     extra_parameters=record["extra_parameters"], chat=chat, prices=prices)
    out.print(resident_line(record["resident"]))
    if run.finish_reason == "interrupted":
        raise KeyboardInterrupt
    if record["same_tokens_as_ar"] is False:
        out.print("tokens differ from autoregressive decoding", style="red")
        raise typer.Exit(1)
    if record["policy_equal"] is False:
        out.print("tokens of a lossy method differ from those of its policy", style="red")
        raise typer.Exit(1)


def _search(searching: Searching, settings: Settings, pair: Pair, prompt: list[int], stops: Stops, out: Output,
            told: dict[str, Any], max_new_tokens: int, baseline: bool, device: Config) -> None:
    """Several continuations of the prompt as rows of the same passes."""
    from gemmule.sw.reports.search import print_search

    _, _, record = searching.run(settings, device, pair, prompt, max_new_tokens, stops, baseline)
    out.write("search", device, {"model": pair.name} | told | record)
    out.print(f"{conditions(device)}; seed {settings.seed}", style="dim")
    print_search(out.console, told["prompt"], record,
                 f"{pair.name} model, {searching.option} on {settings.backend}: {record['prompt_tokens']} prompt "
                 f"tokens, {len(record['tokens'])} new tokens")


def _decoded(job: Job, settings: Settings, device: Config, pair: Pair, baseline: bool | None,
             timeline: Timeline | None, live: Live | None,
             prices: EnergyTable) -> tuple[Generation, Generation | None, dict[str, Any]]:
    """The run, the one of autoregressive decoding to compare with (None: there is none), and what JSON tells of both.

    Raises:
        KeyboardInterrupt: before the first token.
    """
    from gemmule.sw.decoding.resident import resident
    from gemmule.sw.device.ledger import Ledger
    from gemmule.sw.reports.terminal import generation_json

    method, plain = settings.method, settings.method == "ar" and settings.kv_cache == "full"
    with settings.session(device, pair) as session:
        begin = time.perf_counter()
        run = job.run(session, f"{method} on {settings.backend}", method, Ledger(device, timeline=timeline),
                      num_tokens=settings.drafts, lengths=settings.draft_lengths, options=settings.options,
                      kv_cache=settings.kv_cache, adaptive=settings.adaptive, live=live)
        seconds, stays = time.perf_counter() - begin, resident(session)
    if live and live.closed:
        raise typer.Exit(1)
    interrupted = run.finish_reason == "interrupted"
    if interrupted and not run.tokens:
        raise KeyboardInterrupt
    reference = run if plain else None
    if baseline is not False and reference is None and not interrupted:
        with settings.plain_session(device, pair) as other:
            reference = job.run(other, "ar on model", "ar", Ledger(device))
    told = generation_json(run, reference, pair, same_text=job.rule.same_text,
                           extra_parameters=session.extra_parameters(method, settings.options), prices=prices)
    followed = None if settings.way.lossless else all(
        session.follows(method, settings.options, turn.before, turn.tokens) for turn in run.turns or (run,))
    return run, reference, told | settings.record(session, pair) | {"policy_equal": followed} | {
        "simulation_seconds": round(seconds, 3), "resident": stays}


def _scripted(pair: Pair, texts: list[str], chat: bool, system: str | None,
              batch: int) -> tuple[Callable[[], Script], list[list[int]]]:
    """What gives the turns of a conversation, and the tokens of each text of a batch.

    Raises:
        InputError: as of :func:`_chatted`.
    """
    from gemmule.sw.decoding.script import Plain

    if chat:
        chatted = _chatted(pair, system)
        return partial(chatted, texts), [chatted([text]).turn(0, None).tokens
                                         for text in (texts if batch > 1 else texts[:1])]
    ids = [pair.encode(texts[0]), *map(pair.encode if batch > 1 else pair.go_on, texts[1:])]
    return partial(Plain, ids), ids


def _check_context(prompts: Sequence[list[int]], max_new_tokens: int, positions: int, source: str) -> None:
    """Whether prompts and new tokens fit the context, which ends a text.

    Raises:
        InputError: they do not.
    """
    new_tokens(positions).check("--max-new-tokens", max_new_tokens)
    for prompt in prompts:
        if len(prompt) >= positions:
            raise InputError(f"{source}: the prompt must hold at most {positions - 1} tokens, not {len(prompt)}; "
                             "shorten it, or --context-overflow crop")


def _texts(prompt: str | None, prompt_file: Path | None, turns: Path | None, batch: int) -> tuple[list[str], str]:
    """What each turn or text of the batch is given, and where it came from.

    Raises:
        InputError: options exclude each other, or a file is no text.
    """
    if batch > 1:
        if prompt_file is None:
            raise InputError(f"--batch {batch} needs --prompt-file, with prompts between lines that are '---'")
        return read_parts(prompt_file, "--prompt-file"), f"--prompt-file {prompt_file}"
    if turns is None:
        words, source = read_prompt(prompt, prompt_file)
        return [words], source
    for option, value in (("--prompt", prompt), ("--prompt-file", prompt_file)):
        if value is not None:
            raise InputError(f"--turns and {option} exclude each other: put the first text into the file of --turns")
    return read_parts(turns, "--turns"), f"--turns {turns}"


def _chatted(pair: Pair, system: str | None) -> Callable[[Sequence[str]], Chatted]:
    """A conversation by what the user says, through the model's chat template.

    Raises:
        InputError: the model has no template, or one that is none.
    """
    from gemmule.sw.decoding.script import Chatted
    from gemmule.sw.models.bundled_models import check_utf8
    from gemmule.sw.text.chat import Template

    if pair.chat is None:
        raise InputError(f"--chat: model {pair.name} has no chat template; leave out --chat, or import it from a "
                         "folder with chat_template.jinja, or chat_template in tokenizer_config.json")
    if system is not None:
        check_utf8("--system", system)
    template = Template(pair.chat, pair.name)

    def chatted(texts: Sequence[str]) -> Chatted:
        if not all(texts):
            raise InputError("--prompt must hold at least one character, not ''; give some text")
        return Chatted(template.render, pair.plain, pair.words, texts, system)

    return chatted


def _parts(texts: list[str], runs: Sequence[Generation], pair: Pair) -> list[dict[str, Any]]:
    """Turns of a conversation, or texts of a batch."""
    from gemmule.sw.reports.terminal import text_of

    return [{"prompt": text, "prompt_tokens": run.given, "tokens": run.tokens, "text": text_of(run, pair),
             "finish_reason": run.finish_reason, "cached_tokens": run.cached, "prefill_cycles": run.prefill.cycles,
             "cycles": run.ledger.cycles} for text, run in zip(texts, runs)]
