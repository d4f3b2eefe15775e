"""Former names of components and hyperparameters, and until which version a config may use them."""

from __future__ import annotations

import attrs
from packaging.version import InvalidVersion, Version

from dovetail.errors import PluginError


@attrs.frozen
class Renamed:
    """An old name of a component or, with `to`, of one of its hyperparameters.

        register(
            "policy_loss",
            "soft_clip",
            "acme_rl.soft_clip:soft_clip",
            renamed=[
                Renamed("tanh_clip", since="0.3", removed_in="0.5"),
                Renamed("tau", to="temperature", since="0.3", removed_in="0.5"),
            ],
        )

    Versions are those of the distribution that registers the component. Before `removed_in`, a config with the old name
    works, with a warning that gives file and line; from then on it is refused with an error that gives the new name. A
    rename must not change the meaning: register a new component for a different computation.

    Args:
        old: the old name, which existing configs may contain.
        to: the current name of the hyperparameter; None for the component itself.
        since: the version that introduced the new name.
        removed_in: the first version in which the old one is refused.
    """

    old: str
    to: str | None = None
    since: str = attrs.field(kw_only=True)
    removed_in: str = attrs.field(kw_only=True)

    def check(self, owner: str) -> None:
        """Refuse versions that are malformed or in the wrong order.

        Raises:
            PluginError: with the owner.
        """
        try:
            ordered = Version(self.since) < Version(self.removed_in)
        except InvalidVersion as error:
            raise PluginError(f"{owner}: the old name '{self.old}': {error}; write versions such as '0.5'") from None
        if not ordered:
            raise PluginError(
                f"{owner}: the old name '{self.old}' goes in {self.removed_in}, which is not after its replacement in"
                f" {self.since}; give configs at least one version's time"
            )

    def is_removed(self, version: str) -> bool:
        """Tell whether a version of the distribution refuses the old name."""
        return Version(version) >= Version(self.removed_in)

    def say(self, what: str, new: str, version: str) -> str:
        """Return the text of the warning, or of the error once the old name is refused.

        >>> old = Renamed("tau", to="temperature", since="0.3", removed_in="0.5")
        >>> old.say("policy_loss.soft_clip.tau of acme-rl", "temperature", "0.4")
        "policy_loss.soft_clip.tau of acme-rl is called 'temperature' since 0.3; the old name is refused from 0.5 on:
        write 'temperature'"
        """
        fate = f"is refused from {self.removed_in} on"
        if self.is_removed(version):
            fate = f"was removed in {self.removed_in}"
        return f"{what} is called '{new}' since {self.since}; the old name {fate}: write '{new}'"
