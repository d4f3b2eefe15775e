"""The public names, and the cost of importing them."""

import subprocess
import sys

import pytest

import dovetail
from dovetail import protocols
from dovetail.kinds import algorithm, data, episodes, model, observers, rollout, sizing

PUBLIC = [
    "Chooses",
    "Component",
    "DovetailError",
    "Renamed",
    "STATIC",
    "ab",
    "declares",
    "get",
    "hookimpl",
    "load",
    "names",
    "open_policy",
    "open_run",
    "register",
    "sweep",
    "train",
]
HEAVY = {"jax", "flax", "optax", "orbax", "grain", "numpy", "matplotlib", "clu"}


def test_the_public_names_are_these():
    assert sorted(dovetail.__all__) == PUBLIC


def test_the_protocols_are_those_of_all_kinds():
    modules = (algorithm, data, episodes, model, observers, rollout, sizing)
    assert sorted(protocols.__all__) == sorted(["Sampling", *(name for module in modules for name in module.__all__)])
    assert all(hasattr(protocols, name) for name in protocols.__all__)


def test_the_kinds_are_these():
    assert {"advantage", "policy_loss", "value_loss", "loss_agg", "kl", "kl_controller", "field", "reward"} <= set(
        dovetail.registry.current().kinds
    )


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["names"], ["names", "policy_loss"]])
def test_light_commands_import_nothing_heavy(arguments):
    code = (
        "import sys; from dovetail.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('HEAVY', *sorted(set(sys.modules) & " + repr(HEAVY) + "))"
    )
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1].split() == ["HEAVY"]
