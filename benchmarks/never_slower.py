"""Whether `--adaptive` loses anything: every method on held-out prompts of every category, alone and in batches.

    python -m benchmarks.never_slower alone --out docs/results/never_slower.json
    python -m benchmarks.never_slower together --out docs/results/never_slower.json

Default pair on `base`, the first prompts of each category, 64 new tokens each, values by the interpreter. ``alone``:
cycles of each text over those of `ar`, prompt and host included. ``together``: four texts of other categories at a
time; cycles of the batch over those of `ar` in a batch of as many. The largest of each method is its worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.common import run_part, show
from gemmule.config import load_config
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session, rows_of
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.limits import CATEGORIES, DEFAULT
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories

PROMPTS, NEW_TOKENS, MOST_PROMPT, BATCH, DRAFTS = 1, 64, 96, 4, 3
LEFT_OUT = {"triforce": "a second cache, which takes a session of its own",
            "parallel": "no drafter of the bundled pair", "joined": "no drafter of the bundled pair",
            "eagle": "no drafter of the bundled pair",
            **dict.fromkeys(("blockwise", "medusa", "hydra"), "heads take one text at a time, not a batch"),
            "streaming": "passes in two launches, of one greedy text, and a target that was tuned for it",
            **dict.fromkeys(("calm", "skipdecode", "medusa-typical"),
                            "lossy: nothing is verified, so --adaptive has nothing to decide")}
"""Methods that are not measured here, and why."""


def prompts_of(pair: Pair) -> list[tuple[str, list[int]]]:
    """Name and tokens, categories in turn."""
    known = load_categories()
    return [(f"{name}/{at}", pair.encode(known[name][at].text)[:MOST_PROMPT if name == "completion" else None])
            for at in range(PROMPTS) for name in CATEGORIES]


def methods() -> Iterator[str]:
    """All that can draft for the pair."""
    return (name for name in METHODS if name != "ar" and name not in LEFT_OUT)


def told(method: str, found: Sequence[tuple[str, float, bool]]) -> dict[str, Any]:
    """A row of the record: ``found`` has prompts, cycles over those of `ar`, and whether the texts are equal."""
    worst = max(found, key=lambda one: one[1])
    row = {"method": method, "worst": worst[1], "prompt": worst[0], "mean": sum(one[1] for one in found) / len(found),
           "equal": all(one[2] for one in found), "all": {name: share for name, share, _ in found}}
    print({name: value for name, value in row.items() if name != "all"}, flush=True)
    return row


def alone(record: dict[str, Any], save: Callable[[], None]) -> None:
    """A text at a time."""
    pair = bundled_pair(DEFAULT)
    with Session(load_config("base"), pair=pair, general=True, interpreted=True, int4=True) as session:
        prompts = prompts_of(pair)
        plain = [session.generate("ar", ids, NEW_TOKENS, stop=pair.ends) for _, ids in prompts]
        rows: list[dict[str, Any]] = []
        for method in methods():
            most = session.target.program.max_rows - 1 if METHODS[method].drafts else None
            runs = [session.generate(method, ids, NEW_TOKENS, most, pair.ends, adaptive=True) for _, ids in prompts]
            rows.append(told(method, [
                (name, run.ledger.cycles / one.ledger.cycles, run.tokens == one.tokens)
                for (name, _), run, one in zip(prompts, runs, plain, strict=True)]))
            record["alone"] = rows
            save()
    show("alone", [{name: row[name] for name in ("method", "worst", "prompt", "mean", "equal")} for row in rows])


def together(record: dict[str, Any], save: Callable[[], None]) -> None:
    """Several at a time; methods that ask for more than tokens have the general program."""
    pair, config = bundled_pair(DEFAULT), load_config("base")
    prompts = prompts_of(pair)[:BATCH * (PROMPTS * len(CATEGORIES) // BATCH)]
    groups = [prompts[at:at + BATCH] for at in range(0, len(prompts), BATCH)]
    rows: list[dict[str, Any]] = []
    plain: list[tuple[int, list[list[int]]]] = []
    for general in (False, True):
        mine = ["ar"] * (not general) + [
            name for name in methods() if METHODS[name].needs_general == general and not METHODS[name].needs_int4]
        with Session(config, pair=pair, general=general, interpreted=True, batch=BATCH,
                     rows=rows_of(BATCH, DRAFTS)) as session:
            for method in mine:
                found = []
                for number, group in enumerate(groups):
                    ledger = Ledger(config)
                    runs = session.generate_batch(method, [ids for _, ids in group], NEW_TOKENS,
                                                  DRAFTS if METHODS[method].drafts else None, pair.ends, ledger=ledger,
                                                  adaptive=method != "ar")
                    texts = [run.tokens for run in runs]
                    if method == "ar":
                        plain.append((ledger.cycles, texts))
                    found.append((", ".join(name for name, _ in group), ledger.cycles / plain[number][0],
                                  texts == plain[number][1]))
                if method != "ar":
                    rows.append(told(method, found))
                record["together"] = rows
                save()
    show(f"{BATCH} at a time", [{name: row[name] for name in ("method", "worst", "prompt", "mean", "equal")}
                                for row in rows])


if __name__ == "__main__":
    run_part(__doc__, {"alone": alone, "together": together}, "never-slower", {
        "config": "base", "config_sha256": load_config("base").sha256, "prompts_a_category": PROMPTS,
        "new_tokens": NEW_TOKENS, "batch": BATCH, "drafts": DRAFTS, "left_out": LEFT_OUT})
