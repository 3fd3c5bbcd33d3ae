"""The tables and the figure of docs/drafters.md, from docs/results/drafters.json.

    python -m gemmule.sw.training.drafters.page --docs docs

The figure is drawn where matplotlib is installed (extra ``figures``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically
from gemmule.sw.reports.markdown import fill, table, wrapped

__all__ = ["COST_OF_ROW", "PARTS", "predicted", "write_page"]

DOCS = Path(__file__).resolve().parents[3] / "docs"
FIGURE = "drafters.svg"
COST_OF_ROW = 0.06 / 15
"""What a further row adds to a pass of the target on ``base``, in passes of one row."""
NAMES = {"eagle": "sequential, one layer", "parallel": "one pass, two layers", "medusa": "Medusa's heads"}
MOST_POINTS = 10
"""Of the learning curve that the table has."""
GROUPS = ("code", "chat", "grounded", "rewrite", "requests", "held out")


def predicted(tokens: float, passes: int, rows: int, share: float) -> float:
    """The speed-up over one token a pass.

    Args:
        tokens: that a step commits.
        passes: of the drafter in a step.
        rows: drafted rows that the target verifies.
        share: weights that a pass of the drafter reads, of those that the target reads.
    """
    return tokens / (1 + passes * share + rows * COST_OF_ROW)


def sizes(done: dict[str, Any]) -> str:
    """Weights of each drafter and what a pass of it reads."""
    return table(("", "weights", "with its head", "of a pass of the target", "file in int8"), [
        (NAMES[kind], f"{one['parameters']:,}", f"{one['parameters'] + one['head_parameters']:,}",
         f"{_share(done, one):.1%}", f"{one['bytes_int8']:,} bytes") for kind, one in done["drafters"].items()])


def positions(done: dict[str, Any]) -> str:
    """Acceptance by position on the requests."""
    count = done["runs"][0]["recipe"]["network"]["positions"]
    return table(("first tokens right", *(str(at + 1) for at in range(count))), [
        (NAMES[kind], *(f"{share:.1%}" for share in one["judged"]["requests"]["reached"]))
        for kind, one in done["drafters"].items()])


def steps(done: dict[str, Any]) -> str:
    """Tokens a step by category, of the best chain on the held-out texts and of a tree."""
    rows: list[tuple[Any, ...]] = []
    for kind, one in done["drafters"].items():
        judged, share = one["judged"], _share(done, one)
        groups = [group for group in GROUPS if group in judged]
        chain = max(range(1, len(judged["held out"]["tokens_a_step"]) + 1), key=lambda count: predicted(
            judged["held out"]["tokens_a_step"][count - 1], _passes(kind, count), count, share))
        found = {group: judged[group]["tokens_a_step"][chain - 1] for group in groups}
        rows.append((NAMES[kind], f"chain of {chain}", *(f"{found.get(group, 0):.2f}" for group in GROUPS),
                     f"{predicted(found['requests'], _passes(kind, chain), chain, share):.2f}×"))
        for nodes, tree in one["trees"].items():
            depth = max((len(path) for path in tree["paths"]), default=0)
            found = tree["tokens_a_step"]
            rows.append((NAMES[kind], f"tree of {nodes}",
                         *(f"{found[group]:.2f}" if group in found else "" for group in GROUPS),
                         f"{predicted(found['requests'], _passes(kind, depth), int(nodes), share):.2f}×"))
    return table(("", "drafted", *GROUPS, "predicted speed-up on the requests"), rows)


def training(done: dict[str, Any]) -> str:
    """What each run was trained on, for how long, where."""
    found = []
    for number, told in enumerate(done["runs"], 1):
        texts, last = told["texts"], [point for point in done["curve"] if point["run"] == number][-1]
        text = (f"{texts['answer tokens']:,} tokens of answers ({texts['chat texts']:,} to invented prompts, "
                f"{texts['texts about texts and code']:,} to requests about texts and code); {told['step']:,} steps "
                f"over {told['tokens'] - told['tokens_before']:,} tokens; {last['seconds']:.0f} seconds in all, texts "
                f"and measurements included, on {told['machine']['device']} with torch {told['machine']['torch']}.")
        if number > 1:
            names = " and ".join(f"*{NAMES[kind]}*" for kind in told["recipe"]["kinds"])
            text = f"Run {number} continues {names} on other texts: {text} That makes {told['tokens']:,} tokens seen."
        elif len(done["runs"]) > 1:
            text = f"Run 1 trains all: {text}"
        found.append(wrapped(text))
    return "\n\n".join(found)


def learning(done: dict[str, Any]) -> str:
    """Tokens seen against acceptance of the first token, and tokens a step with chains of 4."""
    points = [point for point in done["curve"] if point["step"]]  # a continued run begins where the one before ended
    last = min(len(points), MOST_POINTS) - 1
    chosen = [points[round(at * (len(points) - 1) / max(1, last))] for at in range(last + 1)]
    kinds = list(done["drafters"])
    return table(("million tokens seen", *(NAMES[kind] for kind in kinds)), [
        (f"{point['tokens'] / 1e6:.2f}", *(
            f"{point['judged'][kind]['requests']['reached'][0]:.1%}, "
            f"{point['judged'][kind]['requests']['tokens_a_step'][3]:.2f}" if kind in point["judged"] else ""
            for kind in kinds)) for point in chosen]
    ) + f"\n\n![Acceptance by position against tokens seen](img/{FIGURE})"


def on_the_cpu(done: dict[str, Any]) -> str:
    """What weights in int8 lose."""
    return table(("", "first token, as trained", "int8", "tokens a step of 4, as trained", "int8"), [
        (NAMES[kind], *(f"{found[form]['reached'][0]:.1%}" for form in ("as_it_came", "int8")),
         *(f"{found[form]['tokens_a_step'][3]:.2f}" for form in ("as_it_came", "int8")))
        for kind, found in ((kind, one["on_the_cpu"]) for kind, one in done["drafters"].items())])


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "training": training, "sizes": sizes, "positions": positions, "steps": steps, "learning": learning,
    "int8": on_the_cpu}
"""By mark, what stands on the page."""


def _share(done: dict[str, Any], one: dict[str, Any]) -> float:
    return float((one["parameters"] + one["head_parameters"]) / done["target_parameters"])


def _passes(kind: str, count: int) -> int:
    """Passes that draft so many positions."""
    return count if kind == "eagle" else 1


def draw(done: dict[str, Any], path: Path) -> None:
    """Acceptance by position against tokens seen."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "gemmule"  # equal numbers, equal bytes
    kinds = list(done["drafters"])
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), sharey=True), kinds, strict=True):
        points = [point for point in done["curve"] if kind in point["judged"]]
        for at in range(done["runs"][0]["recipe"]["network"]["positions"]):
            axes.plot([point["tokens"] / 1e6 for point in points],
                      [100 * point["judged"][kind]["requests"]["reached"][at] for point in points], "o-", ms=2,
                      label=f"first {at + 1}")
        axes.set(xlabel="million tokens seen", title=NAMES[kind], ylim=(0, 100))
    figure.axes[0].set(ylabel="accepted, %")
    figure.axes[-1].legend(fontsize="x-small")
    figure.savefig(path, metadata={"Date": None})


def write_page(docs: Path = DOCS) -> None:
    """Fill the page and draw the figure.

    Raises:
        ValueError: the page lacks a mark.
    """
    done: dict[str, Any] = json.loads((docs / "results" / "drafters.json").read_text(encoding="utf-8"))
    text = (docs / "drafters.md").read_text(encoding="utf-8")
    for mark, content in PARTS.items():
        text = fill(text, mark, content(done))
    write_atomically(docs / "drafters.md", text)
    if find_spec("matplotlib"):
        draw(done, docs / "img" / FIGURE)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=DOCS)
    write_page(parser.parse_args().docs)


if __name__ == "__main__":
    main()
