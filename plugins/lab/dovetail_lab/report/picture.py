"""Charts in a file of their own, an SVG that follows the light or dark of the reader's system; the colours of all."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

COLORS: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--muted:#5c6670;--line:#e2e6ea;--panel:#f6f8fa;--red:#c62f3b;
--redbg:#fdebec;--amber:#8a5a00;--amberbg:#fdf3dc;--good:#157a4a;--goodbg:#e3f5ea;--quiet:#4b5966;--quietbg:#edf0f3;
--c0:#6b7785;--c1:#0b6bcb;--c2:#d1560b;--c3:#0a8f6a;--c4:#a4458f;--c5:#8a6d00;--c6:#0e8fa3;--c7:#7a4fd0}
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e4e8ec;--muted:#98a3ae;--line:#2a3138;--panel:#1a2027;
--red:#ff7b82;--redbg:#43191d;--amber:#f2c063;--amberbg:#3a2d11;--good:#5fd39a;--goodbg:#11362460;--quiet:#b4bfca;
--quietbg:#252c34;--c0:#9aa6b2;--c1:#58a6ff;--c2:#ff9a5c;--c3:#4cc9a0;--c4:#e08bd0;--c5:#d9b847;--c6:#56cbdc;
--c7:#b392f0}}
"""

CHART: Final = """
.chart{width:100%;height:auto;display:block}.chart text{font-size:12px;fill:var(--muted)}
.chart .mid{text-anchor:middle}.chart .end{text-anchor:end}.chart .strong{fill:var(--fg);font-weight:550}
.chart .grid{stroke:var(--line);fill:none}.chart .zero{stroke:var(--muted);fill:none;stroke-width:1.2}
.chart .band{fill:var(--muted);opacity:.14}.chart .interval{opacity:.17}
.chart .line{fill:none;stroke-width:2.2;stroke-linejoin:round}.chart .thin{fill:none;stroke-width:1;opacity:.28}
.chart.narrow{display:none;max-width:560px}
@media(max-width:760px){.chart.wide{display:none}.chart.narrow{display:block}}
.chart .axis{stroke:var(--line);fill:none;stroke-width:1.2}.chart .path{fill:none;stroke-width:1.6;opacity:.75}
.chart .over{paint-order:stroke;stroke:var(--bg);stroke-width:5px;stroke-linejoin:round}
.chart .lane{fill:var(--panel)}.chart .in{fill:var(--bg);pointer-events:none}
.chart .bar{stroke-width:2.4;fill:none}.chart .slope{stroke-width:1.8;fill:none;opacity:.85}
"""

TITLE: Final = """
svg{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}.page{fill:var(--bg)}
.title{font-size:16px;font-weight:600;fill:var(--fg)}.heading{font-size:13px;fill:var(--fg)}
"""

MARGIN: Final = 16.0
HEADING: Final = 34.0
NAMESPACE: Final = "http://www.w3.org/2000/svg"


def picture(title: str, charts: Sequence[tuple[str, str]]) -> str:
    """Return an SVG file of charts, each below its heading.

    Args:
        title: what stands above all.
        charts: headings, and charts of one width as the functions of `dovetail_lab.report.charts` return them.
    """
    drawn = [(heading, ET.fromstring(chart)) for heading, chart in charts]
    sizes = [tuple(map(float, chart.get("viewBox", "").split()[2:])) for _, chart in drawn]
    width = max(width for width, _ in sizes) + 2 * MARGIN
    root = ET.Element("svg", {"xmlns": NAMESPACE, "role": "img", "aria-label": title})
    ET.SubElement(root, "style").text = COLORS + CHART + TITLE
    ET.SubElement(root, "rect", {"class": "page", "width": "100%", "height": "100%"})
    _write(root, title, "title", HEADING)
    y = HEADING
    for (heading, chart), (wide, high) in zip(drawn, sizes, strict=True):
        _write(root, heading, "heading", y + HEADING)
        y += HEADING + MARGIN
        for name, value in (("x", MARGIN), ("y", y), ("width", wide), ("height", high)):
            chart.set(name, f"{value:.0f}")
        # the width of a page, which the class has, is not that of a part of a picture
        chart.set("style", f"width:{wide:.0f}px;height:{high:.0f}px")
        root.append(chart)
        y += high
    root.set("viewBox", f"0 0 {width:.0f} {y + MARGIN:.0f}")
    return ET.tostring(root, encoding="unicode") + "\n"


def _write(root: ET.Element, text: str, kind: str, y: float) -> None:
    ET.SubElement(root, "text", {"class": kind, "x": f"{MARGIN:.0f}", "y": f"{y:.0f}"}).text = text
