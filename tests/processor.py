"""Limits by processor time: how long a test takes by the clock depends on what else the machine does.

Counted is what the test's own process uses, what its children used that have ended, and what every process below it
has used so far. Building a simulator does not count (:func:`paused`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Limit", "limited", "paused", "used"]

IDLE, PROGRESS = 600.0, 2.0
"""A test that uses less processor time than ``PROGRESS`` in ``IDLE`` seconds by the clock waits for something that does
not come. On the busiest machine one that works uses more."""
TICK = os.sysconf("SC_CLK_TCK")


def _below() -> float:
    """Processor seconds of all processes below this one that still run."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none: most tests have none, and reading all of /proc takes as long as some tests
        return 0.0
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything. From the state on: field 1 is the parent, 11 to 14 are times
            # of the process and of its dead children.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        spent[process] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        found = children.get(waiting.pop(), [])
        total += sum(spent[process] for process in found)
        waiting += found
    return total / TICK


def used() -> float:
    """Processor seconds of this process and all processes below it, dead or alive."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _below()


class Limit:
    """Calls ``expired`` with a text once too much has been used, or nothing for long."""

    def __init__(self, seconds: float, expired: Callable[[str], None], idle: float = IDLE) -> None:
        self.seconds, self.expired, self.idle = seconds, expired, idle
        self.begun = self.held = used()
        self.holds, self._lock = 0, threading.Lock()
        self.progress()

    def progress(self) -> None:
        """It works: from here on waiting is measured."""
        self.spent, self.clock = used() - self.begun, time.monotonic()

    def look(self) -> None:
        spent = used() - self.begun
        if spent > self.seconds:
            self.stop()
            self.expired(f"{spent:.1f} s of processor time are more than {self.seconds:g} s")
        elif spent > self.spent + PROGRESS:
            self.progress()
        elif time.monotonic() - self.clock > self.idle:
            self.stop()
            self.expired(f"it waits: no processor time in {self.idle:g} s by the clock")

    def start(self) -> None:
        signal.signal(signal.SIGALRM, lambda number, frame: self.look())
        self._tick()

    def _tick(self) -> None:
        every = min(2.0, self.seconds / 5)
        signal.setitimer(signal.ITIMER_REAL, every, every)

    def hold(self) -> None:
        """Nothing counts until as many calls of :meth:`go_on`, from whatever thread."""
        with self._lock:
            if self.holds == 0:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.held = used()
            self.holds += 1

    def go_on(self) -> None:
        with self._lock:
            self.holds -= 1
            if self.holds == 0:
                self.begun += used() - self.held
                self.progress()
                if self in _running[-1:]:
                    self._tick()

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


_running: list[Limit] = []


@contextlib.contextmanager
def limited(seconds: float, expired: Callable[[str], None], idle: float = IDLE) -> Iterator[Limit]:
    """A limit within which no other one holds."""
    limit = Limit(seconds, expired, idle)
    _running.append(limit)
    limit.start()
    try:
        yield limit
    finally:
        limit.stop()
        _running.pop()
        if _running:
            _running[-1].start()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """What happens in this block does not count, neither its processor time nor its time by the clock."""
    if not _running:
        yield
        return
    limit = _running[-1]
    limit.hold()
    try:
        yield
    finally:
        limit.go_on()
