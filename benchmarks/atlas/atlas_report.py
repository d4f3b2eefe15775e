"""`atlas.html`: all tests of an atlas on one page, made of their folders alone, also while it runs.

python benchmarks/atlas/atlas_report.py runs/atlas
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from dovetail_lab.ab.analysis import Analysis
from dovetail_lab.ab.comparison import differences
from dovetail_lab.ab.experiment import REPORT, stored
from dovetail_lab.ab.page import doubts, verdicts
from dovetail_lab.ab.pictures import small_curves
from dovetail_lab.ab.registration import FILE
from dovetail_lab.ab.verdict import Verdict
from dovetail_lab.ab.words import counted, lengths
from dovetail_lab.report.charts import both
from dovetail_lab.report.page import escape, figure, page, paragraph, section, write

LEFT_OUT = "left_out.json"
"""Which components a family leaves out, each with the reason, in the folder of its test."""
PAGE = "atlas.html"


def render(folder: Path, names: Iterable[str]) -> str:
    """Return the page.

    Args:
        folder: of the atlas.
        names: families in the order in which a task's tests are shown; others follow.
    """
    place = {name: index for index, name in enumerate(names)}
    found = [record.parent for record in folder.glob(f"*/*/{FILE}")]
    found.sort(key=lambda test: (test.parent.name, place.get(test.name, len(place)), test.name))
    tests = {test.relative_to(folder).as_posix(): stored(test) for test in found}
    runs = sum(len(analysis.seeds) * len(analysis.comparisons) for analysis in tests.values())
    subtitle = (
        f"{counted(len(tests), 'test')}, {counted(runs, 'pair')} of runs; each test has Holm's adjustment over its arms"
    )
    overview = "".join(f"<li>{_line(name, analysis)}</li>" for name, analysis in tests.items())
    return page("Atlas", subtitle, [f"<ul>{overview}</ul>", *(_test(folder, *each) for each in tests.items())])


def _line(name: str, analysis: Analysis) -> str:
    """A link to a test, with how many arms have which verdict."""
    reached = [each.verdict for each in analysis.comparisons.values()]
    counts = [f"{reached.count(verdict)} {verdict}" for verdict in Verdict.__args__ if verdict in reached]
    return f'<a href="#{escape(name)}">{escape(_title(name))}</a>: {escape(", ".join(counts) or "not yet")}'


def _title(name: str) -> str:
    return name.replace("/", ", ")


def _test(folder: Path, name: str, analysis: Analysis) -> str:
    """A test: what is compared, the verdicts, the forest plot, and a small chart of each arm's curve."""
    design = analysis.registration.design
    better = "higher" if design.goal == "max" else "lower"
    arms, pairs = counted(len(design.treatments), "arm"), counted(len(analysis.seeds), "pair")
    about = (
        f"{design.metric} ({better} is better), mean of {design.window.text}; {arms} against {design.control.name},"
        f" {pairs}, {lengths(analysis.registration)}. "
    )
    link = f'<a href="{escape(name)}/{REPORT}">The page of the test</a>'
    content = [f"<p>{escape(about)}{link}.</p>", *doubts(analysis), *verdicts(analysis)]
    if analysis.look and analysis.comparisons:
        caption = f"Mean paired difference against {design.control.name} with its 95 % t interval; right is better."
        content += [figure(both(lambda width: differences(analysis, width)), caption), small_curves(analysis)]
    content.append(_left_out(folder / name / LEFT_OUT))
    return f'<div id="{escape(name)}">\n{section(_title(name), *content)}\n</div>'


def _left_out(file: Path) -> str:
    """What the family leaves out, with the reasons; components of the same reason together."""
    left_out: Mapping[str, str] = json.loads(file.read_text()) if file.exists() else {}
    reasons: dict[str, list[str]] = {}
    for name, why in left_out.items():
        reasons.setdefault(why, []).append(name)
    return "".join(paragraph(f"Left out: {', '.join(names)}: {why}", "muted") for why, names in reasons.items())


if __name__ == "__main__":
    where = Path(sys.argv[1])
    write(where / PAGE, render(where, ()))
