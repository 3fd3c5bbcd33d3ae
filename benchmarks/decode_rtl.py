"""Text decoded on the RTL and on the model: the same tokens and the same cycles, by every method and launch mode.

    python -m benchmarks.decode_rtl --model default --new-tokens 64 --out docs/results/decode_rtl.json
    python -m benchmarks.decode_rtl --model small --prompt-tokens 128 --new-tokens 24 --prune \\
        examples/pruning/*short.yaml --out docs/results/decode_rtl_pruned.json

Each method continues the first held-out prompt of its category (completions; copies for prompt lookup) on `--config`,
first on the model, then on the Verilog under Verilator. Compared are tokens, steps, and the ledger: launches and cycles
by model, busy cycles by unit, DRAM bytes by purpose, and what the DRAM holds at the end. --prune: instead by prompt
lookup with a cache that is pruned by each of these schedules. Finished runs are kept in --out and not run again. Exit
code 1 where anything differs.

    python -m benchmarks.decode_rtl --model small --prompt-tokens 48 --new-tokens 48 --every \\
        --out docs/results/decode_rtl_methods.json

runs every lossless method but those that need a drafter trained for the target, a pass a launch, each with its own
options.

    python -m benchmarks.decode_rtl --model default --prompt-tokens 48 --new-tokens 48 --trained --out \
        docs/results/decode_rtl_trained.json
    python -m benchmarks.decode_rtl --model tuned --prompt-tokens 48 --new-tokens 48 --trained --out \
        docs/results/decode_rtl_tuned.json
    python -m benchmarks.decode_rtl --model smollm2 --new-tokens 12 --trained --out docs/results/decode_rtl_smollm2.json

runs the others, lossy ones too: those whose drafter, heads or tuning that model has. SmolLM2 is asked the first of the
held-out requests, whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import console, machine, show, write
from benchmarks.equality import OPTIONS
from gemmule.config import load_config
from gemmule.io.progress import working
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generate import Generation
from gemmule.sw.decoding.methods import METHODS, drafting_of, needing_int4
from gemmule.sw.decoding.session import Session
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.limits import DEFAULT, SMALL, TUNED
from gemmule.sw.models.pair import Pair, open_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.prompts.requests import first_requests
from gemmule.sw.text.chat import Template

RUNS = (("ar", "pass", "completion"), ("draft", "pass", "completion"), ("pld", "pass", "copy"),
        ("draft", "draft", "completion"), ("draft", "step", "completion"))
"""Method, launch mode, and the category whose first prompt is continued."""
PRUNED_RUN = RUNS[2]
"""The same where the cache is pruned."""
EVERY = tuple((name, "pass", "copy") for name, one in METHODS.items() if one.common and one.lossless)
"""The same with ``--every``."""
MODELS = (SMALL, DEFAULT, TUNED, "smollm2")


def trained_runs(pair: Pair) -> tuple[tuple[str, str, str], ...]:
    """The same with ``--trained``."""
    own = {TUNED: ("streaming", "layerskip"), DEFAULT: ("calm", "skipdecode")}.get(pair.name, ())
    return tuple((name, "pass", "copy") for name, one in METHODS.items()
                 if one.trained in pair.trained or name in own)


def prompt_of(pair: Pair, category: str, most: int) -> list[int]:
    """The first ``most`` tokens of a category's first text, or a first request, whole, of a model that has chats."""
    if pair.chat:
        request = next(iter(first_requests().values()))[0].text
        return pair.plain(Template(pair.chat, pair.name).render([{"role": "user", "content": request}]))
    return pair.encode(load_categories()[category][0].text)[:most]


def told(run: Generation, dram: bytes) -> dict[str, Any]:
    """All that must be equal; ``dram``: what the device's DRAM holds at the end."""
    ledger = asdict(run.ledger)
    del ledger["config"], ledger["timeline"]
    return {"tokens": run.tokens, "steps": [list(step) for step in run.steps], **ledger, "pruned": run.pruned,
            "dram": hashlib.sha256(dram).hexdigest()}


def _models(pair: Pair, method: str) -> list[str]:
    """SHA-256 of those that the text comes of."""
    way = METHODS[method]
    return [*pair.digests[:1 + (way.needs_draft or way.schedule is not None or way.parts is not None)],
            *([pair.trained[way.trained]().made.file.sha256] if way.trained else [])]


def decode(pair: Pair, args: argparse.Namespace, method: str, launch: str, category: str,
           pruning: Pruning | None = None) -> dict[str, Any]:
    """One text on both back ends."""
    prompt = prompt_of(pair, category, args.prompt_tokens)
    way, options = METHODS[method], OPTIONS.get(method, {})
    runs: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    size = 0
    for backend in ("model", "rtl"):
        with Session(load_config(args.config), backend, pair, launch=launch, general=way.needs_general,
                     int4=needing_int4(method, options), trained=[way.trained] if way.trained else [],
                     drafting=drafting_of({method: options}, pair.positions), pruning=pruning) as session, \
                working(f"{method}, --launch {launch}, on {backend}", least=1.0):
            begun = time.perf_counter()
            run = session.generate(method, prompt, args.new_tokens, options=options)
            size = session.device.memory.dram.size if isinstance(session.device, Simulator) else size
            runs[backend] = told(run, session.device.read_dram(0, size))
            seconds[backend] = time.perf_counter() - begun
    model, rtl = runs["model"], runs["rtl"]
    return {
        "models": _models(pair, method), "method": method, "launch": launch, "category": category,
        "prompt_tokens": len(prompt), "tokens": len(rtl["tokens"]),
        "launches": sum(rtl["launches"].values()), "cycles": rtl["device_cycles"],
        "cycles_model": model["device_cycles"],
        "selections": rtl["pruned"].selections if pruning else 0,
        "different": [name for name in model if model[name] != rtl[name]],
        "seconds_model": round(seconds["model"], 1), "seconds_rtl": round(seconds["rtl"], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--model", default=DEFAULT, choices=MODELS)
    parser.add_argument("--prompt-tokens", type=int, default=96, help="of a prompt at most")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--prune", type=Path, nargs="+", help="schedules of the target's cache, a text for each")
    parser.add_argument("--every", action="store_true", help="every method")
    parser.add_argument("--trained", action="store_true", help="every method for which the model was trained")
    parser.add_argument("--out", type=Path, default=Path("build/decode_rtl.json"))
    args = parser.parse_args()
    pair = open_pair(args.model)
    setting = {name: getattr(args, name) for name in ("config", "model", "prompt_tokens", "new_tokens")}
    schedules = {path.stem: load_pruning(path) for path in args.prune or ()}
    chosen = trained_runs(pair) if args.trained else EVERY if args.every else RUNS
    runs = [(PRUNED_RUN, name) for name in schedules] or [(run, None) for run in chosen]
    record = json.loads(args.out.read_text()) if args.out.is_file() else {}
    if record.get("setting") != setting:
        record = {"command": "python -m benchmarks.decode_rtl", "setting": setting, "machine": machine(), "rows": []}
    kept = {(row.get("schedule"), row["method"], row["launch"]): row for row in record["rows"]}
    for (method, launch, category), name in runs:
        schedule = schedules[name] if name else None
        own = {"prune": name, "schedule": str(schedule)} if schedule else {}
        key = own.get("schedule"), method, launch
        if kept.get(key, {}).get("models") != _models(pair, method):
            kept[key] = own | decode(pair, args, method, launch, category, schedule)
        record["rows"] = list(kept.values())
        write(args.out, record)
    show(f"{args.model} pair on {args.config}: model and RTL", [{
        "method": f"{row['method']}, {row['prune']}" if "prune" in row else row["method"], "launch": row["launch"],
        "tokens": row["tokens"], "launches": row["launches"], "cycles": row["cycles"],
        "different": ", ".join(row["different"]) or "nothing", "model s": row["seconds_model"],
        "RTL s": row["seconds_rtl"]} for row in record["rows"]])
    if any(row["different"] for row in record["rows"]):
        sys.exit("the RTL differs from the model")
    console.print("every token, step, cycle and byte the same")


if __name__ == "__main__":
    main()
