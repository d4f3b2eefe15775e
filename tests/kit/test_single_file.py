"""`dovetail plugin new FILE.py` writes, for every kind, a file that lints, is a plugin, and conforms."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.programs import shared

from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.registry import current, discover, one_file
from dovetail_kit.doctor import examine
from dovetail_kit.mutants.examination import examine as examine_examples
from dovetail_kit.single_file import NewFile

KINDS = sorted(current().kinds)
WITHOUT_EXAMPLES = {"architecture", "executor", "launcher", "pool", "rollout", "sampling_preset", "sizing"}
SAME_RESULTS = {
    "correction": ["log_ratio(old_logps, rollout_logps, mask | True)"],  # what is outside is left out once more
    "model": ["rngs"],  # in place of `place`, which the decoder inside ignores: it is small and stays on one device
}
"""Changes that no example can notice."""


@pytest.fixture(autouse=True)
def not_imported(monkeypatch):
    """The file of one test is not a module that another one finds."""
    monkeypatch.delitem(sys.modules, "my_loss", raising=False)
    yield
    sys.modules.pop("my_loss", None)


def of(path="my_loss.py", kind="policy_loss", name="soft_clip"):
    return NewFile.of(Path(path), kind, name, current())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file for every kind, in a folder with the linter's rules of a package."""
    folder = tmp_path_factory.mktemp("files")
    package = of().written.files()["pyproject.toml"]
    (folder / "pyproject.toml").write_text(package[package.index("[tool.ruff]") :])
    for kind in KINDS:
        of(folder / f"my_{kind}.py", kind, "gspo_plus").write()
    return folder


def test_every_file_is_formatted_and_linted(files):
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."],
            cwd=files,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_registers_what_was_asked_for(files, monkeypatch):
    monkeypatch.setenv(one_file.FILES, os.pathsep.join(str(files / f"my_{kind}.py") for kind in KINDS))
    registry, _ = discover()
    assert registry.problems == []
    for kind in KINDS:
        assert registry.get(kind, f"my_{kind}/gspo_plus").summary, kind
        assert [finding for finding in examine(f"my_{kind}", registry) if finding.level == "error"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_of_a_file_notice_every_change_of_what_it_computes(files, monkeypatch, kind):
    monkeypatch.setenv(one_file.FILES, str(files / f"my_{kind}.py"))
    registry, _ = discover()
    verdict = examine_examples(registry.get(kind, f"my_{kind}/gspo_plus"))
    unnoticed = [change.after for change in verdict.unnoticed] if verdict else None
    assert unnoticed == (None if kind in WITHOUT_EXAMPLES else SAME_RESULTS.get(kind, []))


@pytest.mark.slow
def test_files_conform(files):
    kinds = ("policy_loss", "reward", "sink")
    named = [f"--dovetail-dist=my_{kind}.py" for kind in kinds]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named],
        cwd=files,
        env=os.environ | shared() | {"XDG_CACHE_HOME": str(files / "cache"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert tuple(re.findall(r"[1-9]\d* checks of my_(\w+)", done.stdout)) == kinds, done.stdout


def test_the_command_says_how_to_try_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(one_file.FILES, "")
    assert main(["plugin", "new", "my_loss.py", "policy_loss", "soft_clip"]) == 0
    assert capsys.readouterr().out == (
        "my_loss.py has the policy_loss 'soft_clip' and the hook that registers it\n\n"
        '  dovetail train quickstart --plugin my_loss.py --set "train.policy_loss=soft_clip"\n'
        "  pytest --dovetail-dist=my_loss.py\n"
        "  dovetail plugin mutants my_loss.py\n"
    )
    assert main(["plugin", "new", "my_loss.py", "policy_loss", "soft_clip", "--out", "elsewhere"]) == 0
    assert (tmp_path / "elsewhere" / "my_loss.py").read_text() == (tmp_path / "my_loss.py").read_text()
    capsys.readouterr()
    assert main(["plugin", "mutants", "my_loss.py"]) == 0
    assert re.fullmatch(
        r"policy_loss.soft_clip: its examples notice (\d+) of \1 changes\n(.*\n)*", capsys.readouterr().out
    )


def test_what_a_sweep_uses_is_tried_in_one():
    first, *_ = of(kind="sampler").commands(current())
    assert first.endswith('--plugin my_loss.py --set "sweep.sampler=soft_clip"')
    assert first.startswith("dovetail sweep quickstart --random 8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"path": "json.py"}, "a module 'json' exists already and would be hidden; give json.py another name"),
        ({"path": "attrs.py"}, "a module 'attrs' exists already and would be hidden; give attrs.py another name"),
        ({"path": "my-loss.py"}, "'my-loss' is not a name for a module; use letters, digits and '_': my_loss.py"),
        ({"path": "my.loss.py"}, "'my.loss' is not a name for a module; use letters, digits and '_'"),
        ({"path": "2fast.py"}, "'2fast' is not a name for a module; use letters, digits and '_'"),
        ({"kind": "policyloss"}, "unknown kind 'policyloss'. Did you mean 'policy_loss'"),
        ({"name": "masked"}, "'masked' cannot be the name of a component of kind policy_loss"),
        ({"name": "dovetail"}, "'dovetail' cannot be the name of a component of kind policy_loss"),
    ],
)
def test_wrong_words_are_refused_in_one_line(words, message):
    with pytest.raises(DovetailError, match=re.escape(message)) as caught:
        of(**words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["early_stopping", "kl", "policy_loss"])
@pytest.mark.parametrize("name", ["new", "old"])
def test_ordinary_words_are_names(kind, name):
    assert f"def {name}(" in of(kind=kind, name=name).text


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_loss.py").write_text("years of work")
    assert main(["plugin", "new", "my_loss.py", "reward", "r"]) == 1
    assert capsys.readouterr().err == "error: 'my_loss.py' exists already and is not overwritten; choose another name\n"
    assert main(["plugin", "new", "another.py", "policy_loss", "mine", "--out", "my_loss.py/x"]) == 1
    assert (
        capsys.readouterr().err == "error: 'my_loss.py/x/another.py' cannot be written: my_loss.py/x: Not a directory\n"
    )
