"""Words about long work: a line with a spinner and the seconds on a terminal, one line elsewhere.

All of it goes to standard error, so that standard output holds results alone.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["counting", "say", "stderr", "working"]

stderr = Console(stderr=True, highlight=False)
"""The console of everything that is not a result. One for all: two live displays would overwrite each other."""

_showing = False


def say(text: str) -> None:
    """One line on standard error."""
    stderr.print(text, markup=False, soft_wrap=True)


@contextlib.contextmanager
def working(text: str, *, least: float = 0.0) -> Iterator[None]:
    """Say that ``text`` is being done while the block runs.

    On a terminal a line with the seconds, replaced at the end by one that says how long it took (if at least
    ``least`` seconds); elsewhere one line at the beginning. Inside another live display: one line.
    """
    global _showing
    if _showing or not stderr.is_terminal:
        say(f"{text} ...")
        yield
        return
    begin, _showing = time.monotonic(), True
    try:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=stderr, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
            bar.add_task(text, total=None)
            yield
    finally:
        _showing = False
    if (seconds := time.monotonic() - begin) >= least:
        say(f"{text}: {seconds:.0f} s")


@contextlib.contextmanager
def counting(text: str, total: int, *, lines: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Say how far ``text`` is while the block runs: ``tell(done, note)`` for the function that the block gets.

    On a terminal a live bar with the last note; elsewhere, and inside another live display, ten lines in all, or with
    ``lines`` false none.
    """
    global _showing
    if _showing or not stderr.is_terminal:
        def line(done: int, note: str) -> None:
            if lines and done * 10 // total > (done - 1) * 10 // total:
                say(f"  {done}/{total} {text}, {note}")

        yield line
        return
    _showing = True
    try:
        what = "{task.completed}/{task.total} {task.description}, {task.fields[note]}"
        columns = (BarColumn(10), TextColumn(what, markup=False), TimeElapsedColumn())
        with Progress(*columns, console=stderr, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
            task = bar.add_task(text, total=total, note="")
            yield lambda done, note: bar.update(task, completed=done, note=note)
    finally:
        _showing = False
