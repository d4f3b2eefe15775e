"""Changes to a test after its registration are detected, and weaken the verdict."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.ab.stub import ARMS, QUICK, ab, train

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.config.located import begun_in, note_files
from dovetail.errors import RunError
from dovetail_lab.ab import registration, sources
from dovetail_lab.ab.commands import DECIDED, UNDECIDED
from dovetail_lab.sweep import Store

FOLDER = Path("ab/mine")


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """The folder of the decided test, which is kept because creating it takes seconds."""
    return tmp_path_factory.mktemp("kept") / "test"


@pytest.fixture
def decided(here, capsys, kept):
    """A test of six pairs with a winner, and a function that returns the current `dovetail report` from ab.md."""
    if not kept.exists():
        assert ab(*ARMS, *QUICK, "--min-effect", "0.01") == DECIDED
        shutil.copytree(FOLDER, kept)
    shutil.copytree(kept, FOLDER, dirs_exist_ok=True)
    capsys.readouterr()

    def report() -> str:
        assert main(["report", str(FOLDER)]) == 0
        return (FOLDER / "ab.md").read_text()

    return report


def again(capsys, *arguments: str) -> str:
    """Return the only line of the error of the same command."""
    capsys.readouterr()
    assert ab(*ARMS, *QUICK, "--min-effect", "0.01", *arguments) == 1
    return capsys.readouterr().err


def rewrite(file: str, before: str, after: str) -> None:
    text = (FOLDER / file).read_text()
    assert before in text
    (FOLDER / file).write_text(text.replace(before, after))


def test_what_nobody_touched_is_confirmatory_and_says_what_protects_it(decided):
    text = decided()
    assert "Not confirmatory" not in text
    seal = json.loads((FOLDER / "journal.jsonl").read_text().splitlines()[0])["hash"]
    assert f"seal `{seal[:12]}`" in text
    assert "## What this record protects" in text
    assert json.loads((FOLDER / "ab.json").read_text())["result"]["doubts"] == []


def test_a_registration_that_was_edited_is_named_and_not_continued(decided, capsys):
    rewrite("ab.json", '"min_effect": 0.01', '"min_effect": 0.3')
    assert "ab.json is not what was registered, by journal.jsonl: min_effect: 0.01 -> 0.3" in decided()
    assert "min_effect: 0.01 -> 0.3. Put it back as it was" in again(capsys)


def test_a_registration_that_was_edited_in_its_copies_breaks_the_chain(decided):
    for file in ("ab.json", "sweep.json", "journal.jsonl"):
        rewrite(file, '"min_effect": 0.01', '"min_effect": 0.3')
    assert "line 1 of journal.jsonl was changed after it was written" in decided()


def test_a_registration_that_was_deleted_is_not_made_anew(decided, capsys):
    (FOLDER / "ab.json").unlink()
    assert "no ab.json: it is a sweep's folder, or a test whose registration is gone" in again(capsys)
    assert "registration is gone" in again(capsys, "--metric", "reward/mean")
    (FOLDER / "journal.jsonl").unlink()
    assert "registration is gone" in again(capsys, "--metric", "reward/mean")


def test_runs_that_are_older_than_their_registration_confirm_nothing(decided, capsys):
    for file in ("ab.json", "journal.jsonl", "sweep.json"):
        (FOLDER / file).unlink()
    for state in FOLDER.glob("trials/*/state.json"):
        written = json.loads(state.read_text())
        state.write_text(json.dumps(written | {"started": written["started"] - 60}))
    assert ab(*ARMS, *QUICK, "--metric", "reward/mean") == UNDECIDED
    out = capsys.readouterr().out
    assert re.search(r"Not confirmatory: it was registered on .*, after the first run had started, on ", out)


def test_a_record_of_a_run_that_was_edited_is_named(decided):
    run = Store.open(FOLDER).trials[0]
    rewrite(f"trials/{run.id}/metrics.jsonl", '"eval/accuracy": 0.', '"eval/accuracy": 0.9')
    assert f"the record of run {run.id} was changed after the run had finished" in decided()


def test_a_failed_run_that_is_made_again_after_the_verdict_is_named(here, capsys):
    def crash(folder: Path) -> None:
        if "train.lr = 0.2" in (folder / "config.gin").read_text():
            raise RunError("policy_loss/loss is nan at rl step 3")
        train(load(folder / "config.gin"), folder)

    here[1] = crash
    assert ab(*ARMS, *QUICK) == UNDECIDED
    here.clear()
    assert ab(*ARMS, *QUICK) == UNDECIDED, "six pairs would decide, if all were made as registered"
    assert "up, seed 1 was run again after a look at the results: failed before, done now" in capsys.readouterr().out


def test_an_amendment_after_a_look_is_not_confirmatory(decided, capsys):
    assert ab(*ARMS, *QUICK, "--min-effect", "0.01", "--seeds", "8", "--amend", "two more") == UNDECIDED
    assert "Not confirmatory: the design was amended after a look at the results: seeds: [0, 1," in (
        capsys.readouterr().out
    )
    assert '<div class="verdict warn"><strong>Not confirmatory.' in (FOLDER / "ab.html").read_text()


def test_an_amendment_before_any_look_is_confirmatory(here, capsys):
    def stop(folder: Path) -> None:
        raise KeyboardInterrupt

    here[3] = stop
    assert ab(*ARMS, *QUICK) == 130
    here.clear()
    assert ab(*ARMS, *QUICK, "--seeds", "8", "--amend", "more power") == DECIDED
    assert "Not confirmatory" not in capsys.readouterr().out


def test_sources_that_change_between_the_runs_are_named(here, capsys, monkeypatch):
    hashes = {"dovetail": "1", "dovetail_loss": "2"}
    monkeypatch.setattr(sources, "hashes", lambda packages: dict(hashes))

    def edit(folder: Path) -> None:
        hashes["dovetail_loss"] = "3"
        train(load(folder / "config.gin"), folder)

    here[2] = edit
    assert ab(*ARMS, *QUICK) == UNDECIDED
    assert "the sources of dovetail_loss changed between the runs" in capsys.readouterr().out


def test_the_registration_holds_the_packages_in_use_by_their_files(decided):
    record = json.loads((FOLDER / "ab.json").read_text())
    assert {"dovetail", "dovetail_loss", "dovetail_advantage"} <= record["sources"].keys()
    assert "dovetail_kit" not in record["sources"]


def test_a_hash_of_sources_is_of_names_and_contents(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sources.hashes(["some_package", "no_such_package"])
    assert before.keys() == {"some_package"}
    assert before == sources.hashes(["some_package"])
    (package / "__init__.py").write_text("x = 2\n")
    assert sources.changed(before, sources.hashes(["some_package"])) == ["some_package"]


PLUGIN = """import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "{name}", "{name}:loss")


def loss(logps, advantages, mask):
    return -logps * advantages
"""


@pytest.fixture
def plugin_file(tmp_path, monkeypatch):
    """A single-file plugin that is loaded for one test."""
    file = tmp_path / "loss_of_one_file.py"
    file.write_text(PLUGIN.format(name=file.stem))
    monkeypatch.setenv("DOVETAIL_PLUGINS", "")
    dovetail.registry.add_file(str(file))
    yield file
    monkeypatch.undo()
    dovetail.registry._discovered.cache_clear()
    sys.modules.pop(file.stem, None)


def test_a_single_file_plugin_has_a_hash(plugin_file):
    in_use = sources.in_use([load(None, [f"train.policy_loss={plugin_file.stem}"])])
    before = sources.hashes(in_use)
    assert plugin_file.stem in before
    plugin_file.write_text(plugin_file.read_text() + "# edited\n")
    assert sources.changed(before, sources.hashes(before)) == [plugin_file.stem]


def test_plugins_that_act_through_hooks_alone_are_in_use():
    in_use = sources.in_use([load(None)])
    assert {"dovetail_lab", "dovetail_executor", "dovetail_rollout", "dovetail_sink"} <= set(in_use)
    assert "dovetail_kit" not in in_use, "what only warns does not change a run"


def test_a_file_that_a_parameter_names_has_a_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewards = Path("rewards.py")
    rewards.write_text("def near(completions):\n    return [1.0 for _ in completions]\n")
    config = load(None, ["train.rewards=functions", "reward.functions.path=rewards.py", "reward.functions.name=near"])
    before = sources.hashes(sources.in_use([config]))
    assert "rewards.py" in before
    note_files(tmp_path, config)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with begun_in(tmp_path):
        assert sources.changed(before, sources.hashes(before)) == []
    monkeypatch.chdir(tmp_path)
    rewards.write_text(rewards.read_text().replace("1.0", "0.5"))
    assert sources.changed(before, sources.hashes(before)) == ["rewards.py"]


def test_commits_are_those_of_the_checkouts_and_say_if_files_differ(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "committed_package").mkdir()
    files = [tmp_path / name for name in ("committed_package/__init__.py", "mine.py", "untracked.py")]
    for file in files:
        file.write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    git("init", "--quiet")
    git("add", "committed_package", "mine.py")
    git("commit", "--quiet", "-m", "first")
    head, names = git("rev-parse", "--short=12", "HEAD"), ["committed_package", str(files[1]), str(files[2])]
    assert sources.commits(names) == {names[0]: head, names[1]: head}, "the third belongs to no commit"
    files[0].write_text("x = 2\n")
    assert sources.commits(names) == {names[0]: f"{head}+", names[1]: head}


def test_another_version_of_a_package_after_a_look_is_not_confirmatory(decided, capsys, monkeypatch):
    versions = registration._versions
    monkeypatch.setattr(registration, "_versions", lambda configs: versions(configs) | {"jax": "99.0"})
    assert ab(*ARMS, *QUICK, "--min-effect", "0.01", "--amend", "upgraded") == UNDECIDED
    said = "Not confirmatory: the design was amended after a look at the results: version of jax: "
    assert said in capsys.readouterr().out


def test_a_repeated_comparison_says_so(decided, capsys):
    assert ab(*ARMS, *QUICK, "--folder", "other/place") == 1
    assert "'ab/mine' has compared these arms" in capsys.readouterr().err
    assert ab(*ARMS, *QUICK, "--folder", "ab/again", "--repeat") == UNDECIDED
    assert "Not confirmatory: these seeds were compared before, in ab/mine" in capsys.readouterr().out


def test_tables_of_its_sweep_hide_the_arms_until_it_has_ended(here, capsys):
    def stop(folder: Path) -> None:
        raise KeyboardInterrupt

    here[3] = stop
    assert ab(*ARMS, *QUICK) == 130
    capsys.readouterr()
    for command in (["table"], ["export"], ["export", "--format", "html"]):
        assert main(["sweep", command[0], str(FOLDER), *command[1:]]) == 1
        found = capsys.readouterr()
        assert "is not shown before it has ended" in found.err
        assert not found.out
    here.clear()
    assert ab(*ARMS, *QUICK) == DECIDED
    assert main(["sweep", "table", str(FOLDER)]) == 0


def test_a_journal_that_was_written_anew_has_another_seal(decided):
    first = re.search(r"seal `(\w+)`", decided())
    lines = [json.loads(line) for line in (FOLDER / "journal.jsonl").read_text().splitlines()]
    lines[0]["registration"]["design"]["min_effect"] = 0.3
    previous = ""
    for line in lines:
        content = {key: value for key, value in line.items() if key != "hash"}
        previous = line["hash"] = hashlib.sha256((previous + json.dumps(content, sort_keys=True)).encode()).hexdigest()
    (FOLDER / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for file in ("ab.json", "sweep.json"):
        rewrite(file, '"min_effect": 0.01', '"min_effect": 0.3')
    text = decided()
    assert "Not confirmatory" not in text, "the limit that ab.md speaks of"
    assert first
    assert first[1] not in text
