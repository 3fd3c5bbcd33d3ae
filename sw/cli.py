"""The ``gemmule`` command: every error of the user's is one line and exit code 2."""

from __future__ import annotations

import signal
import sys

import typer

from gemmule.compiler.errors import CompileError
from gemmule.config import ConfigError
from gemmule.io.cache import CacheError
from gemmule.isa import IsaError
from gemmule.sim.errors import SimulationError
from gemmule.sw.commands.cache import cache_app
from gemmule.sw.commands.cosim import cosim
from gemmule.sw.commands.disasm import disasm
from gemmule.sw.commands.fuzz import fuzz
from gemmule.sw.commands.generate import generate
from gemmule.sw.commands.run import run_app
from gemmule.sw.commands.synth import synth
from gemmule.sw.commands.verilog import verilog
from gemmule.sw.device import DeviceError
from gemmule.sw.text import InputError

__all__ = ["app", "main"]

ERRORS = (CacheError, CompileError, ConfigError, DeviceError, InputError, IsaError, SimulationError)

app = typer.Typer(
    name="gemmule", help="A transformer accelerator, its exact model and quantised speculative decoding.",
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
)
for command in (generate, cosim, fuzz, verilog, synth, disasm):
    app.command()(command)
app.add_typer(run_app, name="run")
app.add_typer(cache_app, name="cache")


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary folders are removed
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # click's errors, whichever copy of click Typer carries
        if usage is None:
            raise
        print(f"error: {usage()}", file=sys.stderr)
        sys.exit(2)
