"""Run the code of docs/tutorial.md, block by block: ``python examples/tutorial.py``."""

import re
from pathlib import Path

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"


def blocks() -> list[str]:
    """The Python blocks of the page, in order."""
    return re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), flags=re.DOTALL)


def main() -> None:
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks(), 1):
        print(f"--- block {number}")
        exec(compile(block, f"{TUTORIAL.name} block {number}", "exec"), namespace)


if __name__ == "__main__":
    main()
