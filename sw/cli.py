"""The entry of ``gemmule``: exit codes, signals, output that cannot be written.

Every error of the user's is one line and exit code 2. An interrupt is one line at any moment: this file loads nothing
that the interpreter has not loaded, all else comes inside ``main``.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any, TextIO

__all__ = ["main"]

ERRORS = {
    "gemmule.compiler.errors": "CompileError", "gemmule.config": "ConfigError", "gemmule.io.cache": "CacheError",
    "gemmule.isa": "IsaError", "gemmule.sim.errors": "SimulationError", "gemmule.sw.device.backends": "DeviceError",
    "gemmule.sw.errors": "InputError",
}
"""Errors that a user can mend, by module. What is not loaded has not been raised, and is not loaded for this."""
OF_THE_MACHINE = (
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO,
    errno.ENAMETOOLONG, errno.ENOMEM,
)
MOST_LINE = 400
"""Characters of an error; its middle is left out beyond that: a value may be of any length."""
FAILED, REFUSED, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141
"""Exit codes; the last two are what a shell says of a program that SIGINT or SIGPIPE ended."""


class _Watched:
    """A stream that never stops a command: its files are written even where nobody reads its words.

    What the encoding lacks is written as its escape. Why it could not be written is remembered, and told at the end.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is None:
            try:
                self._encoded(text)
            except OSError as error:
                self.error = error
        return len(text)

    def _encoded(self, text: str) -> None:
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            encoding = self.stream.encoding
            self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def main() -> None:
    """Entry point of the console script."""
    try:
        code = _main(sys.argv[1:])
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not interrupt the end, ..
        _end(INTERRUPTED, "interrupted")
        os._exit(INTERRUPTED)  # .. nor the interpreter's, which takes the handler back; all blocks have been left
    sys.exit(code)


def _main(arguments: list[str]) -> int:
    """Exit code of the command, with signals and standard output looked after."""
    import signal

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    stdout, stderr = sys.stdout, sys.stderr
    watched = _Watched(stdout)
    hook = sys.unraisablehook
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number, handler in before.items():
            if handler == signal.SIG_DFL:  # nohup ignores SIGHUP: so do we
                signal.signal(number, _terminate)
        sys.unraisablehook = lambda lost: _redeliver(lost, hook)
        if arguments[:1] == ["import"]:
            _steady(arguments)
        sys.stdout, sys.stderr = watched, _Watched(stderr)  # type: ignore[assignment]
        return _guarded(arguments, watched)
    finally:
        sys.stdout, sys.stderr, sys.unraisablehook = stdout, stderr, hook
        for number, handler in before.items():
            signal.signal(number, handler)
        for stream in (sys.stdout, sys.stderr):
            _settle(stream)


def _steady(arguments: list[str]) -> None:
    """Begin again as a process whose arithmetic does not depend on the machine, where that makes a difference."""
    from gemmule.io.steady import environment, is_steady

    if not is_steady() and not {"-h", "--help"}.intersection(arguments):
        os.execve(sys.executable, [sys.executable, "-P", "-m", "gemmule", *arguments], environment())


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that simulators and temporary folders go too."""
    raise SystemExit(128 + number)


def _redeliver(lost: Any, other: Callable[[Any], object]) -> None:
    """A signal inside a destructor or a callback, where nobody can catch what it raises, comes again a moment later."""
    import signal

    def again(number: int, frame: FrameType | None) -> None:
        raise type(lost.exc_value)(*lost.exc_value.args)

    if isinstance(lost.exc_value, (KeyboardInterrupt, SystemExit)):
        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        other(lost)


def _guarded(arguments: list[str], output: _Watched) -> int:
    """Exit code of the command, or of the error that ended it; its line is on standard error.

    Words that could not be written are an error, too.
    """
    code = _ended(arguments)
    output.flush()
    if output.error is None or code == REFUSED:
        return code
    if isinstance(output.error, BrokenPipeError):
        return CLOSED_PIPE
    return _end(REFUSED, f"error: standard output cannot be written: {output.error.strerror}")


def _ended(arguments: list[str]) -> int:
    """Exit code of the command, or of the error that ended it."""
    try:
        return _run(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except MemoryError:
        return _end(REFUSED, "error: not enough memory; use a smaller shape or --timing-only")
    except Exception as error:
        if isinstance(error.__cause__, (KeyboardInterrupt, SystemExit)):  # Python 3.11 wraps it in a class's making
            raise error.__cause__ from None
        words = _words(error)
        if words is None:
            raise
        return _end(*words)


def _run(arguments: list[str]) -> int:
    import typer

    from gemmule.sw.commands.shared.group import app

    command: Any = typer.main.get_command(app)
    if "_GEMMULE_COMPLETE" in os.environ:
        command.main(arguments, prog_name="gemmule")
    try:
        with command.make_context("gemmule", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return 0


def _words(error: Exception) -> tuple[int, str] | None:
    """Exit code and line of an error; None: a mistake of ours, to be shown with its traceback."""
    known = tuple(getattr(sys.modules[module], name) for module, name in ERRORS.items() if module in sys.modules)
    if isinstance(error, known):
        return REFUSED, f"error: {error}"
    if isinstance(error, OSError) and (error.errno is None or error.errno in OF_THE_MACHINE):
        name = f"{error.filename}: " if error.filename else ""
        return REFUSED, f"error: {name}{error.strerror or error}"
    usage = getattr(error, "format_message", None)  # click's errors, whichever copy of click Typer carries
    if usage is None:
        return None
    text, parsed, kind = usage().partition("Input should be a valid ")  # Typer's words for what it could not read
    return REFUSED, f"error: {text}must be a valid {kind.partition(',')[0]}" if parsed else f"error: {text}"


def _end(code: int, line: str) -> int:
    if line:
        from gemmule.io.reading import brief

        try:
            print(brief(" ".join(line.split()), MOST_LINE), file=sys.stderr, flush=True)
        except OSError:
            return code  # nobody listens
    return code


def _settle(stream: TextIO) -> None:
    """Write what is left; if it cannot be, lose it now and not with a complaint of the interpreter at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
