"""Generated pages are in step; links and commands of the documentation exist."""

import re
import runpy
from pathlib import Path

import pytest

from gemmule.sw.figures import system_svg
from gemmule.sw.isa_doc import render

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_isa_page_is_generated() -> None:
    assert (ROOT / "docs" / "isa.md").read_text() == render(), "run: python -m gemmule.sw.isa_doc docs/isa.md"


def test_figure_is_generated() -> None:
    assert (ROOT / "docs" / "img" / "system.svg").read_text() == system_svg()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_timing_page_names_every_constant() -> None:
    from dataclasses import fields

    from gemmule.timing import Timing

    text = (ROOT / "docs" / "timing.md").read_text()
    for field in fields(Timing):
        unit = field.name.removesuffix("_zero")
        assert field.name in text or (field.name.endswith("_zero") and unit in text), field.name


def test_readme_shows_real_output() -> None:
    readme = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    text = (ROOT / "README.md").read_text()
    assert readme["demo"]() in text, "run: python benchmarks/readme.py"
    assert readme["numbers"]() in text, "run: python benchmarks/readme.py"


def test_gemmini_page_names_real_tests() -> None:
    rows = re.findall(r"^\| (\d+) \|.*?\| (yes|part|no) \|(.*)\|$", (ROOT / "docs" / "gemmini.md").read_text(), re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, 51))
    named = [re.search(r"`(tests/[\w/]+\.py)::(\w+)`", rest) for _, has, rest in rows if has == "yes"]
    assert len(named) >= 34
    for found in named:
        assert found is not None
        assert re.search(rf"^ *(async )?def {found[2]}\b", (ROOT / found[1]).read_text(), re.M), found[0]
