"""Figures: a run by unit, cycles by operation, a sweep over a length, a design space. Needs the extra ``figures``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.csr import CAUSES
from gemmule.isa import Unit
from gemmule.sw.device.timeline import LaunchRecord, Timeline
from gemmule.sw.errors import InputError
from gemmule.sw.reports.files import write_file
from gemmule.sw.reports.trace import slices

__all__ = ["check_figure", "operators_figure", "pareto_figure", "plots", "run_figure", "save", "schedules_figure",
           "sweep_figure"]

FORMATS = ("svg", "png", "pdf")
SMALL = 0.01
"""Operations with a smaller share of the cycles are drawn as one."""
BINS = 600
"""Into which the time of a run is divided."""
COLOURS = ("C0", "C1", "0.88", "0.7", "C3")
"""One for each cause in :data:`gemmule.csr.CAUSES`."""


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn, before any work is done.

    Raises:
        InputError: matplotlib is missing, or the name has an unknown ending.
    """
    if path.suffix[1:].lower() not in FORMATS:
        raise InputError(f"--figure must end in .{', .'.join(FORMATS)}, not {str(path)!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("--figure needs matplotlib: pip install 'gemmule[figures]'") from None


def plots(width: float, columns: Sequence[float] = (1,)) -> tuple[Any, list[Any]]:
    """A figure and the plots side by side in it; ``columns``: relative widths of the plots."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "gemmule"  # equal figures are equal files
    figure, plots = pyplot.subplots(1, len(columns), figsize=(width, 4.5), layout="constrained", squeeze=False,
                                    width_ratios=columns)
    for axes in plots[0]:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(plots[0])


def save(figure: Any, path: Path) -> None:
    """Write a figure to ``--figure``."""
    from matplotlib import pyplot

    kind, made = path.suffix[1:].lower(), io.BytesIO()
    figure.savefig(made, format=kind, metadata={"Date": None} if kind == "svg" else None)
    pyplot.close(figure)
    write_file(path, made.getvalue(), "--figure")


def _large(cycles: dict[str, int]) -> dict[str, int]:
    """Cycles by operation, with small operations summed as ``others``."""
    least = SMALL * sum(cycles.values())
    found = {name: count for name, count in cycles.items() if count >= least}
    return found | {"others": rest} if (rest := sum(cycles.values()) - sum(found.values())) else found


def operators_figure(path: Path, name: str, record: dict[str, Any]) -> None:
    """Draw the cycles of each operation of ``gemmule run arch``, and those in which mesh and vector unit ran."""
    title = f"{name}, {record['phase']} at {record['seq']:,}: {record['cycles']:,} cycles"
    figure, (axes,) = plots(8)
    axes.set_title(title)
    parts = [part for part in record["operators"] if part["cycles"] >= SMALL * record["cycles"]]
    at = range(len(parts))
    for key, label, height in (("cycles", "from the end of the previous operation to its own", 0.8),
                               ("matrix_cycles", "mesh running", 0.5), ("vector_cycles", "vector unit running", 0.25)):
        axes.barh(at, [part[key] for part in parts], height, label=label)
    axes.set_yticks(at, [part["name"] for part in parts])
    axes.invert_yaxis()
    axes.set_xlabel("cycles")
    axes.legend()
    save(figure, path)


def busy_shares(timeline: Timeline, config: Config, edges: np.ndarray) -> dict[str, np.ndarray]:
    """Share of each bin between ``edges`` (cycles of the run) in which a unit works, by unit  # float64 [bins]."""
    found = {}
    for unit in Unit:
        times, done = [0.0], [0.0]  # cycles of work done before each time
        for record in timeline:
            if isinstance(record, LaunchRecord):
                begin = record.start + config.host.launch_cycles
                _, starts, ends = slices(record.result, unit)
                times += (begin + np.stack((starts, ends), 1).reshape(-1)).tolist()
                work = done[-1] + np.cumsum(ends - starts)
                done += np.stack((work - (ends - starts), work), 1).reshape(-1).tolist()
        found[unit.label] = np.diff(np.interp(edges, times, done)) / np.diff(edges)
    return found


def run_figure(path: Path, title: str, timeline: Timeline, config: Config) -> None:
    """Draw when each unit works during a run, and how its cycles divide into causes."""
    launches = [record for record in timeline if isinstance(record, LaunchRecord)]
    last = launches[-1]
    edges = np.linspace(0, last.start + config.host.launch_cycles + int(last.result.cycles), BINS + 1)
    shares = busy_shares(timeline, config, edges)
    figure, (lanes, causes) = plots(11, (3, 1))
    for row, share in enumerate(shares.values()):
        lanes.fill_between((edges[:-1] + edges[1:]) / 2, row + 0.4, row + 0.4 - 0.8 * share, step="mid", color="C0")
    lanes.set_yticks(range(len(shares)), shares)
    lanes.invert_yaxis()
    lanes.set_xlim(0, edges[-1])
    lanes.set_xlabel("cycles, host time before each launch included; full height: always busy")
    lanes.set_title(title)
    whole = sum(int(record.result.cycles) for record in launches)
    left = np.zeros(len(shares))
    for cause, colour in zip(CAUSES, COLOURS, strict=True):
        wide = np.array([sum(record.result.counters[unit][cause] for record in launches) for unit in shares]) / whole
        causes.barh(range(len(shares)), 100 * wide, left=left, label=cause, color=colour)
        left += 100 * wide
    causes.set_yticks(range(len(shares)), [""] * len(shares))
    causes.invert_yaxis()
    moved = sum(sum(record.result.dram_bytes.values()) for record in launches)
    causes.set_xlabel("% of the device's cycles")
    causes.set_title(f"DRAM bus busy {moved // config.bus_bytes * config.dram.beat_cycles / whole:.0%}")
    figure.legend(loc="outside lower center", ncols=len(CAUSES))
    save(figure, path)


def sweep_figure(path: Path, name: str, what: str, points: Sequence[dict[str, Any]]) -> None:
    """Draw cycles by operation over a length, phases side by side."""
    phases = list(dict.fromkeys(point["phase"] for point in points))
    figure, panels = plots(5 * len(phases), [1] * len(phases))
    for axes, phase in zip(panels, phases, strict=True):
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
    save(figure, path)


def schedules_figure(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rise of perplexity over cycles of a token, of schedules of a pruned cache; those that no other beats joined."""
    figure, (axes,) = plots(8)
    axes.set_title("perplexity over cycles of a token")
    for score in dict.fromkeys(row["score"] for row in rows):
        mine = [row for row in rows if row["score"] == score]
        axes.scatter([row["cycles_per_token"] for row in mine], [100 * row["perplexity_change"] for row in mine], s=16,
                     label=f"score: {score}")
    best = [row for row in rows if row["pareto"]]
    axes.plot([row["cycles_per_token"] for row in best], [100 * row["perplexity_change"] for row in best], color="0.6")
    axes.set_xlabel("cycles a token")
    axes.set_ylabel("rise of perplexity, percent")
    axes.legend(fontsize="small")
    save(figure, path)


def pareto_figure(path: Path, points: Sequence[dict[str, Any]], x: str, y: str) -> None:
    """Draw all points of a design space, and for each workload the line of its Pareto-optimal points.

    ``points``: records with ``workload``, ``x``, ``y``, ``config`` and ``pareto``.
    """
    figure, (axes,) = plots(8)
    axes.set_title(f"{y} over {x}")
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
    save(figure, path)
