"""Drawing: boxes, texts and arrows of the documentation's figures, in one style."""

from __future__ import annotations

from html import escape

__all__ = ["Drawing", "Point"]

Point = tuple[float, float]

_STYLE = (
    "text{font:13px 'DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1f2328;text-anchor:middle}"
    ".b{font-weight:bold}.s{font-size:10.5px;fill:#57606a}.t{font-size:9.5px;fill:#57606a}"
    ".l{text-anchor:start}.r{text-anchor:end}.h{font-size:15px;font-weight:bold;text-anchor:start}"
    "rect{fill:#f6f8fa;stroke:#57606a}"
    "rect.unit{fill:#ddf4ff;stroke:#0969da}rect.memory{fill:#fff8c5;stroke:#9a6700}"
    "rect.bus{fill:#dafbe1;stroke:#1a7f37}rect.list{fill:#fbefff;stroke:#8250df}"
    "rect.mark{fill:#ffebe9;stroke:#cf222e}"
    "rect.frame{fill:none;stroke:#8c959f;stroke-dasharray:5 4}rect.plain{fill:#fff;stroke:#8c959f}"
    "path{fill:none;stroke:#57606a;stroke-width:1.4}"
    "path.spm{stroke:#0969da}path.acc{stroke:#9a6700}path.bus{stroke:#1a7f37}path.list{stroke:#8250df}"
    "path.thin{stroke:#8c959f;stroke-width:1;stroke-dasharray:3 3}"
)
_COLOURS = {"": "#57606a", "spm": "#0969da", "acc": "#9a6700", "bus": "#1a7f37", "list": "#8250df"}


class Drawing:
    """An SVG of fixed size; what is added later lies on top."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "", *, name: str = "",
            title: str = "", lines: tuple[str, ...] = (), radius: int = 4) -> None:
        """A rectangle with a bold title and smaller lines, centred."""
        self.parts.append(f'<rect{_class(kind)}{_id(name)} x="{x:g}" y="{y:g}" width="{width:g}" '
                          f'height="{height:g}" rx="{radius}"/>')
        first = y + height / 2 + 4.5 - 7 * len(lines)
        if title:
            self.text(x + width / 2, first, title, "b")
        for i, line in enumerate(lines):
            self.text(x + width / 2, first + (15 if title else 0) + 14 * i, line, "s")

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(f'<text{_class(kind)} x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def arrow(self, *points: Point, kind: str = "", name: str = "", both: bool = False) -> None:
        """A line along the points, with a head at the last one (and the first one)."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        start = f' marker-start="url(#{kind or "plain"}-start)"' if both else ""
        self.parts.append(
            f'<path{_class(kind)}{_id(name)} d="{path}" marker-end="url(#{kind or "plain"}-end)"{start}/>')

    def line(self, *points: Point, kind: str = "") -> None:
        self.parts.append(f'<path{_class(kind)} d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}"/>')

    def svg(self) -> str:
        """The file."""
        markers = "".join(
            f'<marker id="{kind or "plain"}-{end}" markerWidth="8" markerHeight="8" refX="{ref}" refY="4" '
            f'orient="auto" markerUnits="userSpaceOnUse"><path d="{shape}" '
            f'style="fill:{colour};stroke:none"/></marker>'
            for kind, colour in _COLOURS.items()
            for end, ref, shape in (("end", 7, "M0 0.5L8 4L0 7.5z"), ("start", 1, "M8 0.5L0 4L8 7.5z")))
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">',
            f"<title>{escape(self.title)}</title>", f"<style>{_STYLE}</style>", f"<defs>{markers}</defs>",
            f'<rect width="{self.width}" height="{self.height}" style="fill:#fff;stroke:none"/>',
            *self.parts, "</svg>"]) + "\n"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _id(name: str) -> str:
    return f' id="{escape(name)}"' if name else ""
