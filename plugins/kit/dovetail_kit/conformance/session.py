"""The checks of whole distributions as pytest items, and the stamp after a complete run without failures."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterator
from typing import Any, cast

import attrs
import pytest
from packaging.utils import canonicalize_name

from dovetail.errors import listing, nearest
from dovetail.registry import Component, Registry, current
from dovetail_kit.conformance import stamp
from dovetail_kit.conformance.check import Check, applicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge, report

PROPERTY = "dovetail_conformance"


class _Report(Exception):
    """A failure that is told in words."""


class _ToldItem(pytest.Item):
    """An item without a file, whose failures need no traceback."""

    def reportinfo(self) -> tuple[Any, None, str]:
        """Call it by its id."""
        return self.path, None, self.nodeid

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the report, without a traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, _Report) else super().repr_failure(excinfo, style)


class CheckItem(_ToldItem):
    """One check of one component."""

    def __init__(self, *, check: Check, subject: Subject, **options: Any) -> None:
        super().__init__(**options)
        self.check = check
        self.subject = subject

    def runtest(self) -> None:
        """Carry the check out."""
        verdict = judge(self.check, self.subject)
        if verdict.outcome == "skipped":
            pytest.skip(verdict.seen)
        if verdict.outcome == "known":
            pytest.xfail(verdict.seen)
        if verdict.outcome == "failed":
            raise _Report(report(self.check, self.subject, verdict))


class RegistrationItem(_ToldItem):
    """What is claimed of a distribution as a whole."""

    def __init__(self, *, distribution: str, registry: Registry, **options: Any) -> None:
        super().__init__(**options)
        self.distribution = distribution
        self.registry = registry

    def runtest(self) -> None:
        """Fail if the plugin is broken, registers nothing, or is slow to announce."""
        from dovetail_kit.conformance.registration import problems

        found = problems(self.distribution, self.registry)
        if found:
            raise _Report("\n".join(found))


@attrs.define
class _Tally:
    expected: int = 0
    ran: int = 0
    outcomes: collections.Counter[str] = attrs.field(factory=collections.Counter)


class Conformance:
    """The plugin, while it has something to do."""

    def __init__(self, config: pytest.Config, distributions: tuple[str, ...]) -> None:
        self.config = config
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the item `registration` says what is wrong with a plugin
            self.registry = current()
        self.distributions = tuple(_known(name, self.registry) for name in distributions)
        self.tallies: dict[str, _Tally] = {name: _Tally() for name in self.distributions}
        self.records: list[stamp.Record] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the checks, before options such as `-k` choose among the items."""
        for distribution in self.distributions:
            added = list(self._items(session, distribution))
            for item in added:
                item.user_properties.append((PROPERTY, [distribution, len(added)]))
            self.tallies[distribution].expected = len(added)
            items += added

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say how many checks have joined the tests."""
        return [f"{tally.expected} checks of {name}" for name, tally in self.tallies.items() if tally.expected]

    def _items(self, session: pytest.Session, distribution: str) -> Iterator[pytest.Item]:
        from dovetail_kit.conformance.suites.devices import share_processes

        prefix = f"{distribution}/" if len(self.distributions) > 1 else ""
        name = f"{distribution}::registration"
        yield RegistrationItem.from_parent(
            session, name=name, nodeid=name, distribution=distribution, registry=self.registry
        )
        subjects = [
            Subject(component, self.config.hook.pytest_dovetail_settings(component=component) or {})
            for component in self._components(distribution)
        ]
        share_processes(subjects)
        for component, subject in ((subject.component, subject) for subject in subjects):
            for check in applicable(component):
                name = f"{prefix}{component.kind}/{component.name}::{check.name}"
                item = CheckItem.from_parent(
                    session,
                    name=name,
                    nodeid=name,
                    check=check,
                    subject=subject,
                )
                if self.config.pluginmanager.hasplugin("xdist"):
                    # with `--dist loadgroup`, what is compiled for a component serves all of its checks
                    item.add_marker(pytest.mark.xdist_group(component.label))
                yield item

    def _components(self, distribution: str) -> list[Component]:
        loadable = []
        for component in self.registry.components():
            if component.origin.distribution == distribution:
                try:
                    component.load()
                except Exception:
                    continue
                loadable.append(component)
        return loadable

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Forget what was compiled for a component after its last check."""
        if isinstance(item, CheckItem) and getattr(nextitem, "subject", None) is not item.subject:
            item.subject.forget()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what has passed; with pytest-xdist this sees the reports of every worker."""
        for name, value in report.user_properties:
            if name == PROPERTY:
                distribution, expected = cast("tuple[str, int]", value)
                tally = self.tallies[distribution]
                tally.expected = expected
                if report.when == "call":
                    tally.ran += 1
                    tally.outcomes["known" if hasattr(report, "wasxfail") else report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the record of distributions that have passed everything."""
        if hasattr(session.config, "workerinput"):
            return
        for distribution, tally in self.tallies.items():
            if tally.outcomes["failed"]:
                stamp.forget(distribution)
            elif tally.ran and tally.ran == tally.expected:
                self.records.append(
                    stamp.write(
                        distribution,
                        checks=tally.outcomes["passed"],
                        skipped=tally.outcomes["skipped"],
                        known=tally.outcomes["known"],
                    )
                )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which distributions conform."""
        for record in self.records:
            terminalreporter.write_line(
                f"{record.distribution} {record.version} conforms to dovetail {record.dovetail}: {record.checks}"
                f" checks passed, {record.skipped} skipped, {record.known} known failures"
            )


def _known(name: str, registry: Registry) -> str:
    """Return a distribution's name as the registry spells it.

    Raises:
        UsageError: if it announces nothing under the entry-point group `dovetail`.
    """
    from importlib import metadata

    announced = {point.dist.name for point in metadata.entry_points(group="dovetail") if point.dist}
    announced |= {component.origin.distribution for component in registry.components()}
    for distribution in sorted(announced):
        if canonicalize_name(distribution) == canonicalize_name(name):
            return distribution
    raise pytest.UsageError(
        f"--dovetail-dist={name}: no installed distribution of that name has an entry point in the group 'dovetail'."
        f"{nearest(name, announced)} Installed: {listing(announced)}"
    )
