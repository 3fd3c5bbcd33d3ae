"""Float arithmetic that does not depend on the machine."""

from __future__ import annotations

import hashlib
import platform
import signal
import subprocess
import sys

import numpy as np
import pytest

from gemmule.io import steady
from gemmule.io.steady import MARK, environment, is_steady, steadily
from gemmule.sw import cli
from gemmule.sw.errors import InputError


def product(seed: int) -> str:
    """Of products whose sums come in other orders with other kernels, or more threads."""
    random, found = np.random.default_rng(seed), hashlib.sha256()
    for rows, inner, columns in ((101, 576, 1536), (256, 1536, 576), (64, 576, 49152)):
        left, right = (random.standard_normal(shape, dtype=np.float32) for shape in ((rows, inner), (inner, columns)))
        found.update((left @ right).tobytes())
        found.update((right.T @ left[0]).tobytes())
    return found.hexdigest()


def refused(text: str) -> None:
    print(text)
    raise InputError(f"{text}: is refused")


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a user's: tests mark theirs as steady, so that none is begun for each of them."""
    monkeypatch.delenv(MARK)


@pytest.mark.usefixtures("unsteady")
def test_the_same_bits_whatever_the_process_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an older processor, and with another number of threads."""
    found = set()
    for core, threads in (("Prescott", "1"), ("Sandybridge", "2")):
        monkeypatch.setenv("OPENBLAS_CORETYPE", core)
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
        found.add(steadily(product, 3))
    assert len(found) == 1
    assert not is_steady()
    if platform.machine() == "x86_64" and environment().get("OPENBLAS_CORETYPE"):
        ask = "from tests.test_steady import product; print(product(3))"
        other = subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True, check=True)
        assert {other.stdout.strip()} != found, "Sandybridge adds in another order, so the test can fail"


@pytest.mark.usefixtures("unsteady")
def test_errors_and_words_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="a text: is refused"):
        steadily(refused, "a text")
    assert capfd.readouterr() == ("", "a text\n"), "standard output is for results"
    with pytest.raises(subprocess.CalledProcessError):
        steadily(sys.exit, 3)
    with pytest.raises(MemoryError):
        steadily(signal.raise_signal, signal.SIGKILL)


def test_within_such_a_process_no_other_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady.subprocess, "run", lambda *more, **named: pytest.fail("another one"))
    assert steadily(max, 2, 7) == 7


@pytest.mark.usefixtures("unsteady")
@pytest.mark.parametrize(("arguments", "begins"), [
    (["import", "x.gguf", "--out", "y"], True), (["import", "--help"], False), (["--version"], False)])
def test_import_begins_again(monkeypatch: pytest.MonkeyPatch, arguments: list[str], begins: bool) -> None:
    """Once: the process that it becomes is marked."""
    made: list[list[str]] = []

    def become(program: str, words: list[str], environ: dict[str, str]) -> None:
        assert environ[MARK]
        made.append(words)
        raise SystemExit(0)

    monkeypatch.setattr(cli.os, "execve", become)
    monkeypatch.setattr(sys, "argv", ["gemmule", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    assert [words[-len(arguments):] for words in made] == ([arguments] if begins else [])
