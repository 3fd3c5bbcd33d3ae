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

__all__ = ["counting", "estimating", "say", "stderr", "working"]

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
def _bar(what: str, text: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """A live bar, told by ``what`` of its task: ``update(done, note)``."""
    global _showing
    _showing = True
    try:
        columns = (BarColumn(10), TextColumn(what, markup=False), TimeElapsedColumn())
        with Progress(*columns, console=stderr, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
            task = bar.add_task(text, total=total, note="")
            yield lambda done, note: bar.update(task, completed=done, note=note)
    finally:
        _showing = False


@contextlib.contextmanager
def counting(text: str, total: int, *, lines: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Say how far ``text`` is while the block runs: ``tell(done, note)`` for the function that the block gets.

    On a terminal a live bar with the last note; elsewhere, and inside another live display, ten lines in all, or with
    ``lines`` false none.
    """
    if _showing or not stderr.is_terminal:
        def line(done: int, note: str) -> None:
            if lines and done * 10 // total > (done - 1) * 10 // total:
                say(f"  {done}/{total} {text}, {note}")

        yield line
        return
    with _bar("{task.completed}/{task.total} {task.description}, {task.fields[note]}", text, total) as update:
        yield update


@contextlib.contextmanager
def estimating(text: str, total: float) -> Iterator[Callable[[str, float], None]]:
    """Say how far ``text`` is and how long the rest will take: ``tell(step, work)`` adds work that was done to a total.

    On a terminal a live bar with the last step; elsewhere, and inside another live display, a line a tenth.
    """
    begin, done, told = time.monotonic(), 0.0, 0

    def left() -> str:
        return _duration((time.monotonic() - begin) * max(total - done, 0.0) / done)

    def line(step: str, work: float) -> None:
        nonlocal done, told
        done += work
        tenth = min(10, int(10 * done / total))
        if tenth > told:
            told = tenth
            say(f"  {10 * tenth} % of {text}, {step}" + (f", about {left()} left" if tenth < 10 else ""))

    if _showing or not stderr.is_terminal:
        yield line
        return
    with _bar("{task.percentage:3.0f} % {task.description}{task.fields[note]}", text, total) as update:
        def tell(step: str, work: float) -> None:
            nonlocal done
            done += work
            update(min(done, total), f": {step}, about {left()} left")

        yield tell


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
