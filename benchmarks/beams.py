"""Beam search and best-of-n on `base`: cycles of a step and bytes of KV by width, beside autoregressive decoding.

    python -m benchmarks.beams default --out docs/results/beams_default.json
    python -m benchmarks.beams smollm2 --out docs/results/beams_smollm2.json

``passes``: one launch with logits for each width behind so many cached rows, timing alone, of a program of that width.
``searches``: held-out prompts, values by the integer interpreter, cycles exact. Every sampled text and the only text of
width 1 must be those of `ar`, else the command fails. Widths that are in the file already are not measured again.
"""

from __future__ import annotations

import argparse
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import write
from gemmule import __version__
from gemmule.compiler.ir import Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.search.run import BeamSearch, BestOf, Found, Search
from gemmule.sw.decoding.search.session import SearchSession
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.kv.selected import row_bytes
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.branching import Branching
from gemmule.sw.models.pair import Pair, open_pair
from gemmule.sw.prompts.choose import load
from gemmule.sw.prompts.requests import load_requests
from gemmule.sw.text.chat import Template

WIDTHS = (1, 2, 4, 8, 16)
CONTEXTS = (64, 256, 512, 900)
ROOM = 1000
"""Rows of the cache at least, so that all widths have as many."""
TEMPERATURE, SEED = 0.8, 1


def _pass_cycles(config: Config, program: ModelProgram, rows: int, context: int, *, branches: bool) -> int:
    """Of a launch with logits of all rows, each of which sees all cached rows and itself."""
    simulator, general = Simulator(config, dram_bytes=1), program.general
    assert general is not None
    cached = context - program.graph.prefix
    made = Rows(tokens=np.zeros(rows, dtype=np.int64), positions=np.full(rows, context), mask=np.eye(rows, dtype=bool),
                sequences=np.zeros(rows, dtype=np.int64))
    if branches:
        made = made.branching(np.ones((rows, cached), dtype=bool), cached + np.arange(rows))
    step = program.general_step(made, [context], (0, program.graph.layers), Answers(rows=rows, logits=True))
    simulator.load(general.launch("pass", NO_DRAM, step.registers))
    return int(simulator.run(timing_only=True, indices=program.gathered(made, general.commands),
                             scattered=program.scattered(made, [context])).cycles)


def passes(config: Config, pair: Pair, width: int) -> list[dict[str, Any]]:
    """A launch of the search beside one of a single text."""
    program = pair.target(config, 0, True, branches=Branching(width=width, room=ROOM)).program
    plain = pair.target(config, 0, True).program
    found = []
    for context in CONTEXTS:
        ours, one, alone = (_pass_cycles(config, made, rows, context, branches=made is program) for made, rows in (
            (program, width), (program, 1), (plain, 1)))
        found.append({"width": width, "cached": context, "cycles": ours, "of one row": ours / one,
                      "one text": alone, "of one text": ours / alone, "per text": ours / alone / width})
    return found


def prompts(pair: Pair, count: int) -> list[list[int]]:
    """Tokens of the first held-out completions, or of the first requests of each kind."""
    if pair.chat is None:
        return [pair.encode(prompt.text) for prompt in load()[1][:count]]
    template = Template(pair.chat, pair.name)
    asked = [prompt.text for kind in ("code", "chat") for prompt in load_requests()[kind][:(count + 1) // 2]]
    return [pair.plain(template.render([{"role": "user", "content": text}])) for text in asked[:count]]


def _told(found: Found, name: str, width: int, number: int, alone: float, row: int, positions: int) -> dict[str, Any]:
    steps = found.ledger.cycles - found.prefill.cycles
    best, mean = found.candidates[0], steps / len(found.rows)
    return {"search": name, "width": width, "prompt": number, "prompt_tokens": found.prompt_tokens,
            "steps": len(found.rows), "cycles a step": mean, "over ar": mean / alone,
            "rows": found.shared.rows, "rows apart": found.shared.apart, "read": found.shared.used,
            "kv bytes": found.shared.rows * row, "apart": found.shared.apart * row,
            "reserved": width * positions * row, "forks": found.shared.forks, "copied": found.shared.copied,
            "ties": found.ties, "moved": found.moved, "tokens": len(best.tokens),
            "log2 probability": best.total / (1 << 24)}


def searches(config: Config, pair: Pair, width: int, texts: list[list[int]], new: int) -> list[dict[str, Any]]:
    """Both kinds of search on every prompt."""
    room = max(ROOM, max(map(len, texts)) + width * new)
    rule, stops, found = Match(Sampling(TEMPERATURE), Noise(SEED)), Stops(pair.ends), list[dict[str, Any]]()
    with SearchSession(config, pair, Branching(width=width, room=room), interpreted=True) as session, \
            Session(config, pair=pair, general=True, interpreted=True) as other:
        row = row_bytes(session.target.program.graph)
        positions = session.target.program.text_positions
        for number, ids in enumerate(texts):
            def alone(how: Rule, ids: list[int] = ids) -> Any:
                return other.generate("ar", ids, new, stop=stops, rule=how)

            plain = alone(GREEDY)
            a_step = (plain.ledger.cycles - plain.prefill.cycles) / len(plain.steps)
            ways: list[tuple[str, Search]] = [("beams", BeamSearch(width, Decimal(1)))]
            ways += [("best-of", BestOf(width, rule))] if width > 1 else []
            for name, way in ways:
                made = session.search(way, ids, new, stops)
                if name == "beams" and width == 1 and made.candidates[0].tokens != plain.tokens:
                    raise SystemExit(f"{pair.name}, prompt {number}: beams of width 1 differ from ar")
                if name == "best-of" and any(one.tokens != alone(rule.of_text(one.number)).tokens
                                             for one in made.candidates[:2]):
                    raise SystemExit(f"{pair.name}, prompt {number}: sampled texts differ from ar")
                found.append(_told(made, name, width, number, a_step, row, positions))
    return found


def table(record: dict[str, Any]) -> str:
    """The rows of docs/search.md."""
    cached = sorted({row["cached"] for row in record["passes"]})
    lines = ["| texts | " + " | ".join(f"launch behind {n} rows" for n in cached)
             + " | a step of beams over one of `ar` | of sampled texts | KV bytes of beams | of sampled texts | apart "
             "| reserved |"]
    lines.append("|" + "---|" * (len(cached) + 7))
    for width in sorted({row["width"] for row in record["passes"]}):
        launches = {row["cached"]: row for row in record["passes"] if row["width"] == width}
        cells = [f"{launches[n]['cycles']:,} ({launches[n]['of one row']:.2f})" for n in cached]
        beams, sampled = ([row for row in record["searches"] if (row["width"], row["search"]) == (width, name)]
                          for name in ("beams", "best-of"))

        def mean(rows: list[dict[str, Any]], key: str) -> float | None:
            return sum(row[key] for row in rows) / len(rows) if rows else None

        over, sizes = [mean(rows, "over ar") for rows in (beams, sampled)], [
            mean(beams, "kv bytes"), mean(sampled, "kv bytes"), mean(beams, "apart"), mean(beams, "reserved")]
        cells += ["-" if value is None else f"{value:.2f}x" for value in over]
        cells += ["-" if value is None else f"{round(value):,}" for value in sizes]
        lines.append(f"| {width} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=(DEFAULT, "smollm2"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--new", type=int, default=32, help="new tokens of a text")
    parser.add_argument("--passes", action="store_true", help="launches alone, no searches")
    options = parser.parse_args()
    out = options.out or Path(f"build/beams_{options.model}.json")
    config, pair = load_config("base"), open_pair(options.model)
    record: dict[str, Any] = {"schema": "gemmule/benchmark-beams/1", "version": __version__, "config": "base",
                              "config_sha256": config.sha256, "model": options.model, "prompts": options.prompts,
                              "new_tokens": options.new, "temperature": TEMPERATURE, "seed": SEED, "passes": [],
                              "searches": []}
    record |= json.loads(out.read_text()) if out.is_file() else {}
    texts = prompts(pair, options.prompts)
    for width in WIDTHS:
        if all(row["width"] != width for row in record["passes"]):
            record["passes"] += passes(config, pair, width)
            write(out, record)
        if not options.passes and all(row["width"] != width for row in record["searches"]):
            record["searches"] += searches(config, pair, width, texts, options.new)
            write(out, record)
        print(f"width {width} done", flush=True)
    print(table(record))


if __name__ == "__main__":
    main()
