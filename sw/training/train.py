"""Make the default pair and the encoder from nothing: every stage of the recipe, in order.

    python -m gemmule.sw.training.train --out build/train --models sw/models

Corpus and tokenizer, target, its lessons in copying, drafts, encoder, quantised files, numbers, page. A killed run goes
on where it was; stages that are done are passed over. The same recipe, seed, torch, processor and number of threads
give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmule.sw.limits import DEFAULT
from gemmule.sw.prompts import copies
from gemmule.sw.training import measure, report
from gemmule.sw.training.data.prepare import prepare
from gemmule.sw.training.networks.export import write_json
from gemmule.sw.training.networks.trained import calibration_windows, load_networks, write_networks
from gemmule.sw.training.recipe import Recipe, fingerprint
from gemmule.sw.training.records import stage_log
from gemmule.sw.training.running import Place, open_place
from gemmule.sw.training.stages.copying import teach_copying
from gemmule.sw.training.stages.draft import train_drafts
from gemmule.sw.training.stages.encoder import ship, train_encoder
from gemmule.sw.training.stages.target import train_target

__all__ = ["run"]


def _done(out: Path, name: str, recipe: Recipe) -> dict[str, Any] | None:
    """The record of a stage that is finished.

    Raises:
        ValueError: it is of another recipe.
    """
    path = out / f"{name}.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record["recipe"] != fingerprint(recipe, recipe.seed):
        raise ValueError(f"{path}: is of another recipe or seed: remove it, or give another --out")
    return record


def run(recipe: Recipe, out: Path, models: Path, docs: Path, place: Place) -> None:
    """All stages. ``docs`` gets ``results/training.json``, ``results/models.json``, the figure and the page.

    Raises:
        ValueError: a package is missing, or a stage is of another recipe.
    """
    out.mkdir(parents=True, exist_ok=True)
    mark = {"recipe": fingerprint(recipe, recipe.seed)}
    corpus = prepare(out, recipe.seed)
    write_json(docs / "results" / "corpus.json", corpus)
    stages: dict[str, Any] = {}
    for name, train in (("target", train_target), ("copying", teach_copying), ("draft", train_drafts),
                        ("encoder", train_encoder)):
        record = _done(out, f"done_{name}", recipe)
        if record is None:
            record = mark | {"result": train(recipe, out, place)}
            write_json(out / f"done_{name}.json", record)
        stages[name] = record["result"]
        write_json(docs / "results" / "training.json", {
            "recipe": asdict(recipe), "place": place.describe(), "stages": stages, "log": stage_log(out)})
        if name == "draft":
            tokenizer, networks = load_networks(out)
            calibration = calibration_windows(out, networks["target"].graph.positions, recipe.seed)
            write_networks(tokenizer, networks, models / DEFAULT, calibration, recipe.seed)
    ship(stages["encoder"], recipe, out, models, docs, place)
    measure.measure(out, models / DEFAULT, docs / "results" / "models.json", prompts=measure.PROMPTS,
                    tests=copies.FILE)
    report.write(docs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"), help="checkpoints, arrays and log")
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the bundled files go")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where numbers, figure and page go")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch, on a CPU")
    parser.add_argument("--seed", type=int, default=Recipe().seed)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe = Recipe(seed=args.seed).scaled(args.share)
    try:
        run(recipe, args.out, args.models, args.docs, open_place(args.threads))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
