"""A page of its own: text, tables and bars in one HTML file, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["bars", "columns", "page", "paragraph", "preformatted", "stacked", "table"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5f6771; --line: #d9dde2; --back: #fff; --panel: #f5f6f8;
  --c0: #3465a4; --c1: #c4782b; --c2: #4e8a3e; --c3: #8a5a9e; --c4: #b33a3a; --c5: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3ad; --line: #3a4048; --back: #15181c;
  --panel: #1f2329; --c0: #79a8e0; --c1: #e0a566; --c2: #8cc47c; --c3: #c49ad6; --c4: #e58080; --c5: #9aa3ad; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 66rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p.soft, td.soft { color: var(--soft); }
pre { background: var(--panel); padding: 1rem; overflow-x: auto; white-space: pre-wrap; border-radius: 4px; }
pre b { color: var(--c0); font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin-top: .6rem; }
th, td { padding: .15rem .8rem .15rem 0; text-align: right; white-space: nowrap; }
th { font-weight: 600; border-bottom: 1px solid var(--line); } th:first-child, td:first-child { text-align: left; }
.bar { display: grid; grid-template-columns: 13rem 1fr 9rem; gap: .6rem; align-items: center; margin: .15rem 0; }
.bar .track { display: flex; height: 1rem; background: var(--panel); } .bar .track i { display: block; height: 100%; }
.bar .value { color: var(--soft); font-variant-numeric: tabular-nums; }
.legend span { margin-right: 1.2rem; } .legend i { display: inline-block; width: .8rem; height: .8rem;
  margin-right: .3rem; }
.columns { display: flex; align-items: flex-end; gap: .4rem; height: 9rem; margin-top: 1rem; }
.columns div { flex: 1; max-width: 4rem; display: flex; flex-direction: column; justify-content: flex-end;
  height: 100%; text-align: center; font-size: .8rem; color: var(--soft); }
.columns i { display: block; background: var(--c0); }
"""


def paragraph(text: str, soft: bool = False) -> str:
    """A paragraph."""
    return f'<p class="soft">{escape(text)}</p>' if soft else f"<p>{escape(text)}</p>"


def preformatted(text: str, new: str = "") -> str:
    """A text as it is, and what was added to it."""
    return f"<pre>{escape(text)}<b>{escape(new)}</b></pre>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is of words, the others of numbers."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def bars(rows: Sequence[tuple[str, float, str]], color: int = 0) -> str:
    """One bar a row: (label, length, what stands behind it)."""
    return stacked([(label, [value], text) for label, value, text in rows], (), color)


def stacked(rows: Sequence[tuple[str, Sequence[float], str]], names: Sequence[str], color: int = 0) -> str:
    """Bars of several parts on one scale, the names of the parts below."""
    most = max((sum(parts) for _, parts, _ in rows), default=0) or 1.0
    found = []
    for label, parts, text in rows:
        inner = "".join(f'<i style="width:{100 * part / most:.2f}%;background:var(--c{(color + i) % 6})"></i>'
                        for i, part in enumerate(parts))
        found.append(f'<div class="bar"><span>{escape(label)}</span><span class="track">{inner}</span>'
                     f'<span class="value">{escape(text)}</span></div>')
    if names:
        keys = "".join(f'<span><i style="background:var(--c{(color + i) % 6})"></i>{escape(name)}</span>'
                       for i, name in enumerate(names))
        found.append(f'<p class="legend">{keys}</p>')
    return "\n".join(found)


def columns(rows: Sequence[tuple[str, float, str]]) -> str:
    """Upright bars: (label below, height from 0 to 1, what stands above)."""
    return '<div class="columns">' + "".join(
        f'<div><span>{escape(text)}</span><i style="height:{80 * height:.1f}%"></i><span>{escape(label)}</span></div>'
        for label, height, text in rows) + "</div>"


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """The file: no script, nothing loaded from elsewhere."""
    body = "\n".join((f"<h2>{escape(name)}</h2>\n" if name else "") + content for name, content in sections)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
            f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n")
