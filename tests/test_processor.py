"""Limits of tests count processor time, of every process below the test too; a planted long one is stopped."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from . import processor

WORK = "import time\nwhile time.process_time() < 0.8: pass\n"


def work(seconds: float) -> None:
    """Use so much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass




def _child() -> None:
    subprocess.run([sys.executable, "-c", WORK], check=True)


def _running_child() -> None:
    """Also before it has ended, and of a child's child."""
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WORK + 'time.sleep(2)'!r}])"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        try:
            while child.poll() is None:
                time.sleep(0.05)
        finally:
            child.kill()


@pytest.mark.parametrize("way", [lambda: work(0.8), _child, _running_child], ids=["itself", "a child", "a live child"])
def test_what_works_too_long_is_stopped(way: Callable[[], None]) -> None:
    with (pytest.raises(TimeoutError, match="s of processor time are more than 0.4 s"),
          processor.limited(0.4, _stop)):
        way()


def test_what_waits_is_stopped_later() -> None:
    with processor.limited(0.4, _stop):
        time.sleep(0.5)
    with pytest.raises(TimeoutError, match="it waits"), processor.limited(0.4, _stop, idle=0.2):
        time.sleep(2)


def test_a_pause_does_not_count_and_the_rest_does() -> None:
    with processor.limited(0.5, _stop):
        with processor.paused():
            work(0.6)
        work(0.1)
    with pytest.raises(TimeoutError), processor.limited(0.5, _stop):
        _paused_and_more()


def test_pauses_of_threads_overlap() -> None:
    def pause(seconds: float) -> None:
        with processor.paused():
            work(seconds)

    with processor.limited(0.5, _stop) as limit:
        threads = [threading.Thread(target=pause, args=(seconds,)) for seconds in (0.4, 0.8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert limit.holds == 0
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        limit.look()


def _paused_and_more() -> None:
    with processor.paused():
        work(0.6)
    work(0.8)


def test_pytests_own_limit_counts_so(request: pytest.FixtureRequest) -> None:
    """The one of this test, by the option ``timeout`` of pyproject.toml."""
    limit, = processor._running
    assert limit.seconds == float(request.config.getini("timeout"))


def _stop(text: str) -> None:
    raise TimeoutError(text)
