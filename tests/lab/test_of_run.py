"""What a run's folder says of how it was begun."""

import json
import re
import warnings

import pytest

from dovetail.config import load
from dovetail.config.dump import dump
from dovetail.errors import ConfigError, DovetailWarning, RunError
from dovetail.run.code import CODE, codes
from dovetail.run.folder import CONFIG, ENVIRONMENT
from dovetail_lab.of_run import COMPLETES, SCORES, WEIGHTS, load_of_run, mark_of_settings, warn_of_other_code


@pytest.fixture
def config():
    return load(None, ["train.rewards=exact_match"])


@pytest.fixture
def run(tmp_path, config):
    (tmp_path / CODE).write_text(json.dumps(codes(config)))
    return tmp_path


def edit(run, *names):
    noted = json.loads((run / CODE).read_text())
    assert noted.keys() >= {*names}
    (run / CODE).write_text(json.dumps(noted | dict.fromkeys(names, "0" * 16)))


def test_other_code_is_said_with_its_place_and_marked(run, config):
    assert warn_of_other_code(run, config, SCORES) == ""
    edit(run, "reward.exact_match of dovetail")
    said = rf"the code of reward\.exact_match of dovetail .* \[.*\.py:\d+\] has changed since the run in '{run}' began"
    with pytest.warns(DovetailWarning, match=said):
        mark = warn_of_other_code(run, config, SCORES, "; see {mark}")
    assert re.fullmatch("code-[0-9a-f]{8}", mark)
    with pytest.warns(DovetailWarning, match=f"; see {mark}$"):
        assert warn_of_other_code(run, config, SCORES, "; see {mark}") == mark


def test_code_that_a_command_does_not_use_does_not_matter(run, config):
    edit(run, "optimizer.adamw of dovetail", "reward.exact_match of dovetail")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_other_code(run, config, WEIGHTS) == ""
        assert warn_of_other_code(run, config, COMPLETES) == ""
        assert warn_of_other_code(None, config, SCORES) == ""


def test_many_are_counted(run, config):
    edit(run, *(name for name in codes(config) if name.partition(".")[0] in SCORES))
    with pytest.warns(DovetailWarning, match=r"and of \d+ more has changed"):
        warn_of_other_code(run, config, SCORES)


def began(run, command, version="0+12345678"):
    (run / ENVIRONMENT).write_text(json.dumps([{"command": command, "plugins": {"heap_task": version}}]))
    text = dump(load(None)).replace("train.task = 'arithmetic'", "train.task = 'heap_task/heaps'")
    (run / CONFIG).write_text(text)


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["dovetail", "train", "--plugin", "mine/heap_task.py"], "mine/heap_task.py"),
        (["dovetail", "train", "--plugin=heap_task.py"], "heap_task.py"),
        (["dovetail", "train", "--plugin", "other.py"], "heap_task.py"),
    ],
)
def test_a_single_file_plugin_that_is_not_loaded_is_asked_for_once(tmp_path, command, file):
    began(tmp_path, command)
    with pytest.raises(RunError) as error:
        load_of_run(tmp_path, trusted=False)
    assert str(error.value) == f"the run in '{tmp_path}' was begun with --plugin {file}; repeat this command with it"


def test_a_single_file_plugin_is_named_as_it_is_found_from_here(tmp_path, monkeypatch):
    began(tmp_path, ["dovetail", "train", "--plugin", "mine/heap_task.py"])
    (start,) = json.loads((tmp_path / ENVIRONMENT).read_text())
    (tmp_path / ENVIRONMENT).write_text(json.dumps([start | {"folder": "/work"}]))
    with pytest.raises(RunError, match="was begun with --plugin /work/mine/heap_task.py; repeat"):
        load_of_run(tmp_path, trusted=False)


@pytest.mark.parametrize("record", ["[]", "{", "[3]", '[{"plugins": 3, "command": 4}]'])
def test_a_record_of_another_form_changes_nothing(tmp_path, record):
    began(tmp_path, [])
    (tmp_path / ENVIRONMENT).write_text(record)
    with pytest.raises(ConfigError, match="No plugin 'heap_task' is installed"):
        load_of_run(tmp_path, trusted=False)


def test_a_plugin_from_an_index_is_not_a_file(tmp_path):
    began(tmp_path, [], version="1.0")
    with pytest.raises(ConfigError, match="No plugin 'heap_task' is installed"):
        load_of_run(tmp_path, trusted=False)


def test_settings_other_than_those_of_a_run_have_a_mark_of_their_own(tmp_path):
    config, other = load(None), load(None, ["train.lr=0.5"])
    (tmp_path / CONFIG).write_text(dump(config))
    assert mark_of_settings(None, other) == mark_of_settings(tmp_path, config) == ""
    marks = {mark_of_settings(tmp_path, *asked) for asked in ((other,), (config, 2), (other, 2))}
    assert len(marks) == 3
    assert mark_of_settings(tmp_path, other) in marks
    (tmp_path / CONFIG).write_text("train.policy_loss = 'gone-rl/loss'\n")  # of a plugin that is not here any more
    assert mark_of_settings(tmp_path, config).startswith("config-")
