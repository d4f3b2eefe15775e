"""`dovetail plugin add` adds a component to a package: its file, its tests, its registration and its contract."""

import os
import subprocess
import sys
import tomllib

import pytest
from tests.distribution import write_distribution
from tests.programs import shared

from dovetail.cli import main
from dovetail.errors import ConfigError
from dovetail.registry import current, discover
from dovetail_kit.addition import Addition
from dovetail_kit.scaffold import NewPackage


@pytest.fixture
def package(tmp_path):
    yield NewPackage.of("acme-rl", "policy_loss", "soft_clip", current()).write(tmp_path / "acme-rl")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_rl"]:
        del sys.modules[name]


def add(folder, kind, name, file=None):
    return Addition.of(folder, kind, name, current(), file).write()


def announce(folder, monkeypatch):
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    write_distribution(folder, project["name"], {}, project["entry-points"], version=project["version"])
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.slow
def test_what_is_added_is_registered_tested_and_conforms(package, monkeypatch):
    for kind, name in (("reward", "near"), ("policy_loss", "soft_sequence_clipped_ratio")):
        add(package, kind, name)
    announce(package, monkeypatch)
    registry, _ = discover()
    assert registry.problems == []
    assert {c.name for c in registry.components() if c.origin.distribution == "acme-rl"} == {
        "soft_clip",
        "near",
        "soft_sequence_clipped_ratio",
    }
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=package, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not resumes"],
        cwd=package,
        env=os.environ
        | shared()
        | {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(package / "cache"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_command_says_what_it_did(package, capsys):
    assert main(["plugin", "add", "reward", "near", "--to", str(package)]) == 0
    said = capsys.readouterr().out
    assert f"wrote {package / 'acme_rl/near.py'} and {package / 'tests/test_near.py'}" in said
    assert f"registered it in {package / 'acme_rl/__init__.py'}" in said
    assert f'added reward = "v1" to {package / "pyproject.toml"}: install the package again' in said
    assert tomllib.loads((package / "pyproject.toml").read_text())["project"]["entry-points"]["dovetail.api"] == {
        "policy_loss": "v1",
        "reward": "v1",
    }


def test_a_second_component_of_a_kind_changes_no_contract(package):
    before = (package / "pyproject.toml").read_text()
    assert len(add(package, "policy_loss", "softer")) == 2
    assert (package / "pyproject.toml").read_text() == before
    assert 'register("policy_loss", "softer", "acme_rl.softer:softer")' in (package / "acme_rl/__init__.py").read_text()


def test_a_package_in_src_with_its_hook_in_a_module(package):
    (package / "src").mkdir()
    (package / "acme_rl").rename(package / "src/acme_rl")
    (package / "src/acme_rl/__init__.py").rename(package / "src/acme_rl/plugin.py")
    (package / "src/acme_rl/__init__.py").write_text("")
    project = package / "pyproject.toml"
    project.write_text(project.read_text().replace('acme_rl = "acme_rl"', 'acme_rl = "acme_rl.plugin"'))
    add(package, "reward", "near")
    assert (package / "src/acme_rl/near.py").is_file()
    assert (package / "tests/test_near.py").is_file()
    assert '"acme_rl.near:near"' in (package / "src/acme_rl/plugin.py").read_text()


def test_a_hook_that_is_elsewhere_is_left_to_the_author(package):
    (package / "acme_rl/__init__.py").write_text("from acme_rl.hooks import dovetail_components\n")
    said = add(package, "policy_loss", "softer")
    assert said[1] == (
        "not registered: add this to the hook dovetail_components, wherever it is:"
        ' register("policy_loss", "softer", "acme_rl.softer:softer")'
    )


HOOKS = {
    "a return behind it": ("    register(*first)\n    return None\n", "    register(*first)\n    {}    return None\n"),
    "a return alone": ("    return\n", "    {}    return\n"),
    "a loop": ("    for each in all_of_them:\n        register(*each)\n", None),
}


@pytest.mark.parametrize(("body", "then"), HOOKS.values(), ids=HOOKS)
def test_it_is_registered_where_the_hook_gets_to(package, body, then):
    hook = package / "acme_rl/__init__.py"
    begin = "def dovetail_components(register):\n"
    hook.write_text(f"{begin}{body}")
    said = add(package, "policy_loss", "softer")
    call = 'register("policy_loss", "softer", "acme_rl.softer:softer")\n'
    assert said[1] == f"registered it in {hook}"
    assert hook.read_text() == begin + (f"{body}    {call}" if then is None else then.format(call))


@pytest.mark.parametrize(
    "text",
    [
        "def dovetail_components(register): register(*first)\n",
        "def dovetail_components(register):\n    register(*first); return\n",
        "def dovetail_components(register):\n    if not wanted:\n        return\n    register(*first)\n",
        "def dovetail_components(register):\n    register(*first)\n    raise NotImplementedError\n",
    ],
)
def test_a_hook_whose_end_may_not_be_reached_is_left_to_the_author(package, text):
    hook = package / "acme_rl/__init__.py"
    hook.write_text(text)
    assert add(package, "policy_loss", "softer")[1].startswith("not registered: add this to the hook")
    assert hook.read_text() == text


def test_contracts_come_in_the_order_of_the_components(package):
    add(package, "reward", "near")
    add(package, "kl", "far")
    text = (package / "pyproject.toml").read_text()
    assert 'policy_loss = "v1"\nreward = "v1"\nkl = "v1"\n' in text


def test_a_table_of_contracts_at_the_end_of_the_file(package):
    project = package / "pyproject.toml"
    project.write_text(
        '[project]\nname = "acme-rl"\nversion = "1"\n[project.entry-points.dovetail]\nacme_rl = "acme_rl"\n\n'
        '[project.entry-points."dovetail.api"]\npolicy_loss = "v1"'
    )
    add(package, "reward", "near")
    assert project.read_text().endswith('\npolicy_loss = "v1"\nreward = "v1"\n')


def test_a_package_in_a_folder_that_other_distributions_share(package):
    (package / "acme").mkdir()
    (package / "acme_rl").rename(package / "acme/rl")
    project = package / "pyproject.toml"
    project.write_text(project.read_text().replace('acme_rl = "acme_rl"', 'acme_rl = "acme.rl"'))
    add(package, "reward", "near")
    assert (package / "acme/rl/near.py").is_file()
    assert [path.name for path in (package / "acme").iterdir()] == ["rl"]
    assert '"acme.rl.near:near"' in (package / "acme/rl/__init__.py").read_text()


def test_line_ends_stay_as_they_are(package):
    files = package / "acme_rl/__init__.py", package / "pyproject.toml"
    for file in files:
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    add(package, "reward", "near")
    for file in files:
        text = file.read_bytes()
        assert b"reward" in text
        assert text.count(b"\n") == text.count(b"\r\n")


@pytest.mark.parametrize(
    ("source", "said"), [(b"def f(:\n", r"line 1: invalid syntax; correct it first"), (b"# \xff\n", "cannot be read: ")]
)
def test_where_the_hook_cannot_be_read_nothing_is_written(package, source, said):
    hook = package / "acme_rl/__init__.py"
    hook.write_bytes(source)
    with pytest.raises(ConfigError, match=rf"acme_rl/__init__\.py'.*{said}"):
        add(package, "policy_loss", "softer")
    assert not (package / "acme_rl/softer.py").exists()


def test_one_name_in_two_kinds(package, capsys):
    assert main(["plugin", "add", "advantage", "soft_clip", "--to", str(package)]) == 1
    said = capsys.readouterr().err
    assert "acme_rl/soft_clip.py' exists already and is not overwritten; choose another file with --file" in said
    assert said.endswith("such as --file soft_clip_advantage\n")
    command = ["plugin", "add", "advantage", "soft_clip", "--to", str(package), "--file", "soft_clip_advantage"]
    assert main(command) == 0
    hook = (package / "acme_rl/__init__.py").read_text()
    assert 'register("advantage", "soft_clip", "acme_rl.soft_clip_advantage:soft_clip")' in hook
    assert "def soft_clip(" in (package / "acme_rl/soft_clip_advantage.py").read_text()
    assert (package / "tests/test_soft_clip_advantage.py").is_file()


def test_what_cannot_be_added_to(package, tmp_path):
    add(package, "policy_loss", "softer")
    written = (package / "acme_rl/softer.py").read_text()
    with pytest.raises(ConfigError, match=r"acme_rl/softer\.py' exists already and is not overwritten"):
        add(package, "policy_loss", "softer")
    assert (package / "acme_rl/softer.py").read_text() == written
    with pytest.raises(ConfigError, match=r"there is no '.*pyproject\.toml'; run this in the folder of a plugin"):
        add(tmp_path / "nowhere", "policy_loss", "softer")
    project = package / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace('acme_rl = "acme_rl"', 'acme_rl = "acme_lr"'))
    with pytest.raises(ConfigError, match=r"names the module 'acme_lr', which is neither in '.*' nor in its 'src'"):
        add(package, "policy_loss", "another")
    project.write_text('[project]\nname = "acme-rl"\n')
    with pytest.raises(ConfigError, match="has no entry point in the group 'dovetail', so it is not a plugin's"):
        add(package, "policy_loss", "another")
    for odd in ("entry-points = ['one']\n", "[project.entry-points]\ndovetail = 'one'\n"):
        project.write_text(f'[project]\nname = "acme-rl"\n{odd}')
        with pytest.raises(ConfigError, match="has no entry point in the group 'dovetail'"):
            add(package, "policy_loss", "another")
    project.write_text("[project]\nname = 3\n")
    with pytest.raises(ConfigError, match=r"has no project\.name"):
        add(package, "policy_loss", "another")
    project.write_text("[project\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml' cannot be read: "):
        add(package, "policy_loss", "another")
    project.write_text('[project]\nname = "one"\nentry-points.dovetail.one = "one"\n')
    (package / "one.py").write_text("")
    with pytest.raises(ConfigError, match=r"one\.py' is a single module; make a package of it"):
        add(package, "policy_loss", "another")
