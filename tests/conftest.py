"""What all tests share: building a simulator does not count against a test's time limit; long files come first."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmule.io import locks

_exclusive = locks.exclusive


@contextlib.contextmanager
def _unhurried(path: Path, what: str = "") -> Iterator[None]:
    """:func:`gemmule.io.locks.exclusive`, which spans every build of Verilog, a simulator or a quantised model and the
    wait for one, with the alarm of pytest-timeout stopped. It goes on with what was left of it.
    """
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with _exclusive(path, what):
            yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left)


LONGEST = (
    "cocotb/test_benches", "compiler/test_compile", "equivalence/test_base", "equivalence/test_mutants",
    "hw/vector/test_vector", "equivalence/test_planted", "equivalence/test_bus", "equivalence/test_cosim",
    "hw/vector/test_softmax", "hw/matrix/test_matrix", "hw/vector/test_store", "hw/vector/test_norm",
    "hw/device/test_bus_faults", "rtl/test_claims_check", "rtl/test_build", "hw/command/test_execute",
    "hw/command/test_fetch_loops", "hw/flow/test_export", "hw/command/test_resolve", "hw/flow/test_verilog",
    "test_docs",
)
"""Files of many seconds: begun last, one of them would run alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; ``make test`` hands out whole files in this order."""
    root = Path(__file__).parent
    rank = {root / f"{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


locks.exclusive = _unhurried  # before any other module takes it from there
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script; what tests start gets it too
    signal.signal(signal.SIGINT, signal.default_int_handler)
