"""Requests that were served: on the terminal, and latency and throughput over the offered load as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.sw.reports.figures import plots, save

__all__ = ["print_served", "serving_figure"]


def _milliseconds(shares: dict[str, float] | None) -> list[str]:
    """Percentiles, for people."""
    return ["-"] * 3 if shares is None else [f"{1000 * value:.3g}" for value in shares.values()]


def print_served(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Tables of throughput, of latency, and of what caches hold."""
    names = [(row["method"], "-" if row["offered_per_second"] is None else f"{row['offered_per_second']:.4g}")
             for row in rows]

    def table(*columns: str, cells: Sequence[Sequence[str]]) -> None:
        made = Table("method", "offered", *columns, box=None, pad_edge=False)
        for column in made.columns[1:]:
            column.justify = "right"
        for name, row in zip(names, cells, strict=True):
            made.add_row(*name, *row)
        console.print(made)

    def note(text: str) -> None:
        console.print(text, markup=False, style="dim")

    table("tokens/s", "a step", "texts", "equal", "most waiting", "idle", cells=[
        [f"{row['tokens_per_second']:,.0f}", f"{row['tokens_per_step']:.2f}", f"{row['texts_per_pass']:.2f}",
         f"{row['equal']}/{row['requests']}", str(row["most_waiting"]),
         f"{row['idle_cycles'] / (row['cycles'] + row['idle_cycles']):.0%}"] for row in rows])
    note("offered: requests per second that arrive; a step: tokens of a text per pass; texts: of a pass; equal: texts "
         "that ar gives for the prompt alone; idle: share of the time without any text\n")
    table("first token p50", "p99", "a token p50", "p99", "latency p50", "p90", "p99", cells=[
        [*_milliseconds(row["seconds_to_first_token"])[::2], *_milliseconds(row["seconds_per_token"])[::2],
         *_milliseconds(row["seconds_latency"])] for row in rows])
    note("milliseconds: from a request's arrival to its first token, from each token to the next, from the arrival to "
         "the last token\n")
    table("KV bytes", "rows", "context", "asked", "pages", "left", cells=[
        [f"{row['kv_bytes']:,}", f"{row['kv_rows']:,.0f}", f"{row['waste_reserved']:.1%}", f"{row['waste_asked']:.1%}",
         f"{row['waste_paged']:.1%}", str(row["stopped"])] for row in rows])
    note("rows: that hold a token, in the mean; context, asked, pages: share of cache rows that hold nothing where a "
         "text reserves the whole context, what its prompt and new tokens can take, or pages as it grows; left: texts "
         "that left the batch because all pages were taken")


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
