"""``gemmule generate``: text by speculative decoding on the simulated accelerator."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.common import (
    ConfigOption,
    JsonOption,
    Output,
    SeedOption,
    TraceOption,
    choice,
    conditions,
    read_config,
    write_file,
    write_trace,
)
from gemmule.sw.commands.report import html_page
from gemmule.sw.commands.sampling import (
    LaunchOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    VerifyOption,
    check_launch,
    make_rule,
    rule_name,
)
from gemmule.sw.errors import InputError
from gemmule.sw.limits import (
    ADAPTIVE_MOST,
    BACKENDS,
    CONTEXTS,
    DEFAULT,
    DRAFTS,
    DRAFTS_DEFAULT,
    LENGTHS,
    LOOKUP_DEFAULT,
    LOOKUP_FORMS,
    METHODS,
    MODELS,
    NGRAM,
    PROMPT_BYTES,
    check_choice,
    new_tokens,
    resolve_pair,
)

if TYPE_CHECKING:
    from gemmule.sw.decoding.generate import Generation
    from gemmule.sw.reports.trace import Timeline
    from gemmule.sw.session import Session

__all__ = ["generate"]

PROMPT = '''def read_lines(path):
    """Return the lines of a file."""
    with open(path) as file:
'''


CONTEXT = CONTEXTS[resolve_pair(DEFAULT)]


def generate(
    config: ConfigOption = "base",
    model: Annotated[str, typer.Option(
        "--model", metavar=f"{'|'.join(MODELS)}|FILE", autocompletion=lambda: list(MODELS),
        help="Bundled models: small (for RTL and quick tests) or default, which is small where no other is installed. "
             "Or a file that `gemmule import` wrote.")] = DEFAULT,
    draft_model: Annotated[Path | None, typer.Option(
        "--draft-model", metavar="FILE", show_default=False,
        help="Another file of `gemmule import` with the same tokens, which drafts; only with --model FILE.")] = None,
    prompt: Annotated[str | None, typer.Option(
        "--prompt", metavar="TEXT",
        help=f"Text to continue, at least one character, at most {CONTEXT - 1} tokens (about 3 characters each). "
             "Default: the head of a function.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(
        "--prompt-file", metavar="FILE",
        help=f"The text to continue is in this file (UTF-8, at most {PROMPT_BYTES:,} bytes); '-': standard input. "
             "Not with --prompt.")] = None,
    method: Annotated[str | None, typer.Option(
        "--method", metavar="|".join(METHODS), autocompletion=lambda: list(METHODS), show_default=False,
        callback=lambda name: name if name is None else check_choice("--method", name, METHODS),
        help="Decoding: draft (a small model proposes, the large one verifies), pld (prompt lookup: what followed the "
             "last tokens before) or ar (autoregressive). Default: draft where there is a draft model.")] = None,
    num_speculative_tokens: Annotated[int | None, typer.Option(
        "--num-speculative-tokens", metavar="N", show_default=False,
        callback=lambda n: n if n is None else DRAFTS.check("--num-speculative-tokens", n),
        help=f"Tokens drafted a step, {DRAFTS}; only with --method draft. Default: {DRAFTS_DEFAULT}.")] = None,
    prompt_lookup_num_tokens: Annotated[int | None, typer.Option(
        "--prompt-lookup-num-tokens", metavar="N", show_default=False,
        callback=lambda n: n if n is None else DRAFTS.check("--prompt-lookup-num-tokens", n),
        help=f"Tokens drafted a step, {DRAFTS}; only with --method pld. Default: {LOOKUP_DEFAULT}, or as many as a "
             "pass verifies.")] = None,
    prompt_lookup_form: Annotated[str | None, typer.Option(
        "--prompt-lookup-form", metavar="|".join(LOOKUP_FORMS), autocompletion=lambda: list(LOOKUP_FORMS),
        show_default=False,
        callback=lambda name: name if name is None else check_choice("--prompt-lookup-form", name, LOOKUP_FORMS),
        help="Which earlier places count: huggingface (all that something follows) or original (those that are "
             "followed by as many tokens as are drafted); only with --method pld. Default: huggingface.")] = None,
    prompt_lookup_max: Annotated[int | None, typer.Option(
        "--prompt-lookup-max", metavar="N", show_default=False,
        callback=lambda n: n if n is None else NGRAM.check("--prompt-lookup-max", n),
        help=f"Tokens that are looked for first, {NGRAM}; then fewer; only with --method pld. Default: 3.")] = None,
    draft_lengths: Annotated[str, choice(
        "--draft-lengths", LENGTHS, "How many of those a step drafts: constant (all), heuristic (2 more where all were "
        "accepted, else 1 fewer), confidence (on while the draft is 40 % sure), cost (most tokens a cycle by "
        f"acceptance so far). But for constant at most {ADAPTIVE_MOST} where no number is given.")] = "constant",
    max_new_tokens: Annotated[int, typer.Option(
        "--max-new-tokens", metavar="N",
        help=f"Tokens to generate, {new_tokens(CONTEXT)}; fewer where the text fills the context of {CONTEXT} "
             "positions. An imported model has its own context.")] = 64,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    verify: VerifyOption = None,
    launch: LaunchOption = "pass",
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after a token that ends a text.")] = False,
    baseline: Annotated[bool | None, typer.Option(
        "--baseline/--no-baseline", show_default=False,
        help="Also run autoregressive decoding on the model and compare; not with --method ar. Default: yes.",
    )] = None,
    backend: Annotated[str, choice(
        "--backend", BACKENDS, "model (exact, fast) or rtl (the Verilog under Verilator).")] = "model",
    html: Annotated[Path | None, typer.Option(
        "--html", metavar="FILE", show_default=False, help="Also write the report as a page with figures.")] = None,
    trace: TraceOption = None,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Generate text with a bundled or imported model and report where the cycles go.

    Bundled ones run on base, edge and configurations with memories like theirs. With --temperature tokens are drawn
    by --seed, in integers. Exit code 1 if the text differs from that of autoregressive decoding where it must not.

    \b
    Examples:
      gemmule generate --prompt "import os" --max-new-tokens 32
      gemmule generate --prompt-file start.py --num-speculative-tokens 5 --json build/text.json
      gemmule generate --method pld --prompt-lookup-num-tokens 7 --prompt-lookup-form original
      gemmule generate --temperature 0.8 --top-p 0.95 --seed 3
      gemmule generate --html build/text.html --trace build/text.json.gz
      gemmule generate --method ar --config edge
    """
    if method is None:
        method = "ar" if model not in MODELS and draft_model is None else "draft"
    for option, value, needed in (("--num-speculative-tokens", num_speculative_tokens, ("draft",)),
                                  ("--prompt-lookup-num-tokens", prompt_lookup_num_tokens, ("pld",)),
                                  ("--prompt-lookup-form", prompt_lookup_form, ("pld",)),
                                  ("--prompt-lookup-max", prompt_lookup_max, ("pld",)),
                                  ("--baseline" if baseline else "--no-baseline", baseline, ("draft", "pld"))):
        if value is not None and method not in needed:
            raise InputError(f"{option} needs --method {' or '.join(needed)}, not {method}: drop one of the two"
                             + ", or give --draft-model" * (method == "ar" and "draft" in needed))
    if draft_lengths != "constant" and method == "ar":
        raise InputError(f"--draft-lengths {draft_lengths} needs --method draft or pld, not ar: drop one of the two")
    check_launch(launch, temperature > 0, draft_lengths)
    name = rule_name(method, temperature, verify)
    rule = make_rule(name, temperature, top_k, top_p, seed)
    out = Output(json)
    device_config = read_config(config)
    words, source = _prompt(prompt, prompt_file)

    from gemmule.sw.decoding.methods import Lookup
    from gemmule.sw.estimate import announce_tokens
    from gemmule.sw.pair import open_pair
    from gemmule.sw.records import complete
    from gemmule.sw.reports.terminal import generation_json, print_generation
    from gemmule.sw.session import Session

    pair = open_pair(model, draft_model)
    new_tokens(pair.positions).check("--max-new-tokens", max_new_tokens)
    ids = pair.encode(words)
    most = pair.positions - 1
    if len(ids) > most:
        raise InputError(f"{source}: the prompt must hold at most {most} tokens, not {len(ids)}; shorten it")
    drafts = num_speculative_tokens or prompt_lookup_num_tokens or (
        None if draft_lengths == "constant" else ADAPTIVE_MOST)
    stop = frozenset() if ignore_eos else pair.ends
    announce_tokens(max_new_tokens, backend)
    timeline: Timeline | None = [] if trace else None
    lookup = Lookup(prompt_lookup_form or Lookup.form, prompt_lookup_max or Lookup.most_ngram)
    arguments, sampled = (ids, max_new_tokens, drafts, stop), temperature > 0
    with Session(device_config, backend, pair, general=sampled or draft_lengths == "confidence",
                 looped=launch == "step" and method == "draft") as session:
        run, seconds = _run(session, f"{method} on {backend}", method, *arguments, rule=rule, lengths=draft_lengths,
                            timeline=timeline, lookup=lookup)
    reference = run if method == "ar" else None
    if baseline is not False and method != "ar":
        with Session(device_config, pair=pair, general=sampled) as session:
            reference, _ = _run(session, "ar on model", "ar", *arguments, rule=rule)
    out.print(f"{conditions(device_config)}; seed {seed}", style="dim")
    print_generation(out.console, words, ids, run, reference, method, backend, pair, same_text=rule.same_text)
    record = generation_json(run, reference, pair, same_text=rule.same_text) | {
        "model": pair.name, "prompt": words, "prompt_tokens": len(ids), "method": method, "backend": backend,
        "seed": seed, "num_speculative_tokens": session.drafts(method, drafts), "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "verify": name, "draft_lengths": draft_lengths, "launch": launch,
        "simulation_seconds": round(seconds, 3),
    }
    out.write("generate", device_config, record)
    if html:
        write_file(html, html_page(complete("generate", device_config, record)), "--html")
    write_trace(trace, timeline, device_config)
    if record["same_tokens_as_ar"] is False:
        out.print("tokens differ from autoregressive decoding", style="red")
        raise typer.Exit(1)


def _prompt(prompt: str | None, file: Path | None) -> tuple[str, str]:
    """The prompt and what it came from.

    Raises:
        InputError: both are given, or the file cannot be read, is empty, too large or not UTF-8.
    """
    if file is None:
        return PROMPT if prompt is None else prompt, "--prompt"
    source = f"--prompt-file {file}"
    if prompt is not None:
        raise InputError("--prompt and --prompt-file exclude each other: drop one of the two")
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(PROMPT_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(PROMPT_BYTES + 1)
        words = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{source} must name a file that can be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        if len(data) <= PROMPT_BYTES:
            raise InputError(f"{source} must be UTF-8 text, not with byte {data[error.start]:#04x} at {error.start}: "
                             "convert it") from None
    if len(data) > PROMPT_BYTES:
        raise InputError(f"{source} must hold at most {PROMPT_BYTES} bytes, not more: shorten it")
    if not words:
        raise InputError(f"{source} must hold at least one character, not none; give some text")
    return words, source


def _run(session: Session, label: str, method: str, prompt: list[int], max_new_tokens: int,
         num_speculative_tokens: int | None, stop: frozenset[int], **options: Any) -> tuple[Generation, float]:
    """The generation, and the seconds that simulating it took."""
    from gemmule.io.progress import counting, say

    begin = time.perf_counter()
    done = 0

    def advance(new: Sequence[int]) -> None:
        nonlocal done
        done += len(new)
        tell(done, "")

    with counting(label, max_new_tokens, lines=False) as tell:
        run = session.generate(method, prompt, max_new_tokens, num_speculative_tokens, stop, advance, **options)
    seconds = time.perf_counter() - begin
    say(f"{label}: simulated in {seconds:.1f} s")
    return run, seconds
