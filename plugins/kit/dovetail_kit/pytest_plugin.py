"""The pytest plugin: `pytest --dovetail-dist=acme-rl` turns every component of that distribution into tests.

pytest loads this module wherever Dovetail is installed, so it imports nothing until a distribution is named, by the
option or by the setting `dovetail_dist` in pytest's configuration.
"""

from __future__ import annotations

from typing import Any

import pytest


class Hooks:
    """What a conftest.py may implement."""

    @pytest.hookspec(firstresult=True)
    def pytest_dovetail_settings(self, component: Any) -> dict[str, Any] | None:
        """Return hyperparameters that only a test can provide, such as a file or a server; None for the defaults.

        >>> def pytest_dovetail_settings(component):
        ...     return {"path": "tests/cases.csv"} if component.label == "task.acme" else None
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting."""
    parser.getgroup("dovetail", "conformance of Dovetail plugins").addoption(
        "--dovetail-dist",
        action="append",
        default=[],
        metavar="NAME",
        help="check every component of this installed distribution, or of a single FILE.py alone (repeatable)",
    )
    parser.addini(
        "dovetail_dist",
        "distributions whose components are checked when pytest is called without files",
        type="args",
        default=[],
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Announce the hooks."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Register the checks if a distribution is named; of single files, collect these alone, unless tests are named."""
    asked = list(config.getoption("--dovetail-dist") or ())
    named, chosen = [*asked], config.args_source is pytest.Config.ArgsSource.ARGS
    if not chosen:
        named += config.getini("dovetail_dist")
    if named:
        from dovetail_kit.conformance.session import Conformance, files_of

        conformance = Conformance(config, tuple(dict.fromkeys(named)))
        config.pluginmanager.register(conformance, "dovetail-conformance")
        if not chosen and len(files := files_of(named)) == len(conformance.distributions):
            config.args[:] = map(str, files)
