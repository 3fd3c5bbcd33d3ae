"""docs/how-to-add-a-kv-policy.md: its example prints what it shows, its table names every operation."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from gemmule.sw.step import KV

PAGE = (Path(__file__).parents[2] / "docs" / "how-to-add-a-kv-policy.md").read_text("utf-8")


def test_the_example_prints_what_is_shown() -> None:
    code, _, rest = PAGE.partition("```python\n")[2].partition("```")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/how-to-add-a-kv-policy.md", "exec"), {})
    assert printed.getvalue() == rest.partition("```\n")[2].partition("```")[0]


def test_every_operation_is_told() -> None:
    for name in ("append", "commit", "truncate", "fork", "gather", "evict"):
        assert hasattr(KV, name)
        assert f"| `{name}(" in PAGE
