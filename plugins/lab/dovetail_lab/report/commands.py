"""What `dovetail report` does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from dovetail.errors import ConfigError, RunError, listing, nearest
from dovetail_lab.report.page import write

FILE: Final = "report.html"


def run(options: argparse.Namespace) -> int:
    """Write the page of whatever the folders hold."""
    kinds = {folder: kind_of(folder) for folder in options.folders}
    first, *others = options.folders
    if others and set(kinds.values()) != {"run"}:
        odd = next(folder for folder, kind in kinds.items() if kind != "run")
        raise ConfigError(f"'{odd}' is {kinds[odd]}: a page holds several runs, or one sweep, or one A/B test")
    if options.watch:
        from dovetail_lab.report.watch import serve

        if kinds[first] == "an A/B test":
            raise ConfigError("--watch: how the arms of an A/B test compare is not shown before its end")
        return serve(lambda: _page(kinds[first], options), options.port)
    if kinds[first] == "an A/B test":
        return _ab(first, options)
    text = _page(kinds[first], options)
    path = options.output or (Path(FILE) if others else first / FILE)
    write(path, text)
    print(path)
    return 0


def _page(kind: str, options: argparse.Namespace) -> str:
    if kind == "a sweep":
        return _sweep(options.folders[0], options)
    from dovetail_lab.report.runs import render

    return render(options.folders)


def kind_of(folder: Path) -> str:
    """Return what a folder holds: `run`, `a sweep` or `an A/B test`.

    Raises:
        RunError: if it is none of them, with the nearest name beside it.
    """
    for record, kind in (("ab.json", "an A/B test"), ("sweep.json", "a sweep"), ("run.json", "run")):
        if (folder / record).is_file():
            return kind
    beside = [path.name for path in folder.parent.glob("*") if path.is_dir()] if folder.parent.is_dir() else []
    near = nearest(folder.name, [name for name in beside if name != folder.name])
    raise RunError(f"'{folder}' holds no run, sweep or A/B test.{near} Folders there: {listing(beside)}")


def _ab(folder: Path, options: argparse.Namespace) -> int:
    from dovetail_lab.ab.commands import report

    if options.metric or options.goal:
        raise ConfigError(
            "the metric of an A/B test was registered before its runs; `dovetail ab ... --amend` changes it"
        )
    page, *others = report(folder)
    if options.output:
        write(options.output, page.read_text(encoding="utf-8"))
    print("\n".join(map(str, [options.output or page, *others])))
    return 0


def _sweep(folder: Path, options: argparse.Namespace) -> str:
    from dovetail_lab.report.sweep import render
    from dovetail_lab.sweep import Store

    store = Store.open(folder)
    record = store.record
    metric = options.metric or record.get("metric", "eval/accuracy")
    return render(store, metric, options.goal or record.get("goal", "max"))
