"""The commands of ``gemmule`` as one Typer application; a command's module is imported when it is used."""

from __future__ import annotations

import builtins
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gemmule import __version__

__all__ = ["COMMANDS", "app", "command_of"]

COMMANDS = {
    "generate": "Generate text with a bundled model; report the cycles.",
    "bench": "Decode held-out prompts by several methods; compare.",
    "serve": "Serve requests that arrive over time; report latency and throughput.",
    "tree": "Find the tree of candidates with the most tokens a cycle.",
    "import": "Quantise a Hugging Face checkpoint for the device.",
    "compile": "Compile an imported model; show what every pass produced.",
    "run": "Run a workload on the device.",
    "prune": "Choose a schedule that prunes the KV cache within a budget of quality.",
    "sweep": "Run workloads on many configurations; store every point.",
    "study": "Reproduce a published table or figure on this device.",
    "info": "Show a device's sizes and bandwidths, and what fits.",
    "cosim": "Run one program on RTL and model; compare everything.",
    "fuzz": "Compare RTL and model on random programs.",
    "mutate": "Plant faults in the RTL; count those that are detected.",
    "formal": "Prove properties of the RTL's units; find planted faults.",
    "verilog": "Write the device, or one unit, as Verilog.",
    "header": "Write a device's registers and commands as a C header.",
    "driver": "Write a decoder for a host in C; run it on the Verilog.",
    "synth": "Synthesise the RTL for an FPGA, place and route it.",
    "disasm": "List a compiled program or a program image.",
    "report": "Make a page with figures from a --json file.",
    "datastore": "Make the texts that --method retrieval drafts from.",
    "cache": "Show or clear the cache.",
}
"""Every command and its line in the list of commands. ``gemmule.sw.commands.NAME``, or ``.rtl.NAME`` of :data:`RTL`,
has a function, or a Typer application, of that name (a ``_`` behind a keyword or a function of Python's); what it needs
to run it imports when it runs, so that its help is quick."""
RTL = ("cosim", "fuzz", "mutate", "formal", "verilog", "header", "driver", "synth")
"""Commands about the RTL itself."""


def command_of(name: str) -> Any:
    """The command (click's) of one of :data:`COMMANDS`."""
    python = f"{name}_" if iskeyword(name) or hasattr(builtins, name) else name
    folder = "gemmule.sw.commands" + ".rtl" * (name in RTL)
    found = getattr(import_module(f"{folder}.{python}"), python)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    return command


class _Lazy(TyperGroup):
    """A group whose list, suggestions and completion need the table alone."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line, rich_markup_mode=None), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command_of(name) if name in COMMANDS else command, rest


app = typer.Typer(
    name="gemmule", cls=_Lazy, help="A transformer accelerator, its exact model and quantised speculative decoding.",
    rich_markup_mode=None, pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gemmule {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _gemmule(
    context: typer.Context,
    version: Annotated[bool, typer.Option(
        "--version", help="Print the version and exit.", callback=_version, is_eager=True)] = False,
) -> None:
    """A transformer accelerator, its exact model and quantised speculative decoding.

    \b
    Every command has --help with limits and examples; pages: docs/ of the repository.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
