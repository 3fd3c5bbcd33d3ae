"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: bytes | str, check: Callable[[Path], None] | None = None) -> None:
    """Write through a temporary file beside the target and a rename, so that no reader sees a part of it.

    Folders above are made. A symbolic link is followed; a device or pipe is written directly. Text is written as UTF-8.
    ``check`` reads the temporary file before it takes the target's place, and raises what speaks against it.

    Raises:
        OSError: it cannot be written; the target is as it was and no temporary file is left.
    """
    data = content.encode() if isinstance(content, str) else content
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        if check:
            check(Path(part))
        os.chmod(part, 0o666 & ~mask)  # what a plain open would give; mkstemp gives 600
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
