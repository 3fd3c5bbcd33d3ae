"""What methods without training gain on SmolLM2: all requests of `gemmule bench`, twenty of a kind, from a cold start.

    python -m benchmarks.untrained --out docs/results

Temperature 0, 96 new tokens at most, `base`, prompt and host counted; every text begins cold.
The target's greedy text does not depend on what is drafted, so it is written once, many texts at a time, and kept in
`build/untrained.json`. To methods that learn from the text alone it is then told (`benchmarks.smollm2.decoding`); for
those that learn from the answers behind rejected candidates (`chooser`, `recycling`) the interpreter computes every
row of every tree, and the tokens must be those of the text. The loop is that of `gemmule generate`.

Launches of one program with equal registers take as long but for the DRAM pages in which embeddings lie (a thousandth
at most), so each is timed once. Beside each gain behind the prompt stands what acceptance and passes predict: steps as
counted, each pass at the cycles of its rows in the middle of the answer. Requests take turns by category, and a run
that was broken off goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.common import show
from benchmarks.smollm2.decoding import LOOPING, _told
from benchmarks.smollm2.greedy import greedy
from gemmule import __version__
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generation import Generation, distinct
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.models.pair import Pair, open_pair
from gemmule.sw.prompts.requests import load_requests
from gemmule.sw.step import Want
from gemmule.sw.text.chat import Template

__all__ = ["CASES", "summary"]

CONFIG, NAME, TOKENS = "base", "smollm2", 96
TEXTS = Path("build/untrained.json")
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "pld": ("pld", {}, True), "ngram": ("ngram", {}, True), "suffix": ("suffix", {}, True),
    "retrieval": ("retrieval", {}, True), "retrieval, writings": ("retrieval", {"retrieval_corpus": "writings"}, True),
    "chooser": ("chooser", {}, False), "chooser, no corpus": ("chooser", {"chooser_corpus": "none"}, False),
    "recycling, answers": ("recycling", {"recycling_top": 1, "recycling_prompts": "off"}, False)}
"""By name the method, its options, and whether it learns from the text alone."""
Record = dict[str, Any]


class TimedOnce:
    """In the place of a simulator that tells times alone: launches of one program with equal registers run once."""

    def __init__(self, timer: Simulator, moves: bytes) -> None:
        """``moves``: image of the program whose gathers make its time."""
        self.timer, self.moves, self.found = timer, moves, dict[Any, Result]()
        self.launch: Any = None

    def load(self, launch: Any) -> None:
        """Take over a launch."""
        self.launch = launch

    def run(self, **given: Any) -> Result:
        """Its result."""
        rows = tuple((at, found.tobytes()) for at, found in given["indices"].items()) \
            if self.launch.image == self.moves else ()
        key = (self.launch.image, tuple(self.launch.lengths), tuple(self.launch.bases), rows)
        if key not in self.found:
            self.timer.load(self.launch)
            self.found[key] = self.timer.run(**given)
        return self.found[key]


def texts_of(pair: Pair, network: Any) -> dict[str, Record]:
    """By request its tokens and those of the greedy answer; what is missing is computed and kept."""
    assert pair.chat
    template, kept = Template(pair.chat, pair.name), dict[str, Record]()
    if TEXTS.is_file():
        kept = json.loads(TEXTS.read_text())
    for category, prompts in load_requests().items():
        ids = {one.name: pair.plain(template.render([{"role": "user", "content": one.text}])) for one in prompts}
        left = {name: tokens for name, tokens in ids.items() if kept.get(name, {}).get("prompt") != tokens}
        if left:
            print(f"writing {len(left)} answers: {category}", flush=True)
            answers = greedy(network, list(left.values()), TOKENS, pair.ends)
            kept |= {name: {"prompt": left[name], "answer": answer} for name, answer in zip(left, answers, strict=True)}
            write_atomically(TEXTS, json.dumps(kept))
    return {name: kept[name] for names in zip(*load_requests().values()) for name in (one.name for one in names)}


def measured(session: Session, text: Record, cases: Sequence[str], ends: frozenset[int]) -> dict[str, Record]:
    """A row for each case of one request."""
    model, prompt, answer = session.target, text["prompt"], text["answer"]
    assert isinstance(model, InterpretedModel)
    real, found = (model.interpreter, model.cache), dict[str, Record]()

    def run(method: str, options: dict[str, Any], told: bool) -> Generation:
        model.interpreter, model.cache = _told([*prompt, *answer], model) if told else real
        made = session.generate(method, prompt, TOKENS, stop=ends, options=options)
        model.interpreter, model.cache = real
        if made.tokens != answer:
            raise SystemExit(f"{method} must give the greedy text, which it does not")
        return made

    plain = run("ar", {}, True)
    middle = len(prompt) + len(answer) // 2 // 16 * 16
    for name in cases:
        made, host = run(*CASES[name]), session.config.host
        steps = sum(session.curve.of(drafted + 1, middle, Want()) + host.step_cycles for drafted, _ in made.steps)
        found[name] = {
            "speedup": plain.ledger.cycles / made.ledger.cycles,
            "behind_prompt": _behind(plain) / _behind(made),
            "predicted_behind_prompt": len(plain.steps) * (
                session.curve.of(1, middle, Want()) + host.step_cycles) / steps,
            "tokens_per_step": len(made.tokens) / len(made.steps),
            "rows_per_step": statistics.mean(1 + drafted for drafted, _ in made.steps)}
    return found


def _behind(run: Generation) -> int:
    """Cycles behind the prompt."""
    return run.ledger.cycles - run.prefill.cycles


def summary(rows: dict[str, Record]) -> list[Record]:
    """Means over requests, by case and part: all, by category, looping or not."""
    found = []
    for name in CASES:
        have = {request: row for request, row in rows.items() if name in row["cases"]}
        parts = {"all": list(have.values())} | {
            kind: [row for row in have.values() if row["category"] == kind]
            for kind in dict.fromkeys(row["category"] for row in have.values())} | {
            "looping": [row for row in have.values() if row["distinct_4grams"] < LOOPING],
            "not looping": [row for row in have.values() if row["distinct_4grams"] >= LOOPING]}
        for part, some in parts.items():
            if some:
                mine = [row["cases"][name] for row in some]
                gains = [one["speedup"] for one in mine]
                found.append({
                    "case": name, "part": part, "requests": len(mine),
                    **{key: statistics.mean(one[key] for one in mine) for key in mine[0]},
                    "median": statistics.median(gains), "least": min(gains), "most": max(gains),
                    "measured_over_predicted": statistics.mean(
                        one["behind_prompt"] / one["predicted_behind_prompt"] for one in mine)})
    return found


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=";".join(CASES), help="separated by semicolons")
    parser.add_argument("--requests", type=int, default=20, help="of each category")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    config, pair, path = load_config(CONFIG), open_pair(NAME), args.out / "untrained.json"
    cases = args.cases.split(";")
    if unknown := [name for name in cases if name not in CASES]:
        raise SystemExit(f"--cases must be some of {', '.join(CASES)}, not {unknown[0]!r}: mend it")
    with Session(config, pair=pair, interpreted=True, general=True, wide=True) as session:
        target = session.target
        assert isinstance(target, InterpretedModel)
        assert isinstance(target.timer, Simulator)
        assert target.program.commit
        target.timer = TimedOnce(target.timer, target.program.commit.image)  # type: ignore[assignment]
        texts = texts_of(pair, target.network)
        head = {"schema": "gemmule/benchmark-untrained/1", "version": __version__, "config": CONFIG,
                "config_sha256": config.sha256, "model": NAME, "new_tokens": TOKENS, "target_sha256": pair.digests[0],
                "texts_sha256": sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()}

        def kept() -> dict[str, Record]:
            found = json.loads(path.read_text()) if path.is_file() else {}
            rows: dict[str, Record] = found.get("rows", {}) if all(found.get(key) == head[key] for key in head) else {}
            return rows

        for name, text in list(texts.items())[:args.requests * len(load_requests())]:
            have = kept()
            left = [case for case in cases if case not in have.get(name, {}).get("cases", {})]
            if not left:
                continue
            made = measured(session, text, left, pair.ends)
            rows = kept()  # others may have written meanwhile
            row = rows.setdefault(name, {
                "category": name.split("/")[0], "prompt_tokens": len(text["prompt"]), "new_tokens": len(text["answer"]),
                "distinct_4grams": distinct(text["answer"], 4), "cases": {}})
            row["cases"] |= made
            print(f"{name}: " + ", ".join(f"{case} {one['speedup']:.2f}x" for case, one in made.items()), flush=True)
            rows = {request: rows[request] for request in texts if request in rows}
            write_atomically(path, json.dumps(head | {"rows": rows, "summary": summary(rows)}, indent=1) + "\n")
    show(f"{TOKENS} new tokens at most, {CONFIG}", summary(kept()))


if __name__ == "__main__":
    main()
