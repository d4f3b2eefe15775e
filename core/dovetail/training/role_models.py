"""The weights of the roles other than policy and critic: their initial values, and how they follow the policy."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp

from dovetail.devices.compiled import share
from dovetail.devices.hand_over import HandOver
from dovetail.devices.mesh import to_device, to_host
from dovetail.devices.population import make_model
from dovetail.errors import RunError
from dovetail.protocols import Weights
from dovetail.step.algorithm import Follow
from dovetail.training.models import in_mode
from dovetail.training.session import RL, Run


@attrs.define(kw_only=True)
class RoleModels:
    """Structure and weights by role; weights are in host memory between their uses if this is configured."""

    graphdefs: dict[str, Any]
    follow: dict[str, Follow]
    on_host: bool
    held: dict[str, Weights]
    hand_over: HandOver

    @classmethod
    def open(cls, run: Run, start: Any) -> RoleModels:
        """Create or load the roles that have models of their own; the others begin with `start`, the policy's weights.

        Parameters that are not trained are shared with the policy, so with an adapter a reference is not a second copy.
        """
        setup, follow = run.setup, dict(run.setup.algorithm.follow)
        on_host = run.config.memory.reference == "host"
        graphdefs, weights = {}, {}
        begun = [role for role in follow if not setup.models.has_own(role)]
        kept = _beginning(run, start) if begun else None
        for role, each in follow.items():
            if role in begun:
                begin = Weights(_copy(kept) if each.moves else kept, setup.weights.frozen)
                weights[role] = setup.hand_over.lend(begin, role)
            else:
                own, weights[role] = make_model(lambda role=role: setup.models.role(role))
                graphdefs[role] = in_mode(own, weights[role], setup.settled.mode)
        if on_host:
            weights = {role: Weights(to_host(each.trained), each.frozen) for role, each in weights.items()}
        return cls(graphdefs=graphdefs, follow=follow, on_host=on_host, held=weights, hand_over=setup.hand_over)

    def weights(self, *roles: str) -> dict[str, Weights]:
        """Return the weights of some roles (without arguments, of all roles) on the devices."""
        chosen = {role: self.held[role] for role in roles or self.held}
        return {role: to_device(each) for role, each in chosen.items()} if self.on_host else chosen

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the weights that change."""
        return {role: self.held[role].trained for role, each in self.follow.items() if each.moves}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        for role, trained in state.items():
            self.held[role] = Weights(trained, self.held[role].frozen)

    def move(self, policy: Any, step: int, hyper: Any) -> None:
        """Update the roles' weights from the policy's after `step` steps."""
        for role, each in self.follow.items():
            if each.moves:
                now, devices = self.weights(role)[role], self.hand_over.devices.of(role)
                there = policy if devices is self.hand_over.devices else self.hand_over.trained(policy, role)
                with devices.use():
                    moved = share(each, donate=(0,))(now.trained, there, jnp.int32(step), hyper)
                self.held[role] = Weights(to_host(moved) if self.on_host else moved, now.frozen)


def _beginning(run: Run, start: Any) -> Any:
    """Return a copy of the weights with which RL began, separate from those being trained."""
    if run.resumes(RL):
        kept = run.checkpoints.restore_start(start)
        if kept is None:
            raise RunError(f"'{run.folder.checkpoints}' has lost the reference weights (start); the run cannot resume")
        return kept
    run.checkpoints.save_start(start)
    return _copy(start)


def _copy(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)
