"""Results of a long run that is to go on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

__all__ = ["Finished"]


class Finished:
    """Results that an interrupted run has, one a line of a file; those of other settings are left alone."""

    def __init__(self, path: Path | None, settings: Any) -> None:
        self.path = path
        self.settings = sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self.known: dict[str, list[dict[str, Any]]] = {}
        if path and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    kept = json.loads(line)
                    if kept["settings"] == self.settings:
                        self.known[kept["key"]] = kept["results"]
                except (ValueError, KeyError, TypeError):
                    continue  # a line that an interruption cut

    def _whole(self) -> bool:
        """Whether the last line has an end: one that was cut has none."""
        assert self.path is not None
        return self.path.read_bytes()[-1:] in (b"", b"\n")

    def of(self, key: str, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The results of ``key``, made and kept where they are not there yet."""
        if key not in self.known:
            self.known[key] = make()
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("" if self._whole() else "\n")
                    file.write(json.dumps({"settings": self.settings, "key": key, "results": self.known[key]}) + "\n")
        return self.known[key]
