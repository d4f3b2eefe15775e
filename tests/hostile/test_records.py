"""Records of runs, sweeps and A/B tests with something else in any place: shown, or refused in one line."""

import copy
import json
import random
from pathlib import Path

import pytest
from tests.hostile.case import contents
from tests.lab.ab import stub

from dovetail.cli import main

ODD = (
    [1], {"a": {}}, [[]], None, True, -1, 0, 1.5, 10**400, float("nan"), float("inf"), "", "x", "²", "\ud800",
    "../../../x", "\x1b[31m<script>",
)  # fmt: skip
RUN = {
    "r/run.json": {"config_id": "c", "run_id": "c-s0"},
    "r/environment.json": [
        {"time": "t", "command": ["a"], "plugins": {"a": "1"}, "libraries": {"a": "1"}, "platform": "p", "cpus": 2, "python": "3"}
    ],
    "r/metrics.jsonl": [
        {"phase": "rl", "step": 1, "eval/accuracy": 0.5, "reward/mean": 0.5, "odd": 1},
        {"phase": "rl", "step": 2, "eval/accuracy": 0.5, "reward/mean": 0.25, "odd": 1},
    ],
    "r/timings.jsonl": [{"phase": "sft", "step": 1, "time/update": 1.0}, {"phase": "rl", "step": 1, "time/update": 1.0}],
    "r/spans.jsonl": [{"phase": "rl", "step": 1, "spans": [["trainer", 1, "update", 1.0, 2.0], ["sampler", 1, "rollout", 1.0, 2.0]]}],
    "r/eval.jsonl": [{"phase": "rl", "step": 2, "accuracy": [1, 0, None]}],
    "r/samples.jsonl": [
        {"phase": "rl", "step": 2, "prompt": "p", "completion": "c", "score": 1.0, "expected": "e", "ended": "done",
         "columns": {"level": 3},
         "turn_rewards": [0.5], "messages": [{"role": "assistant", "content": "c", "name": "n"}]}
    ],
}  # fmt: skip


def places(value, path=()):
    """Yield the path of every value in JSON."""
    yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(each, (*path, key))


def changed(value, path, odd):
    """Return JSON with another value in a place."""
    if not path:
        return odd
    made = copy.copy(value)
    made[path[0]] = changed(value[path[0]], path[1:], odd)
    return made


def read(file: Path):
    text = file.read_text()
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)


def write(file: Path, value) -> None:
    if file.suffix == ".jsonl" and isinstance(value, list):
        file.write_text("".join(json.dumps(line) + "\n" for line in value))
    else:
        file.write_text(json.dumps(value))


def attempt(command, capsys):
    """Run a command that only reads: it shows what is there, or says in a line what is wrong."""
    before = contents(Path())
    status = main(command.split())
    shown = capsys.readouterr()
    assert status in (0, 1, 3), shown.err
    assert status != 1 or (shown.err.startswith("error: ") and shown.err.count("\n") == 1), shown.err
    assert "unforeseen" not in shown.err, shown.err
    assert "\x1b" not in shown.out + shown.err
    after = contents(Path())
    made = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not {name for name in made if not name.endswith((".html", "ab.md", "ab.json"))}
    for name in made:
        file = Path(name)
        file.write_bytes(before[name]) if name in before else file.unlink()


def try_all(file: Path, commands, capsys, share: float) -> list[str]:
    wrong = []
    value, chance = read(file), random.Random(str(file))
    text = file.read_bytes()
    for path in places(value):
        for odd in ODD:
            if chance.random() < share:
                write(file, changed(value, path, odd))
                for command in commands:
                    try:
                        attempt(command, capsys)
                    except AssertionError as error:
                        wrong.append(f"{file} {path} = {odd!r:.80}, {command}: {str(error)[:400]}")
    file.write_bytes(text)
    return wrong


@pytest.mark.parametrize("share", [0.03, pytest.param(0.3, marks=pytest.mark.slow)])
def test_a_run(share, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r").mkdir()
    for name, value in RUN.items():
        write(Path(name), value)
    Path("r/config.gin").write_text("")
    assert not [each for name in RUN for each in try_all(Path(name), ["report r"], capsys, share)]


@pytest.fixture
def tested(tmp_path, monkeypatch):
    """Return the folder of an A/B test that has come to its end without training, and one of its trials' in it."""
    stub.without_processes(tmp_path, monkeypatch)
    assert stub.ab(*stub.ARMS, *stub.QUICK, "--folder", "r") in (0, 3)
    return Path("r"), next(Path("r/trials").iterdir())


@pytest.mark.slow
def test_a_sweep(tested, capsys):
    folder, trial = tested
    (folder / "ab.json").unlink()
    exports = [f"sweep export r --format {form}" for form in ("csv", "json")]
    commands = ["sweep status r", "sweep table r", *exports, "report r"]
    files = (folder / "sweep.json", trial / "state.json", trial / "run.json")
    assert not [each for file in files for each in try_all(file, commands, capsys, 0.01)]


@pytest.mark.slow
def test_an_ab_test(tested, capsys):
    folder, trial = tested
    files = (folder / "ab.json", folder / "journal.jsonl", folder / "sweep.json", trial / "state.json")
    assert not [each for file in files for each in try_all(file, ["report r"], capsys, 0.005)]
