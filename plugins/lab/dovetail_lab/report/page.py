"""The page that all reports share: one file, no request, light and dark as the reader's system is.

Only the tables of a sweep have a script, which sorts them; all there is to read is there without it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from dovetail.errors import RunError
from dovetail.run.files import write_whole
from dovetail_lab.report.charts import color
from dovetail_lab.report.picture import CHART, COLORS

STYLE = """*{box-sizing:border-box}
body{font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;margin:0;color:var(--fg);background:var(--bg)}
main{max-width:1000px;margin:0 auto;padding:2.2rem 1.4rem 4rem}
h1{font-size:1.65rem;line-height:1.25;margin:0 0 .2rem;letter-spacing:-.01em}
h2{font-size:1.15rem;margin:2.6rem 0 .3rem}h3{font-size:.95rem;margin:1.2rem 0 .3rem}
p{margin:.3rem 0 .8rem;max-width:75ch}h1+p{max-width:none}.muted,.none,figcaption{color:var(--muted)}
a{color:var(--c1)}figure{margin:.6rem 0 0}figcaption{font-size:.87rem;margin:.2rem 0 0;max-width:85ch}
.verdict{border-left:5px solid;border-radius:6px;padding:.85rem 1.1rem;margin:1rem 0;font-size:1.1rem}
.verdict p{margin:.35rem 0 0;font-size:.95rem;max-width:none}.verdict strong{margin-right:.35rem}
.better{border-color:var(--good);background:var(--goodbg)}.worse{border-color:var(--red);background:var(--redbg)}
.equivalent,.undecided,.waiting{border-color:var(--quiet);background:var(--quietbg)}
.warn{border-color:var(--amber);background:var(--amberbg)}
.grid3{display:grid;grid-template-columns:repeat(auto-fill,minmax(270px,1fr));gap:.4rem 1.2rem}
.beside{display:grid;grid-template-columns:1fr 2fr;gap:1.2rem;align-items:start}
@media(max-width:720px){.beside{grid-template-columns:1fr}}
.grid3 figure{margin:.5rem 0}.grid3 .chart{max-width:380px}.grid3 b{font-weight:550;font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.5rem 0}
th{text-align:left;color:var(--muted);font-weight:550;border-bottom:1px solid var(--line);vertical-align:bottom}
td{border-bottom:1px solid var(--line);vertical-align:top}td,th{padding:.38rem .9rem .38rem 0}
th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:inherit}
th[aria-sort=descending] button::after{content:" ↓"}th[aria-sort=ascending] button::after{content:" ↑"}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.red,td.bad{color:var(--red);font-weight:600}td.red{background:var(--redbg)}td.changed{color:var(--amber)}
td.red,td.changed,td.same{padding-left:.6rem}td.good{color:var(--good)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.88rem;margin:.5rem 0 0}
.legend i,.dot{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.4em}
.bars .bar{display:grid;grid-template-columns:minmax(8rem,16rem) 1fr 3.5rem;gap:.6rem;align-items:center}
.bars span{overflow-wrap:anywhere}.bars i{height:.8rem;background:var(--c1);border-radius:2px}
.bars b{font-weight:550;text-align:right}.bars{font-size:.9rem}
.shares{display:flex;height:1.5rem;border-radius:4px;overflow:hidden;font-size:.8rem;color:#fff;margin:.4rem 0}
.shares span{overflow:hidden;white-space:nowrap;text-indent:.5rem;line-height:1.5rem;background:var(--s)}
code,pre{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}code{overflow-wrap:anywhere}
pre{background:var(--panel);padding:.8rem 1rem;border-radius:6px;overflow-x:auto;white-space:pre-wrap;margin:.5rem 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.2rem;font-size:.9rem;margin:.5rem 0}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
.episode{border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem .1rem;margin:.8rem 0}
.said{margin:0 4rem .5rem 0}.said.ours{margin:0 0 .5rem 4rem}.said b{font-size:.8rem;font-weight:550;color:var(--muted)}
.said pre{margin:.1rem 0;padding:.4rem .7rem}.said.ours pre{background:var(--goodbg)}
.worth{float:right;font-size:.8rem;font-variant-numeric:tabular-nums}.worth::before{content:"reward "}
@media(max-width:720px){.said{margin-right:1rem}.said.ours{margin-left:1rem}}
@media(prefers-color-scheme:dark){.shares{color:#10141a}}
@media print{main{max-width:none}}
"""


@attrs.frozen
class Cell:
    """A cell of a table: text, a class of `STYLE` (`n` for numbers, `red`, ...), and what stands behind it."""

    text: str
    kind: str = ""
    title: str = ""
    value: float | None = None
    """What a table is sorted by, where that is not the text."""


def escape(text: str) -> str:
    """Return text for HTML; a percent sign stays with its number."""
    return html.escape(text.replace(" %", "\u00a0%"))


HIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no page shows: control characters, what turns the direction of text around, halves of surrogate pairs."""


def page(title: str, subtitle: str, content: Iterable[str]) -> str:
    """Return the whole file; `HIDDEN` characters, which a policy or a stranger's folder may hold, become visible."""
    body = "\n".join(content)
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{COLORS}{STYLE}{CHART}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="muted">{escape(subtitle)}</p>\n{body}\n</main>\n</body>\n</html>\n'
    )
    return HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


SORTING: Final = """<script>
for (const head of document.querySelectorAll("table.sortable th")) {
  const button = document.createElement("button")
  button.append(...head.childNodes)
  head.append(button)
  button.onclick = () => {
    const body = head.closest("table").tBodies[0], down = head.getAttribute("aria-sort") !== "descending"
    const value = row => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], [m, n] = [parseFloat(x), parseFloat(y)]
      if (isNaN(m) !== isNaN(n)) return isNaN(m) ? 1 : -1
      return (isNaN(m) ? x.localeCompare(y) : m - n) * (down ? -1 : 1)
    }
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort")
    head.setAttribute("aria-sort", down ? "descending" : "ascending")
    body.append(...[...body.rows].sort(order))
  }
}
</script>"""
"""Lets a click on a heading sort its table; without scripts the tables stand as they are."""


def section(title: str, *content: str) -> str:
    """Return a part with a heading; nothing for no content."""
    inner = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{inner}\n</section>" if inner else ""


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def box(kind: str, word: str, text: str, notes: Sequence[str]) -> str:
    """Return a highlighted statement that begins with a strong word, with notes below it."""
    return (
        f'<div class="verdict {kind}"><strong>{escape(word.capitalize())}.</strong>{escape(text)}'
        f"{''.join(paragraph(note) for note in notes)}</div>"
    )


def figure(chart: str, caption: str = "", title: str = "", in_full: str = "") -> str:
    """Return a chart with what it is called above, `in_full` for who points at it, and how to read it below."""
    head = f"<b{_pointed_at(in_full)}>{escape(title)}</b>" if title else ""
    foot = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}{chart}{foot}</figure>"


def legend(names: Iterable[tuple[str, int] | tuple[str, int, str]]) -> str:
    """Return the key of a chart: labels with the numbers of their colours, and what is said to who points at one."""
    labels = (f"<span{_pointed_at(*more)}>{key(index)}{escape(name)}</span>" for name, index, *more in names)
    return f'<div class="legend">{"".join(labels)}</div>'


def _pointed_at(text: str = "") -> str:
    return f' title="{escape(text)}"' if text else ""


def key(index: int) -> str:
    """Return a square of a colour."""
    return f'<i class="dot" style="background:{color(index)}"></i>'


def table(head: Sequence[str | Cell], rows: Iterable[Sequence[str | Cell]], *, sortable: bool = False) -> str:
    """Return a table; texts are escaped. One that is `sortable` needs `SORTING` on its page."""
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>\n" for row in rows)
    top = "".join(_cell("th", cell) for cell in head)
    kind = ' class="sortable"' if sortable else ""
    return f'<div class="scroll"><table{kind}>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def _cell(tag: str, cell: str | Cell) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    kind = ' scope="col"' if tag == "th" else ""
    kind += f' class="{cell.kind}"' if cell.kind else ""
    value = f' data-value="{cell.value!r}"' if cell.value is not None else ""
    return f"<{tag}{kind}{_pointed_at(cell.title)}{value}>{escape(cell.text)}</{tag}>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of terms and what they are."""
    return "<dl>" + "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs) + "</dl>"


def write(path: Path, text: str) -> None:
    """Write a report.

    Raises:
        RunError: if it cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"'{path}' cannot be written: {error.strerror or error}") from error
