"""Figures of reports: cycles by operation, a sweep over a length, a design space. matplotlib, the extra ``figures``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmule.sw.commands.common import write_file
from gemmule.sw.errors import InputError

__all__ = ["check_figure", "operators_figure", "pareto_figure", "sweep_figure"]

FORMATS = ("svg", "png", "pdf")
SMALL = 0.01
"""Operations below this share of the cycles are drawn together."""


def check_figure(path: Path) -> None:
    """Refuse what could not be drawn, before any work is done.

    Raises:
        InputError: matplotlib is missing, or the name has another ending.
    """
    if path.suffix[1:].lower() not in FORMATS:
        raise InputError(f"--figure must end in .{', .'.join(FORMATS)}, not {str(path)!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("--figure needs matplotlib: pip install 'gemmule[figures]'") from None


def _axes(title: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "gemmule"  # equal figures are equal files
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    kind, made = path.suffix[1:].lower(), io.BytesIO()
    figure.savefig(made, format=kind, metadata={"Date": None} if kind == "svg" else None)
    pyplot.close(figure)
    write_file(path, made.getvalue(), "--figure")


def _large(cycles: dict[str, int]) -> dict[str, int]:
    """Operations by cycles, small ones together."""
    least = SMALL * sum(cycles.values())
    found = {name: count for name, count in cycles.items() if count >= least}
    return found | {"others": rest} if (rest := sum(cycles.values()) - sum(found.values())) else found


def operators_figure(path: Path, name: str, record: dict[str, Any]) -> None:
    """Cycles of each operation of ``gemmule run arch``, and those in which the mesh and the vector unit ran."""
    title = f"{name}, {record['phase']} at {record['seq']:,}: {record['cycles']:,} cycles"
    figure, axes = _axes(title)
    parts = [part for part in record["operators"] if part["cycles"] >= SMALL * record["cycles"]]
    at = range(len(parts))
    for key, label, height in (("cycles", "to its end, from the end of the one before", 0.8),
                               ("matrix_cycles", "mesh runs", 0.5), ("vector_cycles", "vector unit runs", 0.25)):
        axes.barh(at, [part[key] for part in parts], height, label=label)
    axes.set_yticks(at, [part["name"] for part in parts])
    axes.invert_yaxis()
    axes.set_xlabel("cycles")
    axes.legend()
    _save(figure, path)


def sweep_figure(path: Path, name: str, what: str, points: Sequence[dict[str, Any]]) -> None:
    """Cycles by operation over a length, phases side by side."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "gemmule"
    phases = list(dict.fromkeys(point["phase"] for point in points))
    figure, each = pyplot.subplots(1, len(phases), figsize=(5 * len(phases), 4.5), layout="constrained", squeeze=False)
    for axes, phase in zip(each[0], phases, strict=True):
        chosen = [point for point in points if point["phase"] == phase]
        names = list(dict.fromkeys(key for point in chosen for key in _large(point["cycles_by_operator"])))
        low = [0] * len(chosen)
        for key in names:
            heights = [_large(point["cycles_by_operator"]).get(key, 0) for point in chosen]
            axes.bar([f"{point['value']:,}" for point in chosen], heights, bottom=low, label=key)
            low = [a + b for a, b in zip(low, heights)]
        axes.set_title(f"{name}, {phase}")
        axes.set_xlabel(what)
        axes.set_ylabel("cycles")
        axes.legend(fontsize="small")
    _save(figure, path)


def pareto_figure(path: Path, points: Sequence[dict[str, Any]], x: str, y: str) -> None:
    """All points of a design space, those that no other beats in both, by workload.

    ``points``: records with ``workload``, ``x``, ``y``, ``config`` and ``pareto``.
    """
    figure, axes = _axes(f"{y} over {x}")
    for workload in dict.fromkeys(point["workload"] for point in points):
        chosen = [point for point in points if point["workload"] == workload]
        best = sorted((point for point in chosen if point["pareto"]), key=lambda point: point[x])
        drawn = axes.plot([p[x] for p in best], [p[y] for p in best], marker="o", label=workload)[0]
        axes.scatter([p[x] for p in chosen], [p[y] for p in chosen], s=10, alpha=0.4, color=drawn.get_color())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x.replace("_", " "))
    axes.set_ylabel(y.replace("_", " "))
    axes.legend(fontsize="small")
    _save(figure, path)
