"""The numbers of docs/models.md, from the files of docs/results.

    python -m gemmule.sw.training.report --docs docs

Each part goes between two marks of the page. A part whose numbers are not there yet says so. The learning curve is
drawn where matplotlib is installed (extra ``figures``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically
from gemmule.sw.reports.markdown import fill, table, wrapped
from gemmule.sw.training.data.packages import MOST_SHARED
from gemmule.sw.training.networks.export import SMALL_DRAFT, SMALL_TARGET, TARGET, parameters
from gemmule.sw.training.quality import quality_of
from gemmule.sw.training.recipe import CANDIDATES, Recipe
from gemmule.sw.training.yardstick import CONTEXT

__all__ = ["PARTS", "draw", "write"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODELS = Path(__file__).resolve().parents[1] / "models"
NOT_YET = "Not yet trained: `make train` fills this in."
FIGURE = "training.svg"
ACTIVATIONS = {"gelu_pytorch_tanh": "tanh-GELU", "relu2": "squared ReLU"}


def _load(name: str) -> dict[str, Any] | None:
    path = DOCS / "results" / f"{name}.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def models() -> str:
    """Every bundled network: sizes and files."""
    done = _load("training")
    chosen = done["stages"]["draft"]["chosen"] if done else None
    pairs = (("default: target", TARGET, "default/target"),
             ("default: draft", CANDIDATES.get(chosen or ""), "default/draft"),
             ("small: target", SMALL_TARGET, "small/target"), ("small: draft", SMALL_DRAFT, "small/draft"))
    rows: list[tuple[Any, ...]] = []
    for name, shape, path in pairs:
        sizes = ("chosen by training", "", "", "", "", "at most 150,000") if shape is None else (
            shape.num_layers, shape.hidden_size, f"{shape.num_heads} of {shape.head_dim}",
            f"{shape.intermediate_size:,}, {ACTIVATIONS[shape.activation]}", f"{shape.max_positions:,}",
            f"{parameters(shape):,}")
        rows.append((name, *sizes, _file(f"{path}.safetensors")))
    plan = Recipe().encoder
    weights = "about 670,000" if (found := _load("encoder")) is None else f"{found['parameters']:,}"
    rows.append(("encoder", plan.layers, plan.hidden, f"{plan.heads} of {plan.hidden // plan.heads}",
                 f"{plan.inner}, GELU", plan.window, weights, _file("default/encoder.safetensors")))
    return table(("", "layers", "width", "heads", "MLP", "context", "weights", "file"), rows)


def _file(name: str) -> str:
    path = MODELS / name
    return f"`sw/models/{name}`, {path.stat().st_size:,} bytes" if path.exists() else "not yet trained"


def corpus() -> str:
    """The documents, their origins, licences and hashes, and what was dropped."""
    found = _load("corpus")
    if found is None:
        return NOT_YET
    names = {"library": f"standard library of Python {found['python']}, train split",
             "packages": "packages, train split", "calibration": "standard library, calibration split",
             "held_out": "standard library, held-out split", "second": "second held-out set"}
    splits = table(("text", "files", "bytes", "tokens", "SHA-256"), [
        (names[name], f"{one['files']:,}", f"{one['bytes']:,}", f"{one['tokens']:,}", f"`{one['sha256'][:16]}`")
        for name, one in found["splits"].items()])
    packages = table(("package", "version", "licence", "files", "bytes", "SHA-256", "used for"), [
        (one["name"], one["version"], one["licence"], f"{one['files']:,}", f"{one['bytes']:,}",
         f"`{one['sha256'][:16]}`", "training" if one["trained"] else "the second held-out set") for one in
        found["packages"]])
    dropped, most = found["dropped"], max(found["dropped"], key=lambda one: float(one["shared"]))
    return wrapped(
        f"{splits}\n\n{packages}\n\n{len(dropped)} files are excluded from training because more than "
        f"{MOST_SHARED:.0%} of their lines of 30 or more characters also occur in held-out files ({most['path']}: "
        f"{most['shared']:.0%}). The list, with full hashes, is in [corpus.json](results/corpus.json). "
        f"{found['copies']['pairs']:,} functions with their copies add {found['copies']['tokens']:,} tokens.")


def copying() -> str:
    """The target's last lessons: which heads were guided, and what was learnt."""
    plan, done = Recipe().copying, _load("training")
    lessons = table(("lesson", "steps", "rates", "windows of text", "windows of requests",
                     "weight of the requested text", "weight of head guidance"), [
        (number, one.steps, f"{one.first:.2f} to {one.last:.2f}", one.text_rows, one.rows, one.wanted_weight,
         one.guidance) for number, one in enumerate(plan.lessons, 1)])
    text = (f"{lessons}\n\nWindows of text have {plan.text_context:,} tokens, windows of requests {plan.context}. "
            f"Rates are relative to their peaks. {plan.steps:,} steps, {plan.tokens / 1e6:.1f} million tokens.")
    shares = [(number, one.share) for number, one in enumerate(plan.lessons, 1) if one.share]
    text += (" The finished target averages the weights at the ends of lessons "
             + ", ".join(f"{number} ({share:.0%})" for number, share in shares) + ".")
    if done is None or "copying" not in done["stages"]:
        return wrapped(f"{text}\n\n{NOT_YET}")
    record = done["stages"]["copying"]
    near = ", ".join(f"{layer}.{head} at {distance}" for layer, head, distance in record["before"])
    behind = ", ".join(f"{layer}.{head}" for layer, head in record["behind"])
    judged = [line for line in done["log"] if line["stage"] == "copying" and "copied" in line]
    rows = [(f"{line['step']:,}", f"{line['copied']:.2f}", f"{line['wanted']:.2f}",
             f"{line['looks']:.2f}" if "looks" in line else "no guidance", f"{line['calibration']:.3f}")
            for line in judged]
    head = ("steps", "similarity of answers", "loss on the requested text", "loss of head guidance", "loss on text")
    return wrapped(
        f"{text} Heads (layer.head) that attend to earlier tokens: {near}; to tokens after matches: {behind}.\n\n"
        f"{table(head, rows)}\n\nSimilarity is the mean over greedy answers to requests made from the calibration "
        "split's functions. The loss on text is measured on that split's windows of 256 tokens. All losses are in "
        f"nats. The finished target has a similarity of {record['copied']:.2f} and a loss on text of "
        f"{record['calibration']:.3f}. "
        f"{record['seconds'] / 60:.0f} min, resumed {record['resumed']} times.")


def recipe() -> str:
    """The stages of the target's training, and how fast they are."""
    plan = Recipe().target
    stages = table(("stage", "context", "windows per step", "tokens per step", "steps", "tokens",
                    "last layer skipped"), [
        (number, f"{one.context:,}", one.rows, f"{one.rows * one.context:,}", f"{one.steps:,}", f"{one.tokens:,}",
         f"{one.most_left_out:.0%}") for number, one in enumerate(plan.stages, 1)])
    text = f"{stages}\n\n{plan.steps:,} steps, {plan.tokens / 1e6:.1f} million tokens."
    if speed := _load("training_speed"):
        rows = table(("threads", "context", "tokens per second, wall", "tokens per second of CPU time", "load"), [
            (row["threads"], f"{row['context']:,}", f"{row['tokens_per_second']:,.0f}",
             f"{row['tokens_per_processor_second']:,.0f}", row["load_average"]) for row in speed["rows"]])
        least = ", ".join(f"{seconds / 60:.0f} min ({name})" for name, seconds in speed["predicted_seconds"].items())
        text += (f"\n\nMeasured with `python -m gemmule.sw.training.speed` on {speed['cores']} cores "
                 f"({speed['place']['processor']}, torch {speed['place']['torch']}):\n\n{rows}\n\nAt these rates the "
                 f"target takes {least}. *Wall* includes the load of the table's last column. *Alone* is CPU time "
                 "times threads: the best case on an otherwise idle computer.")
    done = _load("training")
    if done is None:
        return wrapped(f"{text}\n\n{NOT_YET}")
    stages_done = done["stages"]
    hours = {name: stages_done[name].get("seconds", 0) / 60 for name in stages_done if name != "draft"}
    told = ", ".join(f"{name} {minutes:.0f} min" for name, minutes in hours.items() if minutes)
    return wrapped(f"{text}\n\nThe shipped run: seed {done['recipe']['seed']}, torch {done['place']['torch']}, "
                   f"{done['place']['threads']} threads of {done['place']['processor']}; {told}; resumed "
                   f"{stages_done['target']['resumed']} times from its own checkpoints. Its log is in "
                   f"[training.json](results/training.json).\n\n![learning curve](img/{FIGURE})")


def quality() -> str:
    """What is measured of the default pair (:mod:`quality`)."""
    found = _load("models")
    return NOT_YET if found is None else wrapped(quality_of(found))


def drafts() -> str:
    """Candidates for the draft, and which was chosen."""
    done = _load("training")
    if done is None:
        sizes = ", ".join(f"{name} ({parameters(shape):,})" for name, shape in CANDIDATES.items())
        return wrapped(f"{NOT_YET} Candidates by width x layers, and weights: {sizes}.")
    found = done["stages"]["draft"]
    rows = table(
        ("width x layers", "weights", "cycles of a pass", "of the target's", "agreement", "first draft accepted",
         "drafts per step", "tokens per step", "speed-up, device", "with host"),
        [(row["shape"] + (" **chosen**" if row["shape"] == found["chosen"] else ""), f"{row['parameters']:,}",
          f"{row['pass_cycles']:,}", f"{row['pass_share']:.1%}", f"{row['agreement']:.3f}",
          f"{row['acceptance'][0]:.3f}", row["drafts"], f"{row['tokens_per_step']:.2f}", f"{row['speedup']:.2f}x",
          f"{row['speedup_with_host']:.2f}x") for row in found["candidates"]])
    return wrapped(
        f"{rows}\n\nMeasured on {found['judged_texts']} greedy continuations of calibration prompts, which no draft "
        f"has seen; cycles on `base` with {found['context']} cached positions. {found['steps']:,} steps, "
        f"{found['tokens'] / 1e6:.1f} million tokens, threads: {found['threads']}, {found['seconds'] / 60:.0f} min; "
        f"resumed {found['resumed']} times.")


def encoder() -> str:
    """The encoder, its teacher and naive Bayes on the same folds."""
    found = _load("encoder")
    if found is None:
        return NOT_YET
    rows = table(("fold", "files", "windows", "encoder", "naive Bayes", "teacher"), [
        (row["fold"] + 1, row["files"], f"{row['windows']:,}", f"{row['right'] / row['windows']:.1%}",
         f"{row['naive_bayes_right'] / row['windows']:.1%}", f"{row['teacher_right'] / row['windows']:.1%}")
        for row in found["folds"]] + [
        ("all", sum(row["files"] for row in found["folds"]), f"{sum(row['windows'] for row in found['folds']):,}",
         f"{found['accuracy']:.1%}", f"{found['naive_bayes']:.1%}", f"{found['teacher']:.1%}")])
    first = found["folds"][0]
    right, integer = first["right"] / first["windows"], found["int8_right"] / first["windows"]
    return wrapped(f"{rows}\n\n{found['parameters']:,} weights. The shipped network is that of fold 1. It has not seen "
                   f"that fold's {len(found['unseen_files'])} files, and classifies {right:.1%} of their windows "
                   f"correctly in float, {integer:.1%} in int8.")


PARTS: dict[str, Callable[[], str]] = {
    "models": models, "corpus": corpus, "recipe": recipe, "copying": copying, "quality": quality, "drafts": drafts,
    "encoder": encoder}
"""By mark, what stands on the page."""


def draw(path: Path) -> None:
    """The learning curve of training.json: loss by tokens, and on the calibration split."""
    done = _load("training")
    if done is None:
        return
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "gemmule"  # equal numbers, equal bytes
    lines = [line for line in done["log"] if line["stage"] == "target"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([line["tokens"] / 1e6 for line in lines], [line["loss"] for line in lines], lw=0.8, label="a step")
    judged = [line for line in lines if "calibration" in line]
    axes.plot([line["tokens"] / 1e6 for line in judged], [line["calibration"] for line in judged], "o-", ms=3,
              label=f"calibration split, windows of {CONTEXT}")
    axes.set(xlabel="million tokens", ylabel="loss, nats a token", title=f"target, {parameters(TARGET):,} weights",
             ylim=(min(line["loss"] for line in lines) - 0.2, 5))
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def write(docs: Path = DOCS) -> None:
    """Fill the page and draw the figure."""
    page = docs / "models.md"
    text = page.read_text(encoding="utf-8")
    for marker, content in PARTS.items():
        text = fill(text, marker, content())
    write_atomically(page, text)
    draw(docs / "img" / FIGURE)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=DOCS)
    write(parser.parse_args().docs)


if __name__ == "__main__":
    main()
