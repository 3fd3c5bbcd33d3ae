"""The command as a process: what it loads, and how it ends when its output or its time is taken away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmule.sw import cli
from gemmule.sw.cli import CLOSED_PIPE, INTERRUPTED
from gemmule.sw.commands.group import COMMANDS

GEMMULE = [sys.executable, "-m", "gemmule"]
SMALL = ["run", "gemm", "--shape", "4x4x4", "--config", "tiny"]
HEAVY = ("numpy", "numba", "amaranth", "torch", "pydantic", "yaml", "tokenizers", "rich", "gemmule.config")


def started(*arguments: str) -> subprocess.Popen[str]:
    """A process whose interpreter is up, just before it loads anything of ours."""
    code = "print('up', flush=True)\nfrom gemmule.sw.cli import main\nmain()"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize("command", ["", *COMMANDS, "run gemm"])
def test_help_loads_nothing_heavy(command: str) -> None:
    """Typer's newest versions load pydantic for the help of a command; nothing of ours may."""
    code = ("import sys, typer\nbefore = set(sys.modules)\nfrom gemmule.sw.cli import main\n"
            "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
            "print(*set(sys.modules) - before, file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code, *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    loaded = {name for name in done.stderr.split() if name in HEAVY} - ({"pydantic"} if command else set())
    assert not loaded, f"gemmule {command} --help loads {sorted(loaded)}"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], SMALL, ["disasm", "4x4x4", "--config", "tiny"],
                                       [*SMALL, "--json", "-"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_device(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*GEMMULE, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[-1] == "error: standard output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], SMALL, ["disasm", "64x64x64", "--config", "tiny"]])
def test_closed_pipe(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*GEMMULE, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert done.returncode == CLOSED_PIPE
    assert all(line.startswith("simulated in") for line in done.stderr.splitlines())


def test_closed_output() -> None:
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *GEMMULE, *SMALL], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0


@pytest.mark.parametrize("delay", [0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
def test_interrupt_is_one_line(delay: float, tmp_path: Path) -> None:
    """Whatever is being imported, compiled or run; a second one in the end changes nothing."""
    process = started("generate", "--max-new-tokens", "200", "--no-baseline", "--json", str(tmp_path / "a.json"))
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, error
    words = [line for line in error.splitlines() if not line.endswith("...")]
    assert words == ["interrupted"]
    assert not list(tmp_path.iterdir())


def test_termination_cleans_up(tmp_path: Path) -> None:
    process = started("generate", "--max-new-tokens", "200", "--no-baseline", "--json", str(tmp_path / "a.json"))
    time.sleep(1.5)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_json_on_standard_output() -> None:
    done = subprocess.run([*GEMMULE, *SMALL, "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["correct"] is True
    assert "result equals numpy" in done.stderr
    plain = subprocess.run([*GEMMULE, *SMALL], capture_output=True, text=True)
    assert plain.stdout.splitlines() == [line for line in done.stderr.splitlines() if "simulated in" not in line]


@pytest.mark.parametrize("arguments", [
    [*SMALL, "--dataflow", "rs"], [*SMALL[:2], "--shape", "0x1x1"], ["generate", "--config", "tiny"],
    ["fuzz", "--programs", "0"], ["cosim", "conv"], ["disasm", "nothing.bin"], ["generate", "--prompt", ""]])
def test_refused_commands_make_nothing(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run([*GEMMULE, *arguments, "--json", "out/deep/a.json"], capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


def test_json_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file size stands for the disk; folders made for the file go again."""
    script = 'ulimit -f 0; trap "" XFSZ; exec "$@"'
    done = subprocess.run(["bash", "-c", script, "bash", *GEMMULE, *SMALL, "--json", str(tmp_path / "a" / "b.json")],
                          capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 2, done.stderr
    assert "--json must name a writable file" in done.stderr
    assert not list(tmp_path.iterdir())


def test_broken_error_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*GEMMULE, "run", "gem"], stdout=subprocess.PIPE, stderr=full, text=True)
    assert done.returncode == 2
    assert not done.stdout


class Lost:
    """A signal in its destructor, where Python drops exceptions with a traceback."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(0.001)


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, "interrupted\n"), (signal.SIGTERM, "")])
def test_signal_in_a_destructor_is_not_lost(number: int, words: str) -> None:
    code = ("import sys, time\nimport gemmule.sw.cli as cli\nfrom test_entry import Lost\n"
            "def run(arguments):\n    Lost(int(arguments[0]))\n    time.sleep(60)\ncli._run = run\ncli.main()")
    done = subprocess.run([sys.executable, "-c", code, str(int(number))], capture_output=True, text=True, timeout=30,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])})
    assert (done.returncode, done.stderr) == (128 + number, words)


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupt_while_a_class_is_made_is_one(monkeypatch, cause):
    """Python 3.11 makes a RuntimeError of what __set_name__ raises; a signal may come there."""
    def run(arguments):
        raise RuntimeError("Error calling __set_name__ on 'cached_property' instance") from cause

    monkeypatch.setattr(cli, "_run", run)
    with pytest.raises(type(cause)) as found:
        cli._guarded([], cli._Watched(sys.stdout))
    assert found.value is cause
