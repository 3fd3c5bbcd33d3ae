"""docs/decoding.md: its methods are those that there are, its example prints what it shows."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from gemmule.sw.decoding.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text("utf-8")


def test_every_method_is_told() -> None:
    """On the page of methods, to which this one leads."""
    assert "[methods.md](methods.md)" in PAGE
    listed = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
    rows = [line.split("|")[1].strip() for line in listed.splitlines() if line.startswith("| [`")]
    assert set(rows) == {f"[`{name}`](decoding/{name}.md)" for name in METHODS}


def test_the_example_prints_what_is_shown() -> None:
    code, _, rest = PAGE.partition("```python\n")[2].partition("```")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/decoding.md", "exec"), {})
    assert printed.getvalue() == rest.partition("```\n")[2].partition("```")[0]
