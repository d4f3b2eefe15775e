"""The checks of whole distributions as pytest items, and the record of a complete run without failures."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from packaging.utils import canonicalize_name

from dovetail.errors import listing, nearest
from dovetail.registry import Component, Registry, current
from dovetail.registry.compatibility import owner_of
from dovetail.registry.discovery import GROUP
from dovetail.registry.one_file import add_to_environment, files
from dovetail_kit.conformance import stamp
from dovetail_kit.conformance.check import UNWORKED, Check, applicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.unneeded import suspects, unneeded
from dovetail_kit.conformance.verdict import judge, report
from dovetail_kit.doctor import examine, examine_methods

PROPERTY = "dovetail_conformance"
NOTICE = "dovetail_notice"
REASONS = 20
"""So many reasons of skipped checks are told; a distribution of many components has more."""


class _Report(Exception):
    """A failure that is reported as a message, without a traceback."""


class _WordedItem(pytest.Item):
    """An item that belongs to no file, and whose failures need no traceback."""

    def reportinfo(self) -> tuple[Any, None, str]:
        """Name it by its id."""
        return self.path, None, self.nodeid

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the report alone."""
        return str(excinfo.value) if isinstance(excinfo.value, _Report) else super().repr_failure(excinfo, style)


class CheckItem(_WordedItem):
    """One check of one component."""

    def __init__(self, *, check: Check, subject: Subject, **options: Any) -> None:
        super().__init__(**options)
        self.check = check
        self.subject = subject

    def runtest(self) -> None:
        """Carry the check out."""
        verdict = judge(self.check, self.subject)
        if verdict.outcome == "skipped":
            pytest.skip(f"{self.nodeid}: {verdict.seen}")  # `-rs` shows the reason alone
        if verdict.outcome == "known":
            pytest.xfail(verdict.seen)
        if verdict.outcome == "failed":
            raise _Report(report(self.check, self.subject, verdict))


class ClaimsItem(_WordedItem):
    """Looks for claims that a component does not need; it never fails, since they say nothing that is wrong."""

    def __init__(self, *, subject: Subject, **options: Any) -> None:
        super().__init__(**options)
        self.subject = subject

    def runtest(self) -> None:
        """Note what may be left out."""
        self.user_properties += [(NOTICE, said) for said in unneeded(self.subject)]


class RegistrationItem(_WordedItem):
    """The claims about a distribution as a whole: it can be loaded, it imports quickly, and it has components."""

    def __init__(self, *, distribution: str, registry: Registry, **options: Any) -> None:
        super().__init__(**options)
        self.distribution = distribution
        self.registry = registry

    def runtest(self) -> None:
        """Fail on errors that the doctor finds, and on a heavy import, which would slow down every command."""
        findings = examine(self.distribution, self.registry)
        wrong = [str(each) for each in findings if each.level == "error" or each.about == "heavy import"]
        owners = {component.origin.distribution for component in self.registry.components()}
        if not wrong and owner_of(self.distribution) not in owners:
            wrong.append(
                f"{self.distribution} registers no component: implement the hook dovetail_components in the module that"
                " its entry point names"
            )
        if wrong:
            raise _Report("\n".join(wrong))


@attrs.define
class _Tally:
    expected: int = 0
    ran: int = 0
    outcomes: collections.Counter[str] = attrs.field(factory=collections.Counter)


class Conformance:
    """The part of the pytest plugin that is registered when a distribution is named."""

    def __init__(self, config: pytest.Config, distributions: tuple[str, ...]) -> None:
        self.config = config
        distributions = tuple(add_to_environment(name).stem if name.endswith(".py") else name for name in distributions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the item `registration` says what is wrong with a plugin
            self.registry = current()
        self.distributions = tuple(dict.fromkeys(map(_known, distributions)))  # one may be spelt in two ways
        self.tallies: dict[str, _Tally] = {name: _Tally() for name in self.distributions}
        self.records: list[stamp.Record] = []
        self.unrecorded: dict[str, OSError] = {}
        self.unworked: list[str] = []
        self.skipped: dict[str, list[str]] = {}
        self.notices: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the checks, before options such as `-k` select among the items."""
        from dovetail_kit.conformance.suites.devices import share_processes

        subjects: list[Subject] = []
        for distribution in self.distributions:
            own = self._subjects(distribution)
            added = list(self._items(session, distribution, own))
            subjects += own
            for item in added:
                item.user_properties.append((PROPERTY, [distribution, len(added)]))
            self.tallies[distribution].expected = len(added)
            items += added
        share_processes(subjects)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Report how many checks were added to the tests."""
        return [f"{tally.expected} checks of {name}" for name, tally in self.tallies.items() if tally.expected]

    def _subjects(self, distribution: str) -> list[Subject]:
        return [
            Subject(component, self.config.hook.pytest_dovetail_settings(component=component) or {})
            for component in self._components(distribution)
        ]

    def _items(self, session: pytest.Session, distribution: str, subjects: list[Subject]) -> Iterator[pytest.Item]:
        name = f"{distribution}::registration"
        yield RegistrationItem.from_parent(
            session, name=name, nodeid=name, distribution=distribution, registry=self.registry
        )
        prefix = f"{distribution}/" if len(self.distributions) > 1 else ""
        for subject in subjects:
            component = subject.component
            for check in applicable(component):
                name = f"{prefix}{component.kind}/{component.name}::{check.name}"
                item = CheckItem.from_parent(session, name=name, nodeid=name, check=check, subject=subject)
                if self.config.pluginmanager.hasplugin("xdist"):
                    # With `--dist loadgroup`, one worker compiles a component for all of its checks.
                    item.add_marker(pytest.mark.xdist_group(component.label))
                yield item
            if suspects(component):
                name = f"{prefix}{component.kind}/{component.name}::unneeded_claims"
                yield ClaimsItem.from_parent(session, name=name, nodeid=name, subject=subject)

    def _components(self, distribution: str) -> list[Component]:
        """Return the components that can be called as their kind is; the item `registration` reports the others."""
        loadable = []
        for component in self.registry.components():
            if component.origin.distribution == owner_of(distribution):
                try:
                    component.load()
                except Exception:
                    continue
                if not any(examine_methods(component, self.registry)):
                    loadable.append(component)
        return loadable

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Free what was compiled for a component after its last check."""
        if isinstance(item, CheckItem | ClaimsItem) and getattr(nextitem, "subject", None) is not item.subject:
            item.subject.forget()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcomes; under pytest-xdist this sees the reports of every worker."""
        component, _, name = report.nodeid.partition("::")
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            why = str(report.longrepr[-1]).removeprefix("Skipped: ").removeprefix(f"{report.nodeid}: ")
            if name == "examples_of_its_docstring" and UNWORKED in why:
                self.unworked.append(component)
            elif any(key == PROPERTY for key, _ in report.user_properties):
                self.skipped.setdefault(why, []).append(report.nodeid)
        for name, value in report.user_properties:
            if name == NOTICE and report.when == "call":
                self.notices.append(f"{component}: {value}")
            if name == PROPERTY:
                distribution, expected = cast("tuple[str, int]", value)
                tally = self.tallies[distribution]
                tally.expected = expected
                if report.when == "call":
                    tally.ran += 1
                    tally.outcomes["known" if hasattr(report, "wasxfail") else report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record which distributions have passed everything."""
        if hasattr(session.config, "workerinput"):
            return
        for distribution, tally in self.tallies.items():
            try:
                self._record(distribution, tally)
            except OSError as error:  # a cache folder that cannot be written to changes no outcome of a check
                self.unrecorded[distribution] = error

    def _record(self, distribution: str, tally: _Tally) -> None:
        if tally.outcomes["failed"]:
            stamp.forget(distribution)
        elif tally.ran and tally.ran == tally.expected and distribution not in _single_files():
            self.records.append(
                stamp.write(
                    distribution,
                    checks=tally.outcomes["passed"],
                    skipped=tally.outcomes["skipped"],
                    known=tally.outcomes["known"],
                )
            )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Report what no example says, what was skipped, what is not needed, and which distributions conform."""
        if self.unworked:
            terminalreporter.write_line(
                f"without a worked example, so that nothing says what it should compute: {listing(self.unworked)}"
            )
        for why, names in sorted(self.skipped.items(), key=lambda each: each[1])[:REASONS]:
            terminalreporter.write_line(f"skipped {listing(names, 3)}: {why}")
        if len(self.skipped) > REASONS:
            terminalreporter.write_line(f"skipped others for {len(self.skipped) - REASONS} more reasons: see -rs")
        for notice in self.notices:
            terminalreporter.write_line(f"note: {notice}")
        for record in self.records:
            terminalreporter.write_line(
                f"{record.distribution} {record.version} conforms to dovetail {record.dovetail}: {record.checks}"
                f" checks passed, {record.skipped} skipped, {record.known} known failure{'s' * (record.known != 1)}"
            )
        for distribution, error in self.unrecorded.items():
            terminalreporter.write_line(f"the outcome of {distribution} is not recorded: {error}")


def files_of(names: Iterable[str]) -> list[Path]:
    """Return the files of those names that are single-file plugins, without repetitions."""
    stems = {Path(name).stem if name.endswith(".py") else name for name in names}
    return [file for file in files() if file.stem in stems]


def _known(name: str) -> str:
    """Return a distribution's name as its metadata spells it, or that of a single-file plugin.

    Raises:
        UsageError: if it announces nothing in the entry-point group `dovetail`.
    """
    if name in _single_files():
        return name
    announced = {point.dist.name for point in metadata.entry_points(group=GROUP) if point.dist}
    for distribution in sorted(announced):
        if canonicalize_name(distribution) == canonicalize_name(name):
            return distribution
    raise pytest.UsageError(
        f"--dovetail-dist={name}: no installed distribution of that name has an entry point in the group '{GROUP}'."
        f"{nearest(name, announced)} Installed: {listing(announced)}"
    )


def _single_files() -> set[str]:
    return {file.stem for file in files()}
