"""Runs commands, each in a fork of a process that has imported everything: bounded in time and memory.

That is also what commands import where they need it: in every fork anew it would take ten times as long as the rest.

A request is one line of JSON on standard input (see :class:`.runner.Runner`), an answer one on standard output.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gemmule.sw.cli
import gemmule.sw.commands
import gemmule.sw.commands.shared.decode
import gemmule.sw.models.bundled_models
import gemmule.sw.training.stages.bundle
import gemmule.sw.workloads.programs

MEMORY = 256 << 20
"""Bytes of address space that a command may take beyond what is imported."""
ENTRIES: dict[str, Callable[[], object]] = {
    "gemmule": gemmule.sw.cli.main, "bundle": gemmule.sw.training.stages.bundle.main,
    # what no command may do, to see that it is noticed
    "allocate": lambda: bytearray(2 * MEMORY), "wait": lambda: time.sleep(60), "work": lambda: sum(range(1 << 40)),
}


def run(request: dict[str, Any]) -> NoReturn:
    """The forked half: the command, its output in files."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of processor time; by the clock, which a busy machine makes long, six times as much.
    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"], request["seconds"] + 1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(6 * request["seconds"])
    for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, request["out"], os.O_WRONLY | os.O_CREAT),
                               (2, request["err"], os.O_WRONLY | os.O_CREAT)):
        os.dup2(os.open(path, mode), number)
    os.chdir(request["folder"])
    tempfile.tempdir = request["temporary"]
    gemmule.sw.models.bundled_models.MODELS = Path(request["models"])
    sys.argv = request["arguments"]
    code: int | str | None = 1
    try:
        ENTRIES[sys.argv[0]]()
        code = 0
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    """Answer until the requests end."""
    for module in pkgutil.iter_modules(gemmule.sw.commands.__path__):
        importlib.import_module(f"gemmule.sw.commands.{module.name}")
    gc.freeze()  # what forks do not look at stays shared
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            run(json.loads(line))
        _, status, usage = os.wait4(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begin,
                          "kib": usage.ru_maxrss}), file=answers)


if __name__ == "__main__":
    main()
