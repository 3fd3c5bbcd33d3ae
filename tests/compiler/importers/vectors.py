"""Logits of transformers at some places, committed so that `make test` can compare without it.

    python -m tests.compiler.importers.vectors        (with the extra parity installed)
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from .cases import CASES, theirs

FILE = Path(__file__).parent / "vectors" / "logits.json"
ROWS, COLUMNS = slice(3, None, 12), slice(5, None, 71)
"""Which rows and columns of the logits are kept."""


def sample(logits: np.ndarray) -> np.ndarray:
    """The kept places  # [4, 15]; of an encoder's few columns every seventh."""
    return logits[ROWS, COLUMNS if logits.shape[1] > 500 else slice(2, None, 7)]


def digest(folder: Path) -> str:
    """What the logits are those of."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def vectors() -> dict[str, tuple[str, np.ndarray]]:
    """Digest of the directory and kept logits by case."""
    return {label: (entry["digest"], np.array(entry["logits"])) for label, entry in
            json.loads(FILE.read_text())["cases"].items()}


def main() -> None:
    """Compute them again."""
    import torch
    import transformers
    found = {}
    with tempfile.TemporaryDirectory() as top:
        for number, case in enumerate(CASES):
            folder = case.write(Path(top) / str(number))
            rows = [[float(f"{value:.6g}") for value in row] for row in sample(theirs(folder))]
            found[case.label] = {"digest": digest(folder), "logits": rows}
    FILE.parent.mkdir(exist_ok=True)
    text = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "cases": found})
    FILE.write_text(text.replace('"logits": [[', '"logits": [\n[').replace("], [", "],\n[").replace("}, ", "},\n")
                    + "\n")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
