"""Locks that end with the processes that hold them, however these end."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gemmule.io.progress import working

__all__ = ["Lock", "acquire", "exclusive"]


class Lock:
    """A file or folder that is locked (flock) until :meth:`close`, or until every process that has ``handle`` is dead.

    A child process has it when the handle is passed on (``pass_fds``).
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def close(self) -> None:
        """Give it back; again has no effect."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __del__(self) -> None:
        self.close()


def _open(path: Path, shared: bool, create: bool) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:  # network file systems want a writer for a lock that excludes others
        return os.open(path, flags | (os.O_RDONLY if shared else os.O_RDWR) | (os.O_CREAT if create else 0), 0o666)
    except IsADirectoryError:
        return os.open(path, flags | os.O_RDONLY | os.O_DIRECTORY)


def acquire(path: Path, *, shared: bool = False, wait: bool = True, create: bool = True) -> Lock | None:
    """Lock what lies at ``path``, an empty new file if nothing does and ``create`` is set.

    The holder of an exclusive lock may remove or rename what it has locked: who waited for it looks again at ``path``.

    Returns:
        None: another process has it (only without ``wait``), or there is nothing (only without ``create``).

    Raises:
        OSError: it cannot be made, opened or locked.
    """
    while True:
        try:
            lock = Lock(_open(path, shared, create))
        except FileNotFoundError:
            if create:
                raise
            return None
        try:
            fcntl.flock(lock.handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            lock.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.handle), os.stat(path, follow_symlinks=False)):
                return lock
        lock.close()


@contextlib.contextmanager
def exclusive(path: Path, what: str = "") -> Iterator[None]:
    """Hold a lock file, so that two processes do not build the same thing at once; whoever waits says for ``what``."""
    lock = acquire(path, wait=False)
    if lock is None:
        with working(f"waiting for another process, which builds {what}"):
            lock = acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if lock:
            lock.close()
