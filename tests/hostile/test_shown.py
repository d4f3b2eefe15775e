"""What a policy, a data set or a stranger's folder brings is shown without becoming a command of what shows it."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import printable
from dovetail.host.prompts import LengthReport, Limit
from dovetail_lab.evaluation.report import Report
from dovetail_lab.evaluation.statistics import estimate
from dovetail_lab.report.page import Cell, facts, figure, legend, page, paragraph, section, table
from dovetail_lab.sweep.progress import Lines

EVIL = {
    "colours": "\x1b[31mred",
    "the title of a terminal": "\x1b]0;title\x07",
    "a clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "one byte for an escape": "\x9b31m",
    "a null byte": "a\x00b",
    "a backspace": "safe\x08\x08\x08\x08evil",
    "a line that is written over": "error\rfine",
    "text turned around": "user\u202egnp.exe",
    "an isolate": "\u2066a\u2069",
    "half of a surrogate pair": "\ud800",
    "a script": "</script><script>alert(1)</script>",
    "the end of a text": "</pre></td></title><script>alert(1)</script>",
    "an attribute": "\" onmouseover='alert(1)' x=\"",
    "an image": "<img src=x onerror=alert(1)>",
    "a drawing": "<svg/onload=alert(1)>",
    "an entity": "&lt;script&gt;&#x3c;script&#x3e;",
    "a line separator": "a\u2028b\u2029c\x85d",
}
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Seen(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))


def elements(text: str) -> list[tuple[str, tuple[str, ...]]]:
    seen = Seen()
    seen.feed(text)
    return seen.found


def everything(text: str) -> str:
    """Return a page that has a text in every place that takes one."""
    cells = [[Cell(text, title=text), Cell(text)]]
    return page(
        text,
        text,
        [
            section(text, paragraph(text), table([Cell(text), Cell(text)], cells), facts([(text, text)])),
            figure("", title=text, caption=text),
            legend([(text, 0)]),
        ],
    )


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_a_page_shows_it_as_text(text):
    made = everything(text)
    assert elements(made) == elements(everything("plain"))
    assert made.encode()
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", made)


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_a_terminal_gets_no_command(text, capsys):
    assert not HIDDEN.search(printable(text))
    Lines().say(f"trial {text} failed", [text])
    assert not HIDDEN.search(capsys.readouterr().out)


def run_of(text: str, folder) -> None:
    """Write the folder of a run whose every name and text is this one."""
    folder.mkdir()
    line = {"phase": "rl", "step": 0, "reward/mean": 1.0, f"reward/{text}": 1.0, text: 0.5}
    sample = {"phase": "rl", "step": 0, "prompt": text, "completion": text, "score": 1.0, text: text}
    values = {"phase": "rl", "step": 0, "accuracy": [1.0], text: [0.5]}
    records = {"metrics": line, "timings": {"phase": "rl", "step": 0, "time/step": 1.0, f"time/{text}": 0.5}}
    for name, record in (records | {"samples": sample, "eval": values}).items():
        (folder / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "run.json").write_text(json.dumps({"config_id": text, "run_id": text}))
    (folder / "environment.json").write_text(json.dumps([{text: text, "python": text}]))
    (folder / "config.gin").write_text(f"# {text.encode(errors='replace').decode()}\n", newline="")


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_the_report_of_a_run(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_of(text, tmp_path / "r")
    run_of("plain", tmp_path / "p")
    for command in (["report", "r"], ["report", "p"], ["report", "r", "p", "--out", "both.html"]):
        assert main(command) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert not HIDDEN.search(shown.out + shown.err)
    pages = [(tmp_path / name).read_text() for name in ("r/report.html", "p/report.html", "both.html")]
    assert {tag for tag, _ in elements(pages[0])} == {tag for tag, _ in elements(pages[1])}
    assert "img" not in {tag for tag, _ in elements(pages[2])}
    for made in pages:
        assert not any(name.startswith("on") for _, names in elements(made) for name in names)


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_the_records_of_an_evaluation(text, tmp_path):
    """They hold every text as it is."""
    accuracy = estimate(np.array([1.0, 0.0]))
    assert accuracy is not None
    figures = {name: {"accuracy": accuracy} for name in ("all", "a", text)}
    limit = Limit(column="prompt", tokens=4, setting="", action="error", action_setting="")
    lengths = LengthReport(total=1, of=1, too_long=0, longest=3, limit=limit)
    records = [{"completion": text}]
    Report(figures=figures, records=records, at=text, config=load(None), lengths=lengths).write(tmp_path)
    assert json.loads((tmp_path / "samples.jsonl").read_text(encoding="utf-8"))["completion"] == text
    assert text in json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["sources"]
