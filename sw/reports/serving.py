"""Requests that were served: on the terminal, and latency and throughput over the offered load as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.sw.reports.figures import plots, save

__all__ = ["print_served", "serving_figure"]


def _milliseconds(shares: dict[str, float] | None) -> str:
    """Percentiles, for people."""
    return "-" if shares is None else " ".join(f"{1000 * value:.3g}" for value in shares.values())


def print_served(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """A table of throughput and latency, and one of what caches hold."""
    table = Table("method", "offered", "tokens/s", "a step", "texts", "equal", "first token", "a token", "latency",
                  box=None, pad_edge=False)
    held = Table("method", "offered", "KV rows", "context", "asked", "pages", "waiting", "idle", box=None,
                 pad_edge=False)
    for columns in (table.columns[1:], held.columns[1:]):
        for column in columns:
            column.justify = "right"
    for row in rows:
        offered = "-" if row["offered_per_second"] is None else f"{row['offered_per_second']:.3g}"
        table.add_row(row["method"], offered, f"{row['tokens_per_second']:,.0f}", f"{row['tokens_per_step']:.2f}",
                      f"{row['texts_per_pass']:.2f}", f"{row['equal']}/{row['requests']}",
                      _milliseconds(row["seconds_to_first_token"]), _milliseconds(row["seconds_per_token"]),
                      _milliseconds(row["seconds_latency"]))
        held.add_row(row["method"], offered, f"{row['kv_rows']:,.0f}", f"{row['waste_reserved']:.1%}",
                     f"{row['waste_asked']:.1%}", f"{row['waste_paged']:.1%}",
                     _milliseconds(row["seconds_waiting"]),
                     f"{row['idle_cycles'] / (row['cycles'] + row['idle_cycles']):.0%}")
    console.print(table)
    console.print("offered: requests per second that arrive; a step: tokens of a text per pass; texts: of a pass; "
                  "first token, a token, latency: milliseconds, p50 p90 p99", markup=False, style="dim")
    console.print()
    console.print(held)
    console.print("KV rows: cached, in the mean; context, asked, pages: share of cache rows that hold nothing where a "
                  "text reserves the whole context, what its prompt and new tokens can take, or pages as it grows; "
                  "waiting: milliseconds for a place in the batch, p50 p90 p99; idle: share of the time without any "
                  "text", markup=False, style="dim")


def serving_figure(path: Path, name: str, batch: int, rows: Sequence[dict[str, Any]]) -> None:
    """Draw latency (p50 and p99) and tokens a second over the offered load, by method."""
    figure, (latency, throughput) = plots(11, (1, 1))
    for colour, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        mine = sorted((row for row in rows if row["method"] == method), key=lambda row: row["offered_per_second"] or 0)
        loads = [row["offered_per_second"] or 0 for row in mine]
        for share, style in (("p50", "-"), ("p99", ":")):
            latency.plot(loads, [1000 * row["seconds_latency"][share] for row in mine], style, marker="o",
                         color=f"C{colour}", label=f"{method}, {share}")
        throughput.plot(loads, [row["tokens_per_second"] for row in mine], marker="o", color=f"C{colour}", label=method)
    latency.set_ylabel("milliseconds from arrival to last token")
    throughput.set_ylabel("tokens per second")
    latency.set_yscale("log")
    for axes in (latency, throughput):
        axes.set_xlabel("requests per second that arrive")
        axes.legend(fontsize="small")
    figure.suptitle(f"{name}, up to {batch} texts a pass")
    save(figure, path)
