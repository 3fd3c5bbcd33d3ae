"""Float arithmetic that does not depend on the machine: in a process of its own, whose libraries go one way.

In what order OpenBLAS and numpy add depends on the processor, and OpenBLAS' on the number of threads, too. In a network
that is quantised one last bit makes another integer, and a text takes another turn. What is made once and kept is
therefore made with one thread, the way that any x86 processor with AVX2 can go. On another kind of processor, or with
another version of numpy, it may still come out otherwise.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import ParamSpec, TypeVar

__all__ = ["environment", "is_steady", "steadily"]

MARK = "GEMMULE_STEADY"
"""Is set in such a process."""
CORE = "Haswell"
"""OpenBLAS' name of the first processors with AVX2."""
WIDER = ("AVX512", "X86_V4")
"""What names of numpy's wider instructions begin with."""
P = ParamSpec("P")
T = TypeVar("T")


def is_steady() -> bool:
    """Whether this is such a process."""
    return MARK in os.environ


def environment() -> dict[str, str]:
    """Of such a process, to be started with ``-P``: this one's, with what its libraries read when they are loaded, and
    where this one finds modules.
    """
    numpy = import_module("numpy._core._multiarray_umath")  # no other way tells
    found = os.environ | {MARK: "1", "OPENBLAS_NUM_THREADS": "1",
                          "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    if numpy.__cpu_features__.get("AVX2"):
        found["OPENBLAS_CORETYPE"] = CORE
    if wider := [name for name in numpy.__cpu_dispatch__
                 if name.startswith(WIDER) and numpy.__cpu_features__.get(name)]:
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(wider)
    return found


def steadily(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function returns, or raises, in such a process; all of that and its arguments can be pickled.

    Raises:
        MemoryError: the system ended the process, as it does where memory runs out.
    """
    if is_steady():
        return function(*arguments, **named)
    done = subprocess.run([sys.executable, "-P", "-m", "gemmule.io.steady"], stdout=subprocess.PIPE, env=environment(),
                          input=pickle.dumps((function, arguments, named)), check=False)
    if done.returncode == -signal.SIGKILL:
        raise MemoryError
    done.check_returncode()
    ok, found = pickle.loads(done.stdout)
    if not ok:
        raise found
    result: T = found
    return result


def _serve() -> None:
    """Call what standard input says. What the function prints goes to standard error."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, arguments, named = pickle.load(sys.stdin.buffer)
    found: tuple[bool, object]
    try:
        found = True, function(*arguments, **named)
    except Exception as error:
        found = False, error
    with os.fdopen(answer, "wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    try:
        _serve()
    except KeyboardInterrupt:  # the process that waits for this one says so
        os._exit(130)
