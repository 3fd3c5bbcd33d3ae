"""What leaving layers out costs and gives: CALM's three measures, both state propagations, and SkipDecode.

    python -m benchmarks.early_exit --model default --out docs/results/early_exit.json
    python -m benchmarks.early_exit --model smollm2 --out docs/results/early_exit.json

Three parts, each kept in the file; a run that was broken off goes on.

- ``costs``: cycles of the launches of which a token's way is made, behind 64 cached tokens, host included.
- ``curves``: a held-out text and what the target goes on with behind it, once through all layers. Behind each depth
  stand the choice there, the chance of the next token of the held-out text, and the three measures. From them follow,
  for every constant threshold, layers a token, agreement with `ar` and perplexity, with exact keys and values.
- ``runs``: decoding itself, in exact cycles, host and prompt included; each text is compared with its policy's.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show, write
from gemmule import __version__
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows, residuals
from gemmule.config import load_config
from gemmule.sw.decoding.exits.confidence import similarity
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.some_layers.layerwise import Layerwise
from gemmule.sw.kv.depths import DepthKV
from gemmule.sw.models.pair import Pair, open_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.step import LayerRange, Want

CONFIG, CACHED, PROMPT = "base", 64, 96
MEASURES = ("softmax", "classifier", "hidden")
FRACTIONS = (0.5, 0.625, 0.75, 0.875)
"""Of the layers, where curves are read."""
Record = dict[str, Any]
PLANS: dict[str, Record] = {
    "default": {"first": 2, "interval": 1, "prompts": {"completion": 3, "copy": 2}, "curves": 16, "new": 32},
    "smollm2": {"first": 9, "interval": 3, "prompts": {"completion": 1, "copy": 1}, "curves": 4, "new": 16}}
"""By model: layers before the first exit and from one to the next, prompts that are decoded, prompts of the curves, and
new tokens."""
THRESHOLDS = {"default": {"softmax": (0.5, 0.8), "classifier": (0.87, 0.92), "hidden": (0.971, 0.977)},
              "smollm2": {"softmax": (0.5, 0.8), "hidden": (0.93, 0.945)}}
"""By model and measure; constant ones."""
FURTHER: dict[str, list[Record]] = {
    "default": [{"exit_threshold": 0.9, "exit_decay": 4.0},
                {"exit_threshold": 0.5, "first_exit": 3, "exit_interval": 3},
                {"exit_threshold": 0.8, "first_exit": 3, "exit_interval": 3}],
    "smollm2": [{"exit_threshold": 0.8, "first_exit": 20, "exit_interval": 30}]}
"""Of more ways by the softmax measure: thresholds that fall, and fewer exits, each of which costs a head."""


def ways(model: str) -> list[tuple[str, Record]]:
    """Methods and their options, `ar` first."""
    plan = PLANS[model]
    exits = {"first_exit": plan["first"], "exit_interval": plan["interval"]}
    found: list[tuple[str, Record]] = [("ar", {})]
    for propagation in ("hidden", "kv"):
        found += [("calm", {**exits, "exit_measure": measure, "exit_threshold": threshold, "exit_decay": 0.0,
                            "state_propagation": propagation})
                  for measure, thresholds in THRESHOLDS[model].items() for threshold in thresholds]
    found += [("calm", {**exits, "exit_measure": "softmax", "exit_decay": 0.0, "exit_span": plan["new"],
                        "state_propagation": "kv", **more}) for more in FURTHER[model]]
    layers = {"default": 8, "smollm2": 30}[model]
    found += [("skipdecode", {"least_layers": layers * part // 4, "exit_span": plan["new"]}) for part in (3, 2)]
    return found


def costs(session: Session, ids: Sequence[int]) -> list[Record]:
    """Cycles of single launches."""
    layers, first, found = session.target.program.graph.layers, session.target.program.max_rows, []
    whole = session.target.kv()
    session.target.forward(Rows.chain(list(ids[:CACHED])), Want(last=0), whole)

    def launch(what: str, count: int, rows: int, want: Want) -> None:
        ledger, turn = Ledger(session.config), object()
        model = session.target.charging(ledger)
        chain = Rows.chain(list(ids[CACHED:CACHED + rows]), CACHED)
        model.forward(chain, Want(last=0, hidden=(1,), place=0), DepthKV(whole, CACHED, turn),
                      layers=[LayerRange(first=0, count=1)])
        before = ledger.cycles
        model.forward(chain.entering(np.arange(rows)), want, DepthKV(whole, CACHED, turn),
                      layers=[LayerRange(first=1, count=count)])
        found.append({"what": what, "rows": rows, "cycles": ledger.cycles - before})

    stays = Want(last=0, hidden=(2,), place=first)
    asked = Want(last=1, top=2, temperature=1.0, hidden=(2,), place=first)
    launch("a layer", 1, 1, stays)
    launch("a layer", 1, 8, stays)
    launch("a layer and the softmax measure", 1, 1, asked)
    launch("last norm, head and greedy token", 0, 1, Want(last=1))
    launch("a row put where it waits", 0, 1, Want(last=0, hidden=(1,), place=first))
    launch(f"{layers - 1} layers, head and greedy token", layers - 1, 1, Want(last=1))
    return found


def points(pair: Pair, session: Session, ids: Sequence[int], new: int, exits: Sequence[int]) -> list[Record]:
    """Of each place of a text behind its first 16 tokens, by exit and behind all layers: choice, measures, loss."""
    network, given = session.network, len(ids)
    text, prefix, cache = list(ids), network.graph.prefix, Cache(network.graph)
    interpreter, rows = IntegerInterpreter(network), Rows.chain(list(ids))
    for _ in range(new):
        text.append(int(interpreter.forward(rows.behind(prefix), cache)[-1].argmax()))
        rows = Rows.chain(text[-1:], len(text) - 1)
    every, names, streams = Rows.chain(text[:-1]).behind(prefix), residuals(network.graph)[1:], {}

    def observe(name: str, value: np.ndarray) -> None:
        if name in names:
            streams[names.index(name) + 1] = value

    IntegerInterpreter(network).forward(every, Cache(network.graph), observe)
    layers, scale, first = Layerwise(network), session.target.logit_scale, 16
    index = np.arange(first, len(every))
    found: list[Record] = [{"held_out": int(at) < given - 1, "depths": {}} for at in index]
    for number, depth in enumerate(exits):
        logits = layers.logits(every.take(index), streams[depth][index])
        for one, at, row in zip(found, index, logits, strict=True):
            weights = np.sort(Sampling(1.0).weights(row, scale))
            real = row * scale
            stream = streams[depth][at]
            one["depths"][depth] = {
                "right": int(row.argmax()) == text[at + 1],
                "loss": float(np.log(np.exp(real - real.max()).sum()) + real.max() - real[text[at + 1]]),
                "softmax": float(weights[-1] - weights[-2]) / float(weights.sum()),
                "hidden": similarity(streams[exits[number - 1]][at], stream) if number else 0.0,
                "classifier": pair.exit_heads.confidence(depth, stream)
                if pair.exit_heads and depth < exits[-1] else 0.0}
    return found


def curve(found: Sequence[Record], measure: str, exits: Sequence[int]) -> list[Record]:
    """By threshold: layers a token, agreement with all layers on the target's text, perplexity of held-out text."""
    levels = sorted({one["depths"][depth][measure] for one in found for depth in exits[:-1]})
    chosen = [levels[int(share * (len(levels) - 1))] for share in np.linspace(0, 1, 41)] + [2.0]
    made = []
    for threshold in chosen:
        left = [next((depth for depth in exits[:-1] if one["depths"][depth][measure] >= threshold), exits[-1])
                for one in found]
        own = [(one["depths"][depth]["right"], depth) for one, depth in zip(found, left) if not one["held_out"]]
        held = [(one["depths"][depth]["loss"], depth) for one, depth in zip(found, left) if one["held_out"]]
        made.append({"threshold": threshold, "layers": statistics.mean(depth for _, depth in own),
                     "agreement": statistics.mean(right for right, _ in own),
                     "layers_held_out": statistics.mean(depth for _, depth in held),
                     "perplexity": float(np.exp(statistics.mean(loss for loss, _ in held)))})
    return made


def read_off(rows: Sequence[Record], over: str, value: str, at: float) -> float | None:
    """A curve at so many layers, in a line between its points; None: it does not reach there."""
    known = sorted((row[over], row[value]) for row in rows)
    if not known[0][0] <= at <= known[-1][0]:
        return None
    return float(np.interp(at, *zip(*known)))


def run(session: Session, pair: Pair, method: str, options: Record, prompt: tuple[str, str, list[int]],
        plain: Record | None, new: int) -> Record:
    """A text by a method; ``plain``: the row of `ar`."""
    category, name, ids = prompt
    made = session.generate(method, ids, new, options=options)
    layers = made.layers_run or [session.target.program.graph.layers] * len(made.tokens)
    tokens = plain["tokens"] if plain else made.tokens
    return {"method": method, "options": options, "category": category, "prompt": name, "tokens": made.tokens,
            "agree": sum(one == other for one, other in zip(made.tokens, tokens)),
            "layers": {str(depth): count for depth, count in sorted(Counter(layers).items())},
            "cycles": made.ledger.cycles - made.prefill.cycles,
            "launches": sum(made.ledger.launches.values()) - sum(made.prefill.launches.values()),
            "policy_equal": session.follows(method, options, ids, made.tokens) if method != "ar" else None}


def measured(model: str, record: Record, save: Callable[[], None]) -> None:
    """Fill the record of a model."""
    plan, pair = PLANS[model], open_pair(model, None, None)
    known, config = load_categories(), load_config(CONFIG)
    prompts = [(category, one.name, pair.encode(one.text)[:PROMPT]) for category, count in plan["prompts"].items()
               for one in known[category][:count]]
    with Session(config, pair=pair, general=True, interpreted=True) as session:
        layers = session.target.program.graph.layers
        exits = [*range(plan["first"], layers, plan["interval"]), layers]
        record |= {"layers": layers, "exits": exits, "new_tokens": plan["new"], "prompt_tokens": PROMPT}
        record.setdefault("costs", costs(session, pair.encode(known["completion"][0].text * 3)))
        save()
        if "curves" not in record:
            found = [point for one in known["completion"][:plan["curves"]]
                     for point in points(pair, session, pair.encode(one.text)[:PROMPT], plan["new"], exits)]
            record["curves"] = {measure: curve(found, measure, exits) for measure in MEASURES
                                if measure != "classifier" or pair.exit_heads}
            record["curve_tokens"] = {"own": sum(not one["held_out"] for one in found),
                                      "held_out": sum(one["held_out"] for one in found)}
            save()
        rows: list[Record] = record.setdefault("runs", [])
        for prompt in prompts:
            plain = None
            for method, options in ways(model):
                done = next((row for row in rows if (row["method"], row["options"], row["prompt"]) == (
                    method, options, prompt[1])), None)
                if done is None:
                    done = run(session, pair, method, options, prompt, plain, plan["new"])
                    rows.append(done)
                    save()
                plain = plain or done


def summed(record: Record) -> list[Record]:
    """A row for each way to decode, over its prompts."""
    groups: dict[str, list[Record]] = {}
    for row in record["runs"]:
        groups.setdefault(json.dumps([row["method"], row["options"]]), []).append(row)
    plain = sum(row["cycles"] for row in record["runs"] if row["method"] == "ar")
    found = []
    for rows in groups.values():
        tokens, options = sum(len(row["tokens"]) for row in rows), rows[0]["options"]
        layers: Counter[str] = Counter()
        for row in rows:
            layers.update(row["layers"])
        cycles = sum(row["cycles"] for row in rows)
        found.append({
            "method": rows[0]["method"], "measure": options.get("exit_measure", "-"),
            "at": f"{options.get('exit_threshold', options.get('least_layers', '-'))}"
                  + ", falling" * (options.get("exit_decay", 0.0) > 0), "exits": _exits(options, record["layers"]),
            "propagation": options.get("state_propagation", "-"), "prompts": len(rows),
            "policy_equal": "-" if rows[0]["policy_equal"] is None else sum(row["policy_equal"] for row in rows),
            "agree": sum(row["agree"] for row in rows) / tokens,
            "layers": sum(int(depth) * count for depth, count in layers.items()) / tokens,
            "cycles_a_token": cycles // tokens, "speed-up": plain / cycles,
            "launches_a_token": sum(row["launches"] for row in rows) / tokens})
    return found


def _exits(options: Record, layers: int) -> str:
    """Depths of a method's exits."""
    if "first_exit" not in options:
        return "-"
    first, *more = range(options["first_exit"], layers, options["exit_interval"])
    return f"{first} to {more[-1]} by {options['exit_interval']}" if more else f"{first}"


def at_layers(record: Record) -> list[Record]:
    """The measures side by side at equal layers."""
    found = []
    for fraction in FRACTIONS:
        at = fraction * record["layers"]
        row: Record = {"layers": at}
        for measure, rows in record["curves"].items():
            row[f"{measure}: agree"] = read_off(rows, "layers", "agreement", at)
            row[f"{measure}: perplexity"] = read_off(rows, "layers_held_out", "perplexity", at)
        found.append(row)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(PLANS), default="default")
    parser.add_argument("--out", type=Path, default=Path("build/early_exit.json"))
    given = parser.parse_args()
    data: Record = json.loads(given.out.read_text()) if given.out.is_file() else {}
    data |= {"schema": "gemmule/benchmark-early-exit/1", "version": __version__, "config": CONFIG}
    record = data.setdefault("models", {}).setdefault(given.model, {})
    measured(given.model, record, lambda: write(given.out, data))
    show(f"{given.model}: cycles of launches, behind {CACHED} tokens", record["costs"])
    show("decoding", summed(record))
    show("by layers a token, exact keys and values", at_layers(record))


if __name__ == "__main__":
    main()
