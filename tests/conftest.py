"""What all tests share: limits by processor time, which building a simulator does not use; long files come first."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_timeout

from gemmule.io import locks, steady

from . import processor

_exclusive = locks.exclusive
os.environ[steady.MARK] = "1"  # what is quantised here is not kept for users: no process of its own for each


@contextlib.contextmanager
def _unhurried(path: Path, what: str = "") -> Iterator[None]:
    """:func:`gemmule.io.locks.exclusive`, which spans every build of Verilog, a simulator or a quantised model and the
    wait for one: nothing of that counts.
    """
    with processor.paused(), _exclusive(path, what):
        yield


LONGEST = (
    "cocotb/test_benches", "compiler/test_compile", "equivalence/test_mutants", "equivalence/test_cosim",
    "sw/test_methods", "sw/test_every_method", "sw/test_serving", "sw/test_prune_values", "sw/test_entry",
    "hostile/test_hostile", "hw/flow/test_export", "hw/vector/test_softmax", "hw/vector/test_store",
    "sw/test_adaptive_batches", "sw/test_one_pass", "rtl/test_build", "sw/test_bench", "sw/test_study",
    "compiler/test_greedy", "compiler/test_packed", "hw/vector/test_norm", "sw/test_prune_halves",
    "sw/test_prune_pages", "hw/device/test_bus_faults", "hw/matrix/test_matrix", "sw/test_adaptive",
    "hw/device/test_control_commands", "compiler/test_wide_vocab", "sw/test_generate_imported", "sw/test_cli",
    "sw/test_quantised", "test_tutorial", "test_packaging", "test_docs",
)
"""Files of many seconds: begun last, one of them would run alone at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor", type=int, default=0, metavar="N",
                     help="show processor time: the N longest tests, and all files of ten seconds or more")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; ``make test`` hands out whole files in this order."""
    root = Path(__file__).parent
    rank = {root / f"{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish() -> None:
    """What all test files have loaded stays to the end: no collection of garbage looks at it again, which takes half a
    second each time.
    """
    gc.collect()
    gc.freeze()


_limits: dict[str, contextlib.ExitStack] = {}


def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """In place of pytest-timeout's own timer, which counts by the clock."""
    def expired(text: str) -> None:
        if settings.disable_debugger_detection or not pytest_timeout.is_debugging():
            pytest.fail(f"Timeout: {text}")

    stack = _limits[item.nodeid] = contextlib.ExitStack()
    stack.enter_context(processor.limited(settings.timeout, expired))
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    if stack := _limits.pop(item.nodeid, None):
        stack.close()
    return True


_counted = [0.0]


def pytest_runtest_logstart() -> None:
    _counted[0] = processor.used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Each of a test's three reports takes its processor time along, from a worker too."""
    report = yield
    before, _counted[0] = _counted[0], processor.used()
    report.user_properties.append(("processor", round(_counted[0] - before, 2)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not (most := config.getoption("--processor")):
        return
    tests: list[tuple[float, str, str]] = []
    files: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                # A later report repeats what the item has collected before.
                seconds = [value for name, value in report.user_properties if name == "processor"][-1]
                tests.append((seconds, report.when or "", report.nodeid))
                file = report.nodeid.partition("::")[0]
                files[file] = files.get(file, 0.0) + seconds
    terminalreporter.section("processor time")
    for seconds, when, name in sorted(tests, reverse=True)[:most]:
        terminalreporter.line(f"{seconds:8.2f}s {when:8} {name}")
    for name, seconds in sorted(files.items(), key=lambda each: -each[1]):
        if seconds >= 10:
            terminalreporter.line(f"{seconds:8.2f}s {name}")
    terminalreporter.line(f"{sum(files.values()):8.2f}s in all")


locks.exclusive = _unhurried  # before any other module takes it from there
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script; what tests start gets it too
    signal.signal(signal.SIGINT, signal.default_int_handler)
