"""Where the points of a sweep are evaluated: processes of this machine, or a Ray or Dask cluster, through joblib."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from gemmule.sw.errors import InputError

__all__ = ["check_engine", "evaluated"]

T = TypeVar("T")
R = TypeVar("R")
CHUNK = 4
"""Tasks a process that are handed out together where an engine gives results only of all."""


def check_engine(engine: str) -> None:
    """Refuse an engine that is not installed, before any work is done.

    Raises:
        InputError: it is missing.
    """
    needed = {"local": "joblib", "ray": "ray", "dask": "distributed"}[engine]
    try:
        __import__(needed)
    except ImportError:
        raise InputError(f"--engine {engine} needs {needed}: pip install 'gemmule[{engine}]'") from None


@contextmanager
def _backend(engine: str, jobs: int, address: str) -> Iterator[bool]:
    """joblib's backend for the block; whether it gives results one by one."""
    import joblib

    if engine == "local":
        with joblib.parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
            yield True
    elif engine == "dask":
        from distributed import Client

        where: dict[str, Any] = {"address": address} if address else {
            "n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with Client(**where) as client, joblib.parallel_config(backend="dask", client=client, n_jobs=-1):
            yield True
    else:
        import ray
        from ray.util.joblib import register_ray

        ray.init(address=address or None, num_cpus=None if address else jobs, log_to_driver=False)
        register_ray()
        try:
            with joblib.parallel_config(backend="ray", n_jobs=jobs):
                yield False
        finally:
            ray.shutdown()


def evaluated(function: Callable[[T], R], tasks: Sequence[T], *, engine: str, jobs: int,
              address: str = "") -> Iterator[R]:
    """``function`` of every task, as they are done, in ``jobs`` processes or on the cluster at ``address``."""
    if not tasks:
        return
    import joblib

    with _backend(engine, jobs, address) as singly:
        if singly:
            yield from joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)(
                joblib.delayed(function)(task) for task in tasks)
            return
        for at in range(0, len(tasks), CHUNK * jobs):
            yield from joblib.Parallel()(joblib.delayed(function)(task) for task in tasks[at:at + CHUNK * jobs])
