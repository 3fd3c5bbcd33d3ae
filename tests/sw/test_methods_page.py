"""Pages of decoding methods: drawings of trees, masks and time lines; what each page has."""

from __future__ import annotations

import pytest

from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.tree import Extra, Tree
from gemmule.sw.pages.drafts import BY_MODELS, drawing_of, mask_lines, time_line, tree_lines
from gemmule.sw.pages.methods import method_page, methods_page

TREE = Tree([7, 1, 2, 3], [-1, 0, 1, 0], extra=[Extra(4, 2, (0, 3))])


def test_a_tree_and_its_mask() -> None:
    assert tree_lines(TREE, str) == ["7  (pending)", "├─ 1", "│  └─ 2", "└─ 3"]
    assert mask_lines(TREE, str) == [
        "7 +0  # . . . .", "1 +1  # # . . .", "2 +2  # # # . .", "3 +1  # . . # .", "4 +2  # . . # #"]


def test_a_time_line() -> None:
    assert time_line([("small", 2, "##")], 3) == [
        " 1  small           ##", " 2  small           ##", " 3  target, 3 rows  ########"]


@pytest.mark.parametrize("name", METHODS)
def test_every_page(name: str) -> None:
    """Those that no model drafts for propose something in their drawings, and time lines have all drafts."""
    page, method, drawing = method_page(name), METHODS[name], drawing_of(name)
    for option in method.every_option():
        assert f"| `{option.name}` |" in page
    assert f"(decoding/{name}.md)" in methods_page()
    assert drawing in page
    if name in BY_MODELS:
        passes = sum(count for _, count, _ in BY_MODELS[name])
        assert len(drawing.splitlines()) == 2 + passes + (not method.needs_streams)  # streams verify in their own
    elif drawing:
        assert drawing.count("─ ") >= 1
