"""Third-party distributions on the path are found; a broken one is named and hurts nobody else."""

import subprocess
import sys

import pytest

import dovetail
from dovetail.registry import discover

GOOD = """
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "acme_loss", "{module}.losses:acme_loss")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with one plugin module on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, module: str, source: str, entry: str = "plugin") -> None:
        (tmp_path / f"{module}.py").write_text(source.replace("{module}", module))
        info = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dovetail]\n{entry} = {module}\n")

    return put


def test_built_ins_arrive_through_the_entry_points():
    registry, _ = discover()
    assert registry.problems == []
    assert {c.origin.distribution for c in registry.components()} == {"dovetail"}
    assert registry.has("policy_loss", "gspo")


def test_every_built_in_can_be_imported():
    registry, _ = discover()
    for component in registry.components():
        assert component.interface, component.label
        assert component.summary, component.label


def test_a_third_party_is_found(install):
    install("acme-rl", "acme_a", GOOD)
    registry, _ = discover()
    found = registry.get("policy_loss", "acme_loss")
    assert (found.origin.distribution, found.origin.version, found.origin.module) == (
        "acme-rl",
        "1.0",
        "acme_a.losses",
    )


def test_an_entry_point_named_like_a_built_in_hides_nothing(install):
    install("acme-rl", "acme_b", GOOD, entry="advantage")
    registry, _ = discover()
    assert registry.has("policy_loss", "acme_loss")
    assert registry.has("advantage", "grpo")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import absent_library",
            "entry point 'plugin' = acme_c: ModuleNotFoundError: No module named 'absent_library'",
        ),
        (
            GOOD.replace("dovetail_components", "dovetail_component"),
            "unknown hook 'dovetail_component'. Did you mean",
        ),
        (GOOD.replace("policy_loss", "policyloss"), "unknown kind 'policyloss'. Did you mean 'policy_loss'"),
        (GOOD.replace('"{module}.losses:acme_loss"', '"nowhere"'), "write 'package.module:attribute'"),
    ],
)
def test_a_broken_plugin_is_named_and_the_rest_works(install, source, reason):
    install("acme-rl", "acme_c", source)
    sys.modules.pop("acme_c", None)
    registry, _ = discover()
    (problem,) = registry.problems
    assert (problem.distribution, problem.version) == ("acme-rl", "1.0")
    assert reason in problem.reason
    assert registry.has("policy_loss", "gspo")
    with pytest.raises(dovetail.DovetailError, match="Broken plugin acme-rl"):
        registry.get("policy_loss", "acme_loss")


def test_a_distribution_can_be_switched_off(install, monkeypatch):
    install("acme-rl", "acme_d", GOOD)
    monkeypatch.setenv("DOVETAIL_DISABLE", "other, Acme_RL")
    registry, _ = discover()
    assert not registry.has("policy_loss", "acme_loss")
    assert registry.problems == []


def test_run_observers_are_called(install):
    install(
        "acme-watch",
        "acme_e",
        "import dovetail\nseen = []\n@dovetail.hookimpl\ndef dovetail_step_end(step, metrics):\n    seen.append((step, metrics))\n",
    )
    _, manager = discover()
    manager.hook.dovetail_step_end(step=3, metrics={"x": 1.0})
    assert sys.modules["acme_e"].seen == [(3, {"x": 1.0})]


def test_listing_names_imports_nothing_heavy():
    code = (
        "import sys, dovetail; dovetail.names('policy_loss'); heavy = {'jax', 'flax', 'optax', 'orbax', 'grain', 'numpy',"
        " 'matplotlib'}; print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
