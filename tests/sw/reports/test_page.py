"""Pages: what a generation and a bench say, in one file without anything from elsewhere."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gemmule.sw.reports import page

from ..test_cli import run


class Reader(HTMLParser):
    """Elements that are open, and the words."""

    VOID = ("meta", "br", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(content: str) -> str:
    reader = Reader()
    reader.feed(content)
    assert not reader.open
    assert not reader.links
    assert "url(" not in content
    assert "@import" not in content
    return " ".join(reader.words)


@pytest.fixture
def figures() -> Any:
    """The tables and bars of the pages."""
    return page.environment().get_template("figures.html").module


def test_words_are_escaped(figures: Any) -> None:
    content = (figures.bars([("<i>", [1], "<b>")], ["&"]) + figures.columns([("</div>", 1, "<")])
               + figures.table(page.Table(["<script>"], [[">"]])))
    words = read(content)
    assert "<script>" in words
    assert "<script>" not in content


def test_bars_are_on_one_scale(figures: Any) -> None:
    content = figures.bars([("a", [1, 1], "2"), ("b", [4], "4")], ("one", "two"))
    assert [part.split("%")[0] for part in content.split("width:")[1:]] == ["25.00", "25.00", "100.00"]
    assert figures.bars([("none", [0], "0")]).count("width:0.00%") == 1
    assert "width" not in figures.bars([])


def test_reports_of_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompt.txt").write_text("x = <1>\n")
    assert run(monkeypatch, "generate", "--model", "small", "--prompt-file", "prompt.txt", "--max-new-tokens", "6",
               "--json", "a.json", "--html", "a.html", "--trace", "a.json.gz") == 0
    record, words = json.loads(Path("a.json").read_text()), read(Path("a.html").read_text())
    assert f"{record['cycles']:,}" in words
    assert f"{record['ar']['cycles_per_token']:,.0f}" in words
    assert "x = <1>" in words
    assert run(monkeypatch, "report", "a.json", "--html", "again.html") == 0
    assert Path("again.html").read_text() == Path("a.html").read_text()
    assert Path("a.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert run(monkeypatch, "bench", "--model", "small", "--prompt-file", "prompt.txt", "--max-new-tokens", "4",
               "--num-speculative-tokens", "2", "--json", "b.json", "--html", "b.html") == 0
    assert f"{json.loads(Path('b.json').read_text())['rows'][0]['speedup_over_ar']:.2f}x" in read(
        Path("b.html").read_text())
    for content, message in (("{", "must be JSON"), ("[]", "must hold one object"), ("{}", "not of schema ''"),
                             (json.dumps(record | {"cycles": "many"}), "cycles does not follow gemmule/generate/1"),
                             (json.dumps({**record, "schema": "gemmule/cosim/1"}), "does not follow gemmule/cosim/1")):
        Path("wrong.json").write_text(content)
        capsys.readouterr()
        assert run(monkeypatch, "report", "wrong.json", "--html", "wrong.html") == 2
        assert message in capsys.readouterr().err
        assert not Path("wrong.html").exists()
