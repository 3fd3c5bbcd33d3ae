"""Write every generated page and figure: ``python -m gemmule.sw.pages [ROOT]``; prints the ones that changed."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmule.sw.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
"""Of the repository, when it runs from a checkout."""


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    if not (root / "docs").is_dir():
        sys.exit(f"pages: {root} has no folder docs; run it in a checkout")
    for name, make in PAGES.items():
        path, text = root / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
