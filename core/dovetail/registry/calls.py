"""Call the hooks of plugins, and name the plugin when one raises.

A plugin that raises when asked what it offers is skipped with a warning; an observer that raises ends the run.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import pluggy

from dovetail.errors import DovetailError, DovetailWarning, PluginError
from dovetail.registry.compatibility import ENGINE, engine_version
from dovetail.registry.disabled import DISABLE
from dovetail.registry.places import first_line, raised_at, raised_in

if TYPE_CHECKING:
    from dovetail.config import Config

T = TypeVar("T")


@attrs.frozen
class Asked:
    """A plugin that implements a hook, by its distribution and its module."""

    distribution: str
    module: Any

    @property
    def label(self) -> str:
        """`acme-rl 1.0`, or only the name if the distribution is not installed."""
        try:
            version = engine_version() if self.distribution == ENGINE else metadata.version(self.distribution)
            return f"{self.distribution} {version}"
        except metadata.PackageNotFoundError:
            return self.distribution

    def warn(self, reason: str) -> None:
        """Warn the user, in one line, what is wrong with the plugin and how to switch it off."""
        said = " ".join(f"broken plugin {self.label}: {reason}; mend it, or set {DISABLE}".split())
        warnings.warn(f"{said}={self.distribution}", DovetailWarning, stacklevel=2)


def ask_all(manager: pluggy.PluginManager, hook: str, offer: Callable[[Asked], T]) -> Iterator[tuple[Asked, T]]:
    """Call a hook of one parameter in every plugin, the engine's own first, then sorted by distribution.

    pluggy's own call is not used because it stops at the first plugin that raises, and does not say which.

    Args:
        manager: holds the plugins.
        hook: the name of the hook.
        offer: makes the argument for a plugin's hook, to which the plugin adds what it offers.

    Yields:
        Each plugin with the argument that its hook received, except for plugins that raised: those are reported in a
        warning.
    """
    asked = [(_owner(each), each) for each in _implementing(manager, hook)]
    for plugin, implementation in sorted(
        asked, key=lambda pair: (pair[0].distribution != ENGINE, pair[0].distribution)
    ):
        offered = offer(plugin)
        try:
            implementation.function(*[offered for _ in implementation.argnames])
        except (Exception, SystemExit) as error:
            what = str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
            plugin.warn(f"its {hook} raised {what}{raised_at(error)}; nothing that it offers there is taken")
            continue
        yield plugin, offered


def tell(manager: pluggy.PluginManager, hook: str, **what: Any) -> None:
    """Call the observers of a run.

    Raises:
        PluginError: if one raises, naming its distribution, the hook and its own line.
    """
    try:
        getattr(manager.hook, hook)(**what)
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
        for each in _implementing(manager, hook):
            if getattr(each.function, "__code__", None) in codes:
                raise _raised(hook, each, error) from error
        raise


def ask_one(manager: pluggy.PluginManager, hook: str, **what: Any) -> Any:
    """Return the answer to a hook, None if all plugins answer None; another's counts before those of our own plugins.

    Raises:
        PluginError: if there are several answers, or a plugin raises; it names the distributions.
    """
    answers: list[tuple[str, Any]] = []
    for each in _implementing(manager, hook):
        try:
            answer = each.function(*(what[name] for name in each.argnames))
        except DovetailError:
            raise
        except (Exception, SystemExit) as error:
            raise _raised(hook, each, error) from error
        answers += [] if answer is None else [(_owner(each).distribution, answer)]
    if len(chosen := [pair for pair in answers if pair[0] != ENGINE] or answers) > 1:
        owners = sorted(owner for owner, _ in chosen)
        raise PluginError(
            f"{hook} is answered by {' and by '.join(owners)}, and there can be one answer only; switch one off, as in"
            f" {DISABLE}={owners[-1]}"
        )
    return chosen[0][1] if chosen else None


def ask_for(manager: pluggy.PluginManager, hook: str, config: Config, setting: str, /, **what: Any) -> Any:
    """Return the answer to a hook that a setting makes necessary; see `ask_one`.

    Raises:
        PluginError: if no plugin answers, naming the setting.
    """
    if (answer := ask_one(manager, hook, **what)) is None:
        raise PluginError(
            f"{setting} = {config.setting(setting)} ({config.origins[setting]}) takes a plugin that answers {hook}, and"
            " none does; install one, or leave the setting out"
        )
    return answer


def _implementing(manager: pluggy.PluginManager, hook: str) -> list[pluggy.HookImpl]:
    return getattr(manager.hook, hook).get_hookimpls()


def _owner(implementation: pluggy.HookImpl) -> Asked:
    return Asked(implementation.plugin_name.partition(":")[0], implementation.plugin)


def _raised(hook: str, implementation: pluggy.HookImpl, error: BaseException) -> PluginError:
    owner, where = _owner(implementation), raised_in(implementation.function, error)
    return PluginError(
        f"{hook} of {owner.label} raised {first_line(error)}{where}; mend it, or set {DISABLE}={owner.distribution}"
    )
