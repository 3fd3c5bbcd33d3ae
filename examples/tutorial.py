"""Run the code of a tutorial in docs, block by block, and print what each block prints.

    python examples/tutorial.py                # docs/tutorial.md
    python examples/tutorial.py speculation    # docs/tutorial-speculation.md
    python examples/tutorial.py --write        # and put the outputs into the page, behind their blocks
"""

import argparse
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
TUTORIALS = {"product": DOCS / "tutorial.md", "speculation": DOCS / "tutorial-speculation.md"}
BLOCK = re.compile(r"(```python\n)(.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def blocks(page: str) -> list[str]:
    """The Python blocks of the page, in order."""
    return [found[2] for found in BLOCK.finditer(page)]


def outputs(page: str) -> Iterator[str]:
    """What each block prints, all in one session."""
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks(page), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"block {number}", "exec"), namespace)
        yield printed.getvalue()


def filled(page: str, printed: list[str]) -> str:
    """The page with every block's output behind it; a block that prints nothing has none."""
    left = iter(printed)

    def with_output(found: re.Match[str]) -> str:
        output = next(left)
        return f"{found[1]}{found[2]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    return BLOCK.sub(with_output, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=tuple(TUTORIALS), default="product")
    parser.add_argument("--write", action="store_true", help="put the outputs into the page")
    args = parser.parse_args()
    path = TUTORIALS[args.name]
    page, printed = path.read_text(), []
    for number, output in enumerate(outputs(page), 1):
        print(f"--- block {number}\n{output}", end="", flush=True)
        printed.append(output)
    if args.write:
        path.write_text(filled(page, printed))


if __name__ == "__main__":
    main()
