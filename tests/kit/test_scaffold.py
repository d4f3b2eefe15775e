"""`dovetail plugin new` writes, for every kind, a package that lints, registers, passes its tests and conforms."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Protocol

import pytest
from tests.distribution import write_distribution
from tests.programs import shared

import dovetail_kit
from dovetail.cli import main
from dovetail.errors import ConfigError, DovetailError
from dovetail.kinds import Kind
from dovetail.registry import Origin, Registry, current, discover
from dovetail_kit.scaffold import NewPackage

KINDS = sorted(current().kinds)


def of(distribution="acme-rl", kind="policy_loss", name="soft_clip", registry=None):
    return NewPackage.of(distribution, kind, name, registry or current())


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with a package for every kind, each on a path as if it were installed."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in KINDS:
        place = of(f"acme-{kind}".replace("_", "-"), kind, "gspo_plus").write(folder / kind)
        project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
        name, requires = project["name"], project["dependencies"]
        write_distribution(place, name, {}, project["entry-points"], version=project["version"], requires=requires)
    return folder


def test_every_package_is_formatted_and_linted(packages):
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=packages, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_long_names_are_formatted_as_well(tmp_path):
    for kind in KINDS:
        of("acme-reinforcement", kind, "soft_sequence_clipped_ratio").write(tmp_path / kind)
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_registers_what_was_asked_for(packages, monkeypatch):
    for kind in KINDS:
        monkeypatch.syspath_prepend(str(packages / kind))
    registry, _ = discover()
    assert registry.problems == []
    for kind in KINDS:
        component = registry.get(kind, f"acme-{kind}/gspo_plus".replace("_", "-"))
        assert component.interface, kind
        assert component.summary, kind


@pytest.mark.slow
def test_every_package_passes_its_tests_and_conforms(packages):
    path = os.pathsep.join(str(packages / kind) for kind in KINDS)
    names = [f"--dovetail-dist=acme-{kind}".replace("_", "-") for kind in KINDS]
    tests = [str(place) for kind in KINDS for place in (packages / kind / "tests", packages / kind / f"acme_{kind}")]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--doctest-modules", "-W", "error"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={packages}", *names, *tests],
        cwd=packages,
        env=os.environ
        | shared()
        | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(packages / "cache"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert len(re.findall(r"conforms to dovetail", done.stdout)) == len(KINDS)


@pytest.mark.slow
def test_every_package_passes_a_type_checker_in_standard_mode(packages):
    (packages.parent / "pyrightconfig.json").write_text(
        f'{{"typeCheckingMode": "standard", "include": ["{packages.name}"]}}'
    )
    command = [sys.executable, "-m", "basedpyright", "-p", str(packages.parent), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].startswith("0 errors"), done.stdout[-5000:]


def test_the_command_says_what_to_do_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "new", "acme-rl", "policy_loss", "gspo"]) == 0
    out = capsys.readouterr().out
    assert "acme-rl has 9 files" in out
    assert "cd acme-rl\n  pip install -e '.[dev]'\n  pytest" in out
    assert "The formula goes into acme_rl/gspo.py" in out
    assert "dovetail has the policy_loss 'gspo' too; with both installed, a config of yours must say which" in out
    readme = (tmp_path / "acme-rl" / "README.md").read_text()
    assert "train.policy_loss = 'acme-rl/gspo'" in readme
    assert "`dovetail plugin add KIND NAME` adds another component" in readme


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme-rl").mkdir()
    (tmp_path / "acme-rl" / "thesis.tex").write_text("years of work")
    assert main(["plugin", "new", "acme-rl", "reward", "r"]) == 1
    assert capsys.readouterr().err == (
        "error: 'acme-rl' exists already and is not overwritten; choose another place with --out FOLDER\n"
    )
    assert [path.name for path in (tmp_path / "acme-rl").iterdir()] == ["thesis.tex"]
    assert main(["plugin", "new", "acme-rl", "reward", "r", "--out", "elsewhere"]) == 0


@pytest.mark.parametrize("what", ["acme-rl", "mine.py"])
def test_a_file_to_write_into_is_refused(what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "new", what, "reward", "r", "--out", "plugins/x.py"]) == 1
    assert capsys.readouterr().err == (
        "error: --out plugins/x.py is a FOLDER, and this looks like a file; a plugin that is a single file: dovetail plugin"
        " new x.py reward r --out plugins\n"
    )
    assert not list(tmp_path.iterdir())


def test_the_hyperparameters_of_every_class_stand_under_one_title():
    templates = Path(dovetail_kit.__file__).parent / "templates" / "kinds"
    assert [file.name for file in templates.iterdir() if "Attributes:" in file.read_text()] == []


def test_who_wants_another_component_learns_where_it_goes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "new", "acme-rl", "reward", "r"]) == 0
    assert main(["plugin", "new", "acme-rl", "reward", "s"]) == 1
    said = ", or add a component to this one: dovetail plugin add KIND NAME --to acme-rl"
    assert said in capsys.readouterr().err


def test_a_plugin_that_is_installed_can_be_added_to(monkeypatch):
    monkeypatch.setattr("dovetail_kit.scaffold.third_parties", lambda: ["attrs"])
    with pytest.raises(ConfigError, match=r"take another name, or add a component to this one: .* --to FOLDER"):
        of(distribution="attrs")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"distribution": "acme rl"}, "'acme rl' is not a name for a distribution; use letters, digits"),
        ({"distribution": "-x"}, "'-x' is not a name for a distribution"),
        ({"distribution": "json"}, "'json' already means something in Python, so no package can have it"),
        ({"distribution": "class"}, "'class' already means something in Python"),
        ({"distribution": "attrs"}, "a package 'attrs' is installed already and would be hidden"),
        ({"distribution": "Dovetail"}, "a package 'dovetail' is installed already"),
        ({"kind": "policyloss"}, "unknown kind 'policyloss'. Did you mean 'policy_loss'"),
        ({"name": "2fast"}, "'2fast' is not a name for a component; use letters, digits and '_'"),
        ({"name": "lambda"}, "'lambda' is not a name for a component"),
        ({"name": "_private"}, "'_private' is not a name for a component"),
        ({"name": "-private"}, "'-private' is not a name for a component"),
    ],
)
def test_wrong_words_are_refused_in_one_line(words, message):
    with pytest.raises(DovetailError, match=re.escape(message)) as caught:
        of(**words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("advantage", "per_token", "imports 'per_token' itself; take another one, such as per_token_advantage"),
        ("optimizer", "optax", "imports 'optax' itself"),
        ("reward", "list", "uses 'list' itself; take another one, such as list_reward"),
        ("kl", "round", "uses 'round' itself"),  # its example does
        (
            "field",
            "dovetail",
            "cannot be the name of a module here: the package's __init__.py has a 'dovetail' already",
        ),
    ],
)
def test_a_name_that_hides_what_its_file_needs_is_refused(kind, name, message):
    with pytest.raises(DovetailError, match=re.escape(message)):
        of(kind=kind, name=name)


@pytest.mark.parametrize(
    ("kind", "name", "attribute"),
    [
        ("interaction", "step", "StepInteraction"),
        ("tool_format", "call", "CallToolFormat"),
        ("sampler", "study", "StudySampler"),
        ("sink", "none", "NoneSink"),
        ("sink", "step", "Step"),
        ("reward", "step", "step"),
    ],
)
def test_a_class_gets_another_name_if_its_own_means_something_else(kind, name, attribute):
    plugin = of(kind=kind, name=name)
    tree = ast.parse(plugin.files()[plugin.component_file])
    assert plugin.target == f"acme_rl.{name}:{attribute}"
    assert [node.name for node in tree.body if getattr(node, "name", "") == attribute] == [attribute]
    assert f'"{name}",' in plugin.files()["acme_rl/__init__.py"]


@pytest.mark.slow
def test_packages_with_such_names_pass_their_tests(tmp_path):
    names = {"interaction": "step", "tool_format": "call", "sampler": "study"}
    for kind, name in names.items():
        place = of(f"acme-{name}", kind, name).write(tmp_path / kind)
        project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
        write_distribution(place, project["name"], {}, project["entry-points"], version=project["version"])
    path = os.pathsep.join(str(tmp_path / kind) for kind in names)
    tests = [str(tmp_path / kind / folder) for kind, name in names.items() for folder in ("tests", f"acme_{name}")]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--doctest-modules", "-W", "error"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            *(f"--dovetail-dist=acme-{name}" for name in names.values()),
            *tests,
        ],
        cwd=tmp_path,
        env=os.environ
        | shared()
        | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_a_hyphen_in_a_name_is_an_underscore():
    assert of(name="soft-clip").component_file == "acme_rl/soft_clip.py"


class Verifier(Protocol):
    """What the test below asks of a component."""

    def verify(self, *proofs, hint=None, limit=3):
        """Verify proofs."""

    def close(self, reason, *, now=False, **more):
        """Close."""


def test_the_methods_of_a_class_have_the_parameters_of_its_protocol():
    registry = Registry()
    kind = Kind(name="verifier", summary="proofs", scaffold="class", protocol=f"{__name__}:Verifier")
    registry.add_kind(kind, Origin("lean-kinds", "2.1", "lean"))
    text = of(kind="verifier", name="lean", registry=registry).files()["acme_rl/lean.py"]
    assert "def verify(self, *proofs: Any, hint: Any = None, limit: Any = 3) -> Any:" in text
    assert "def close(self, reason: Any, *, now: Any = False, **more: Any) -> Any:" in text


@pytest.mark.parametrize("summary", ["completion, scale -> score", "text, text -> score"])
def test_a_function_has_each_parameter_once(summary):
    registry = Registry()
    registry.add_kind(Kind(name="verifier", summary=summary), Origin("lean-kinds", "2.1", "lean"))
    compile(of(kind="verifier", name="lean", registry=registry).files()["acme_rl/lean.py"], "lean.py", "exec")


def test_a_kind_of_another_plugin_has_a_template_from_its_own_words():
    registry = Registry()
    verifier = Kind(name="verifier", summary="completion, proof -> score", versions=(1, 4))
    registry.add_kind(verifier, Origin("lean-kinds", "2.1", "lean"))
    files = of(kind="verifier", name="lean", registry=registry).files()
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert "lean-kinds>=2.1" in project["dependencies"]
    assert project["entry-points"]["dovetail.api"] == {"verifier": "v4"}
    assert "    completion: Any,\n    proof: Any,\n    *,\n" in files["acme_rl/lean.py"]
    assert "completion, proof -> score." in files["acme_rl/lean.py"]
