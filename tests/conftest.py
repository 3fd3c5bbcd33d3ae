"""What all tests share: building a simulator does not count against a test's time limit."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import gemmule.sim.rtl.build as building

_exclusive = building.exclusive


@contextlib.contextmanager
def _unhurried(path: Path, what: str = "") -> Iterator[None]:
    """:func:`gemmule.sim.rtl.build.exclusive`, which spans every build of Verilog or a simulator and the wait for one,
    with the alarm of pytest-timeout stopped. It goes on with what was left of it.
    """
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with _exclusive(path, what):
            yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left)


building.exclusive = _unhurried  # before any other module takes it from there
