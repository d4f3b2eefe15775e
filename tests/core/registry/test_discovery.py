"""Third-party distributions on the path are found; a broken distribution is named and affects no other."""

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from tests.distribution import write_distribution

import dovetail
from dovetail import builtin
from dovetail.cli import main
from dovetail.config import load
from dovetail.kinds import KINDS
from dovetail.registry import _discovered, current, discover

GOOD = """
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "acme_loss", "{module}.losses:acme_loss")
"""

OPENER = """
import attrs
import dovetail

@attrs.frozen(kw_only=True)
class Acme:
    rounds: int = 3

def lean(mask):
    return mask * 1.0

@dovetail.hookimpl
def dovetail_kinds(register_kind):
    register_kind("verifier", "mask -> doubt", reads="fields", stage="corrections", writes=("doubt",))

@dovetail.hookimpl
def dovetail_sections(register_section):
    register_section("acme", "{module}:Acme")

@dovetail.hookimpl
def dovetail_components(register):
    register("verifier", "lean", "{module}:lean")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with one plugin module on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, module: str, source: str, entry: str = "plugin", **options) -> None:
        sys.modules.pop(module, None)  # of another test
        files = {f"{module}.py": source.replace("{module}", module)}
        points = {"dovetail": {entry: module}} | {"dovetail.api": options.pop("api", {})}
        write_distribution(tmp_path, distribution, files, points, **options)

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
        (
            GOOD.replace("@dovetail.hookimpl", ""),
            "function 'dovetail_components' that is not marked as a hook, so nobody would call it; put @dovetail.hookimpl",
        ),
        (
            GOOD.replace("(register)", "(registre)"),
            "'dovetail_components' has no parameter 'registre'. Did you mean 'register'?",
        ),
        (GOOD.replace('"acme_loss"', '"acme.loss"'), "policy_loss of acme-rl: 'acme.loss' is not a Python identifier"),
        (
            GOOD + GOOD.splitlines()[-1] + "\n",
            "policy_loss 'acme_loss' is registered twice by acme-rl, for 'acme_c.losses:",
        ),
        (
            GOOD.replace("policy_loss", "field").replace("acme_loss", "mask"),
            "has the name of one that the engine provides",
        ),
        (GOOD.replace('"acme_loss"', "acme_loss"), "NameError: name 'acme_loss' is not defined"),
        (
            OPENER.replace('stage="corrections"', 'stage="corections"'),
            "kind 'verifier': unknown stage 'corections'. Did you mean 'corrections'?",
        ),
        (
            OPENER.replace(', writes=("doubt",)', ""),
            "kind 'verifier' is called at stage 'corrections' and writes no field, so calling it would change nothing",
        ),
        (
            OPENER.replace("verifier", "correction"),
            "kind 'correction' of acme-rl exists already: dovetail opened it; register components of it",
        ),
        (
            OPENER.replace('stage="corrections"', 'stage="corrections", setting="train.correction"'),
            "is chosen by 'train.correction', which chooses the kind 'correction' of dovetail; say setting='train.OTHER'",
        ),
        (
            OPENER.replace('register_section("acme"', 'register_section("train"'),
            "section 'train' of acme-rl exists already as a section: dovetail opened it; take another name",
        ),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 ["),
        (GOOD + "    raise SystemExit(0)\n", "SystemExit: 0 ["),
        (OPENER.replace("    register_kind(", "    raise SystemExit(0)\n    register_kind("), "SystemExit: 0 ["),
    ],
)
def test_a_broken_plugin_is_named_and_the_rest_works(install, source, reason):
    install("acme-rl", "acme_c", source)
    registry, _ = discover()
    (problem,) = registry.problems
    assert (problem.distribution, problem.version) == ("acme-rl", "1.0")
    assert reason in problem.reason
    assert re.search(r"acme_c\.py:\d+\]", problem.reason), "every message says file and line"
    assert registry.has("policy_loss", "gspo")
    with pytest.raises(dovetail.DovetailError, match=r"Broken plugin acme-rl 1\.0: "):
        registry.get("policy_loss", "acme_loss")
    with pytest.raises(dovetail.DovetailError, match=r"Broken plugin acme-rl 1\.0: "):
        registry.get("policy_loss", "acme-rl/acme_loss")


def test_a_broken_plugin_is_not_blamed_for_names_of_another(install):
    install("acme-rl", "acme_c", "import absent_library")
    with pytest.raises(dovetail.DovetailError) as caught:
        discover()[0].get("policy_loss", "other-rl/grpo")
    assert "No plugin 'other-rl' is installed" in str(caught.value)
    assert "absent_library" not in str(caught.value)


def test_the_line_of_the_plugin_is_given_whatever_raised_below_it(install):
    install("acme-rl", "acme_c", "import json\n\njson.loads('{')\n")
    (problem,) = discover()[0].problems
    assert problem.reason.endswith("acme_c.py:3]; mend it, or set DOVETAIL_DISABLE=acme-rl")


def test_nothing_of_a_broken_plugin_stays(install):
    source = GOOD + "@dovetail.hookimpl\ndef dovetail_step_end(step, metrics):\n    raise AssertionError\n"
    install("acme-rl", "acme_c", source.replace("policy_loss", "policy_los"))
    sys.modules.pop("acme_c", None)
    registry, manager = discover()
    assert registry.problems
    manager.hook.dovetail_step_end(phase="rl", step=1, metrics={}, run=None)


def test_everybody_is_told_of_a_broken_plugin(install, monkeypatch):
    install("acme-rl", "acme_c", "import absent_library")
    sys.modules.pop("acme_c", None)
    with pytest.warns(dovetail.errors.DovetailWarning, match=r"acme-rl 1\.0: .* `dovetail plugin doctor acme-rl` says"):
        dovetail.registry._discovered.__wrapped__()


@pytest.mark.parametrize(
    ("requires", "api", "reason"),
    [
        (["dovetail-rl>=99"], {}, "not imported: it requires 'dovetail-rl>=99', and dovetail 0"),
        (["dovetail-rl==0.0.1"], {}, "or that dovetail: pip install 'dovetail-rl==0.0.1'"),
        ([], {"policy_loss": "v2"}, "written for v2 of kind 'policy_loss', and dovetail 0"),
        ([], {"policy_loss": "v2"}, "understands v1; upgrade dovetail"),
        ([], {"policy_loss": "one"}, "policy_loss = 'one' under \"dovetail.api\"; write a version such as 'v1'"),
    ],
)
def test_an_incompatible_plugin_is_listed_and_not_imported(install, requires, api, reason):
    install("acme-rl", "acme_f", "raise AssertionError('imported')", requires=requires, api=api)
    registry, _ = discover()
    (problem,) = registry.problems
    assert reason in problem.reason
    assert problem.word == "incompatible"
    assert "acme_f" not in sys.modules
    assert registry.get("policy_loss", "gspo")
    with pytest.raises(dovetail.DovetailError, match=r"Incompatible plugin acme-rl 1\.0: not imported"):
        registry.get("policy_loss", "acme_loss")


def test_what_ails_a_distribution_is_said_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {"dovetail": {"a": "acme_k", "b": "acme_k"}}
    write_distribution(tmp_path, "acme-rl", {}, points, requires=["dovetail-rl>=99"])
    assert len(discover()[0].problems) == 1


@pytest.mark.parametrize(
    ("requires", "api"),
    [
        (["dovetail-rl>=0.0.1,<99", "other>=3", "dovetail-rl>=99; extra == 'dev'"], {"policy_loss": "v1"}),
        (["dovetail-rl>=99; python_version < '3'"], {"verifier": "v7"}),
        ([], {}),
    ],
)
def test_a_compatible_one_is_taken_in(install, requires, api):
    install("acme-rl", "acme_g", GOOD, requires=requires, api=api)
    registry, _ = discover()
    assert registry.problems == []
    assert registry.get("policy_loss", "acme_loss")


def understand(monkeypatch, kind: str, versions: tuple[int, ...]) -> None:
    """Make the engine support these versions of a kind's contract."""
    records = [attrs.evolve(each, versions=versions) if each.name == kind else each for each in KINDS]
    monkeypatch.setattr(builtin, "KINDS", records)


def test_an_older_contract_that_is_still_understood_is_fine(install, monkeypatch):
    install("acme-rl", "acme_g", GOOD, api={"policy_loss": "v1"})
    understand(monkeypatch, "policy_loss", (1, 2))
    assert discover()[0].problems == []
    understand(monkeypatch, "policy_loss", (2, 3))
    (problem,) = discover()[0].problems
    assert "v1 of kind 'policy_loss', and dovetail" in problem.reason
    assert "understands v2, v3; upgrade acme-rl, or install an older dovetail" in problem.reason


def test_a_plugin_opens_a_kind_and_a_section_and_a_config_chooses_of_them(install):
    install("acme-rl", "acme_l", OPENER)
    registry, _ = discover()
    assert registry.problems == []
    config = load(None, ["train.verifier=lean", "acme.rounds=5"], registry=registry)
    assert config.setting("acme.rounds") == 5
    assert [call.label for call in config.plan.at("corrections")] == ["train.verifier = acme-rl/lean"]
    assert "train.verifier" not in load(None, registry=registry).choices


def test_neither_kind_nor_section_of_a_broken_plugin_stays(install):
    install("acme-rl", "acme_m", OPENER.replace('register("verifier"', 'register("verifer"'))
    registry, _ = discover()
    (problem,) = registry.problems
    assert "unknown kind 'verifer'. Did you mean 'verifier'" in problem.reason
    assert "verifier" not in registry.kinds
    assert "acme" not in registry.sections


@pytest.mark.parametrize(("declared", "old"), [({}, "raise AssertionError('imported')"), ({"verifier": "v3"}, GOOD)])
def test_the_contract_of_a_third_partys_kind_is_checked_as_well(install, declared, old):
    opener = (
        "import dovetail\n@dovetail.hookimpl\ndef dovetail_kinds(register_kind):\n"
        "    register_kind('verifier', 'completion -> proof', versions=(2, 3))\n"
    )
    user = GOOD.replace("policy_loss", "verifier")
    install("zeta-kinds", "acme_kinds", opener, api=declared)
    install("acme-rl", "acme_h", user, api={"verifier": "v2"})
    install("acme-old", "acme_i", old, api={"verifier": "v1"})
    registry, _ = discover()
    (problem,) = registry.problems
    assert (problem.distribution, problem.word) == ("acme-old", "incompatible")
    assert "zeta-kinds 1.0 understands v2, v3" in problem.reason
    assert registry.names("verifier") == ("acme_loss",)


@pytest.mark.parametrize(
    ("point", "source"),
    [("acme_j", "import flax"), ("acme_j:plugin", "import flax\nclass Plugin: ...\nplugin = Plugin()")],
)
def test_a_plugin_that_imports_something_heavy_is_named_with_the_time_it_costs(tmp_path, point, source):
    modules = {
        "acme_j.py": source,
        "flax.py": "import time; t = time.process_time() + 0.1\nwhile time.process_time() < t: pass",
    }
    write_distribution(tmp_path, "acme-rl", modules, {"dovetail": {"acme": point}})
    code = "from dovetail.registry import discover; print(*discover()[0].problems)"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    ).stdout  # fmt: skip
    assert re.search(
        rf"^slow plugin acme-rl 1.0: its entry point '{point}' imports flax and takes 0\.\d s on every", out
    )
    assert "acme_j.py]; register targets as 'module:attribute'" in out


def test_a_field_that_has_an_owner_is_left_out_and_the_rest_of_the_plugin_works(install):
    source = (
        GOOD
        + '    register("field", "entropy", "{module}.losses:entropy")\n    register("kl", "acme_kl", "{module}:kl")\n'
    )
    install("acme-rl", "acme_c", source)
    registry, _ = discover()
    (problem,) = registry.problems
    assert str(problem).startswith(
        "incomplete plugin acme-rl 1.0: field 'entropy' of acme-rl exists already: dovetail 0"
    )
    assert re.search(r"it is left out \[.*acme_c\.py:7\]$", problem.reason)
    assert registry.get("field", "entropy").origin.distribution == "dovetail"
    assert registry.has("policy_loss", "acme_loss")
    assert registry.has("kl", "acme_kl")


@pytest.mark.parametrize("requires", [[], ["dovetail-rl>=99"]])
def test_a_distribution_can_be_switched_off(install, monkeypatch, requires):
    install("acme-rl", "acme_d", GOOD, requires=requires)
    monkeypatch.setenv("DOVETAIL_DISABLE", "Acme_RL")
    registry, _ = discover()
    assert not registry.has("policy_loss", "acme_loss")
    assert registry.problems == []
    for name in ("acme-rl/acme_loss", "acme_loss"):
        with pytest.raises(dovetail.DovetailError) as caught:
            registry.get("policy_loss", name)
        assert str(caught.value).endswith("DOVETAIL_DISABLE switches off Acme_RL.")
        assert "is installed" not in str(caught.value)


@pytest.mark.parametrize("name", ["acme_lr", "dovetail"])
def test_what_is_not_there_cannot_be_switched_off(install, monkeypatch, capsys, name):
    install("acme-rl", "acme_d", GOOD)
    monkeypatch.setenv("DOVETAIL_DISABLE", name)
    _discovered.cache_clear()
    assert main(["plugins"]) == 1
    said = f"error: DOVETAIL_DISABLE names '{name}', but no third party's plugin of that name is installed."
    assert capsys.readouterr().err.startswith(said)
    _discovered.cache_clear()


def test_run_observers_are_called(install):
    install(
        "acme-watch",
        "acme_e",
        "import dovetail\nseen = []\n@dovetail.hookimpl\ndef dovetail_step_end(step, metrics):\n    seen.append((step, metrics))\n",
    )
    _, manager = discover()
    manager.hook.dovetail_step_end(phase="rl", step=3, metrics={"x": 1.0}, run=None)
    assert sys.modules["acme_e"].seen == [(3, {"x": 1.0})]


def test_listing_names_imports_nothing_heavy():
    code = (
        "import sys, dovetail; dovetail.names('policy_loss'); heavy = {'jax', 'flax', 'optax', 'orbax', 'grain', 'numpy',"
        " 'matplotlib'}; print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_metadata_under_the_former_name_announces_nothing_twice(tmp_path, monkeypatch):
    from dovetail.registry.discovery import entry_points

    before = [(point.name, point.value) for point in entry_points()]
    write_distribution(tmp_path, "dovetail", {}, {"dovetail": {"core": "dovetail.builtin"}}, version="0.0.9")
    monkeypatch.syspath_prepend(tmp_path)
    assert [(point.name, point.value) for point in entry_points()] == before


def test_threads_that_ask_at_the_same_moment_get_one_registry():
    _discovered.cache_clear()
    both = threading.Barrier(4)

    def ask(_):
        both.wait()
        return current()

    with ThreadPoolExecutor(4) as pool:
        assert len({id(registry) for registry in pool.map(ask, range(4))}) == 1
