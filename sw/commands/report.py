"""``gemmule report``: what `--json` of a generation or a bench says, as a page with figures."""

from __future__ import annotations

import json as reading
from pathlib import Path
from typing import Annotated, Any

import typer

from gemmule.sw.errors import InputError
from gemmule.sw.reports.files import write_file

__all__ = ["html_page", "report"]


def html_page(record: dict[str, Any]) -> str:
    """The page of a record.

    Raises:
        InputError: it is of another command.
    """
    from gemmule.sw.reports.generation import generation_page
    from gemmule.sw.reports.methods import bench_page

    pages = {"gemmule/generate/1": generation_page, "gemmule/bench/1": bench_page}
    make = pages.get(str(record.get("schema")))
    if make is None:
        raise InputError(f"a page can be made of {' and '.join(pages)}, not of {record.get('schema')!r}: give a file "
                         "that `gemmule generate` or `gemmule bench` wrote with --json")
    return make(record)


def report(
    file: Annotated[Path, typer.Argument(
        metavar="FILE", help="JSON file written by --json of `gemmule generate` or `gemmule bench`.")],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write: one self-contained file.")],
) -> None:
    """Make a page with figures of a generation or a bench.

    \b
    Examples:
      gemmule report build/demo.json --html build/demo.html
    """
    from gemmule.sw.records import check

    try:
        record = reading.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} must be a file that can be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file} must be JSON, as --json writes it: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{file} must hold one object, as --json writes it")
    check(record, str(file))
    write_file(html, html_page(record), "--html")
