"""The tutorials' code runs as printed and prints what the pages show; its claims hold (it asserts them)."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = runpy.run_path(str(ROOT / "examples" / "tutorial.py"))


@pytest.mark.parametrize(("name", "blocks"), [("product", 12), ("speculation", 7)])
def test_page_shows_what_its_code_prints(name: str, blocks: int) -> None:
    page = TUTORIAL["TUTORIALS"][name].read_text()
    assert len(TUTORIAL["blocks"](page)) >= blocks
    printed = list(TUTORIAL["outputs"](page))
    assert TUTORIAL["filled"](page, printed) == page, f"run: python examples/tutorial.py {name} --write"


def test_outputs_go_behind_their_blocks() -> None:
    page = "a\n\n```python\nx = 2\n```\n\nb\n\n```python\nprint(x + 1)\n```\n\n```text\n7\n```\n\nc\n"
    printed = list(TUTORIAL["outputs"](page))
    assert printed == ["", "3\n"]
    made = TUTORIAL["filled"](page, printed)
    assert made == page.replace("7", "3")
    assert TUTORIAL["filled"](made, printed) == made
