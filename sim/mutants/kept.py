"""Results by mutant in a file, a line each, so that a long run can go on later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically

__all__ = ["Kept"]


class Kept:
    """Results in ``path``, behind a line with ``key``, which says what they are of: those of other things are dropped.

    Members
    -------
    results: what is kept, by mutant; more by :meth:`add`.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self._lines = path, [json.dumps({"key": key})]
        try:
            head, *lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            head, lines = "", []
        self._lines += lines if [head] == self._lines else []
        self.results: dict[int, dict[str, Any]] = {}
        for line in self._lines[1:]:
            result = json.loads(line)
            self.results[result["number"]] = result

    def add(self, number: int, **result: Any) -> None:
        self.results[number] = {"number": number, **result}
        self._lines.append(json.dumps(self.results[number]))
        write_atomically(self.path, "\n".join(self._lines) + "\n")
