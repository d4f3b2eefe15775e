"""Run folders that are damaged or of unknown origin: they are only read, and every defect is reported."""

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from tests.hostile.case import USAGE, Case, attempt, attempt_call, contents

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, RunError
from dovetail.run.checkpoint import Checkpoints, Saved
from dovetail.run.files import read_lines
from dovetail.run.folder import open_folder
from dovetail.run.sources import kept_in
from dovetail.training.settled import _kept
from dovetail_lab.evaluation.lines import open_lines
from dovetail_lab.one_run import open_run

RUN = {
    "r/run.json": '{"config_id": "c", "run_id": "c-s0"}',
    "r/environment.json": "[]",
    "r/config.gin": "",
    "r/metrics.jsonl": '{"phase": "rl", "step": 0, "loss": 1.0}\n',
    "r/timings.jsonl": '{"phase": "rl", "step": 0, "time/step": 1.0}\n',
    "r/samples.jsonl": "",
}


SWEEP = {
    "format": 1,
    "metric": "score",
    "goal": "max",
    "trials": [{"overrides": [], "seed": 0, "id": "../../mine", "group": "g"}],
}


def damaged(pattern: str, **changes: str | bytes | None) -> Case:
    """Return a case of a report about a run with some files replaced."""
    files = RUN | {f"r/{name.replace('__', '.')}": content for name, content in changes.items()}
    return Case("report r", pattern, files=files)


ELSEWHERE = "train.task = 'records'\ntask.records.path = 'own.jsonl'\n"
CASES = {
    "run.json empty": damaged(r"r/run\.json' cannot be read: not valid JSON", run__json=""),
    "run.json cut short": damaged(r"r/run\.json' cannot be read: not valid JSON", run__json='{"run_id": "c'),
    "run.json of bytes": damaged(r"r/run\.json' cannot be read: not UTF-8 text", run__json=b"\xff\xfe"),
    "run.json that is a list": damaged(r"r/run\.json' has no 'run_id'", run__json="[]"),
    "run.json without an id": damaged(r"r/run\.json' has no 'run_id'", run__json="{}"),
    "run.json with a number": damaged(r"r/run\.json' has no 'run_id', or not as str", run__json='{"run_id": 3}'),
    "run.json 100,000 deep": damaged(r"r/run\.json' cannot be read: not valid JSON", run__json="[" * 100_000),
    "environment.json cut short": damaged("'r' cannot be read", environment__json="["),
    "environment.json of numbers": damaged(r"environment\.json' does not hold a list", environment__json="[3]"),
    "metrics with a broken line": damaged(r"r/metrics\.jsonl:1: not valid JSON", metrics__jsonl="{\n"),
    "metrics that are a list": damaged(r"r/metrics\.jsonl:1: not a record", metrics__jsonl="[]\n"),
    "metrics 100,000 deep": damaged(r"r/metrics\.jsonl:1: not valid JSON", metrics__jsonl="[" * 100_000 + "\n"),
    "metrics without a step": damaged(r"r/metrics\.jsonl:1: .*'step'", metrics__jsonl='{"phase": "rl"}\n'),
    "metrics of a step that is text": damaged(
        r"r/metrics\.jsonl:1: .*'step'", metrics__jsonl='{"phase": "rl", "step": "<b>"}\n'
    ),
    "metrics of a step beyond counting": damaged(
        r"r/metrics\.jsonl:1: 'step' is 10{21}, not a whole number",
        metrics__jsonl='{"phase": "rl", "step": 1%s}\n' % ("0" * 21),
    ),
    "metrics whose differences are infinite": Case(
        "report r",
        "",
        status=0,
        files=RUN
        | {
            "r/metrics.jsonl": "".join(
                json.dumps({"phase": "rl", "step": step, "eval/accuracy": value}) + "\n"
                for step, value in enumerate([1.7e308, -1.7e308, 0.5])
            )
        },
    ),
    "metrics that are text": damaged(
        r"r/metrics\.jsonl:1: 'loss' is 'low', not a number",
        metrics__jsonl='{"phase": "rl", "step": 0, "loss": "low"}\n',
    ),
    "timings of bytes": damaged(r"r/timings\.jsonl:1: not valid JSON", timings__jsonl=b"\xff\xfe\n"),
    "spans of numbers": damaged(r"r/spans\.jsonl:1: .*is not a span", spans__jsonl='{"spans": [3]}\n'),
    "samples that are null": damaged(r"r/samples\.jsonl:1: not a record", samples__jsonl="null\n"),
    "a config that is a folder": Case("replay r", r"config\.gin", files={"r/config.gin": None}),
    "an environment that is a pipe": Case(
        "report r",
        "'r' cannot be read: it is not a file",
        files={name: text for name, text in RUN.items() if "environment" not in name},
        prepare=lambda folder: os.mkfifo(folder / "r/environment.json"),
    ),
    "a config that is a pipe": Case(
        "report r",
        "",
        status=0,
        files={name: text for name, text in RUN.items() if "config" not in name},
        prepare=lambda folder: os.mkfifo(folder / "r/config.gin"),
    ),
    "a trial elsewhere": Case(
        "sweep kill r ../../mine",
        r"r/sweep\.json' has a trial that cannot be read: '\.\./\.\./mine' cannot be the id of a run",
        files={"r/sweep.json": json.dumps(SWEEP), "mine/state.json": "{}"},
    ),
    "sweep.json 100,000 deep": Case(
        "report r", r"r/sweep\.json' cannot be read", files={"r/sweep.json": "[" * 100_000}
    ),
    "sweep.json cut short": Case("report r", r"r/sweep\.json' cannot be read", files={"r/sweep.json": "{"}),
    "sweep.json of another version": Case("sweep status r", "is not a record of a sweep", files={"r/sweep.json": "{}"}),
    "files of a folder with control characters": Case(
        "config show r/config.gin",
        r"r/config\.gin:2: task\.records\.path = 'own\.jsonl' is not in '/tmp/.*31m', where it was",
        status=0,
        files={"r/config.gin": ELSEWHERE, "r/files.json": json.dumps({"own.jsonl": "/tmp/\x1b[31m"})},
    ),
    "files of a folder with a null": Case(
        "config show r/config.gin",
        r"is not in '/tmp/.*', where it was",
        status=0,
        files={"r/config.gin": ELSEWHERE, "r/files.json": json.dumps({"own.jsonl": "/tmp/\0"})},
    ),
    "files.json 100,000 deep": Case(
        "config show r/config.gin", "", status=0, files={"r/config.gin": ELSEWHERE, "r/files.json": "[" * 100_000}
    ),
    "files.json is a pipe": Case(
        "config show r/config.gin",
        "",
        status=0,
        files={"r/config.gin": ELSEWHERE},
        prepare=lambda folder: os.mkfifo(folder / "r/files.json"),
    ),
    "ab.json cut short": Case("report r", r"r/ab\.json' is not a readable record", files={"r/ab.json": "{"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_run_folder(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)


PROGRAM = "import pathlib\npathlib.Path('ran').touch()\ndef f(completions): return [0.0]\ncompute_score = f\n"
OWN = "train.rewards = ['functions']\nreward.functions.path = 'own.py'\nreward.functions.name = 'f'\n"
STRANGERS = {
    "functions": OWN,
    "compute_score": "train.rewards = ['compute_score']\nreward.compute_score.path = 'own.py'\n",
    "remote": "train.rewards = ['remote']\nreward.remote.url = 'http://127.0.0.1:9'\n",
    "a variable for a server": "train.rewards = ['remote']\nreward.remote.token_variable = 'HOME'\nreward.remote.url = 'http://127.0.0.1:9'\n",
    "vllm by a command": "train.rollout = 'vllm'\nrollout.vllm.command = './own.py'\n",
    "vllm by a Python": "train.rollout = 'vllm'\nrollout.vllm.python = './own.py'\n",
    "vllm with a flag": "train.rollout = 'vllm'\nrollout.vllm.flags = ('--trust-remote-code',)\n",
    "vllm at an address": "train.rollout = 'vllm'\nrollout.vllm.url = 'http://127.0.0.1:9'\n",
    "sglang_jax": "train.rollout = 'sglang_jax'\nrollout.sglang_jax.python = './own.py'\n",
    "by a macro": OWN.replace("'own.py'", "%p") + "p = 'own.py'\n",
    "by an include": "include 'more.gin'\n",
}


TRIED = [("eval --run r", config) for config in STRANGERS.values()]
TRIED += [
    (command, config)
    for command in ("generate --out o --run r", "export --out o r", "play --run r", "replay r", "report r s")
    for config in (OWN, STRANGERS["vllm by a command"])
]


@pytest.mark.parametrize(("command", "config"), TRIED)
def test_a_strangers_run_is_only_read(command, config, tmp_path, capsys, monkeypatch):
    files = RUN | {name.replace("r/", "s/"): text for name, text in RUN.items()}
    files |= {"s/run.json": RUN["r/run.json"].replace("c-s0", "c-s1"), "own.py": PROGRAM, "r/more.gin": OWN}
    refused = r"\.gin:\d.*: .* names a program to run or a server to call, and a run folder is only read; .* --trust"
    reports = command.startswith("report")
    case = Case(
        command,
        "" if reports else refused,
        status=0 if reports else 1,
        files=files | {"r/config.gin": config, "r/kept.bin": ""},
        lines=config.count("reward.remote") or 1,
    )
    attempt(case, tmp_path, capsys, monkeypatch)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="is only read"):
        open_run(tmp_path / "r").config  # noqa: B018 - that it is read is what is tried


def test_a_run_that_is_trusted_may_have_its_own_reward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(PROGRAM)
    (tmp_path / "config.gin").write_text(OWN)
    load(tmp_path / "config.gin")
    assert (tmp_path / "ran").exists()
    (tmp_path / "a.gin").write_text("train.rewards = ['functions']\nreward.functions.name = 'f'\n")
    load(tmp_path / "a.gin", ["reward.functions.path='own.py'"], trusted=False)


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[31m"


def test_a_report_shows_what_a_stranger_wrote_and_runs_none_of_it(tmp_path, monkeypatch, capsys):
    run = tmp_path / SCRIPT.replace("/", "")
    run.mkdir()
    for name, content in RUN.items():
        (run / name[2:]).write_text(content)
    record = {"phase": "rl", "step": 0, f"eval/{SCRIPT}": 1.0, SCRIPT: 0.5, "eval/accuracy": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(record | {"step": 1}) + "\n")
    sample = {"phase": "rl", "step": 0, "prompt": SCRIPT, "completion": SCRIPT, "score": 1.0, SCRIPT: SCRIPT}
    (run / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    start = {"time": SCRIPT, "command": [SCRIPT], "plugins": {SCRIPT: SCRIPT}, "backend": SCRIPT, "cpus": SCRIPT}
    (run / "environment.json").write_text(json.dumps([start]))
    (run / "run.json").write_text(json.dumps({"run_id": SCRIPT, "config_id": SCRIPT}))
    before = contents(run)
    assert main(["report", str(run), "--output", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)" in page
    tags = Tags()
    tags.feed(page)
    assert not {"script", "img", "iframe", "object", "embed", "link"} & tags.names
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert contents(run) == before


class Tags(HTMLParser):
    """The elements and attributes of a page, as a browser would see them."""

    def __init__(self):
        super().__init__()
        self.names, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "a.gin").write_text("")
    return load(tmp_path / "a.gin")


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("run.json", "{", "run.json' cannot be read: not valid JSON"),
        ("run.json", "[]", "run.json' has no 'run_id'"),
        ("run.json", '{"run_id": "other"}', "belongs to run other"),
        ("environment.json", "{", "environment.json' is not a list in JSON"),
        ("environment.json", "3", "environment.json' is not a list in JSON"),
        ("code.json", "[]", "code.json' does not hold an object"),
        ("code.json", "[" * 100_000, "code.json' cannot be read: not valid JSON"),
    ],
)
def test_a_folder_that_is_resumed(name, content, pattern, config, tmp_path):
    open_folder(tmp_path / "r", config).close()
    (tmp_path / "r" / "checkpoints").mkdir()
    (tmp_path / "r" / "metrics.jsonl").write_text('{"phase": "rl", "step": 1}\n')
    (tmp_path / "r" / name).write_text(content)
    before = contents(tmp_path / "r")
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, pattern)
    assert contents(tmp_path / "r") == before


@pytest.mark.parametrize("name", ["config.gin", "metrics.jsonl", "samples.jsonl"])
def test_a_folder_of_something_else_is_not_overwritten(name, config, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / name).write_text("mine\n")
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, f"'.*r' has a file {name} but no run.json")
    assert (tmp_path / "r" / name).read_text() == "mine\n"


def test_a_start_that_was_killed_between_two_files_is_repeated(config, tmp_path):
    open_folder(tmp_path / "r", config).close()
    (tmp_path / "r" / "run.json").unlink()
    open_folder(tmp_path / "r", config).close()


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again_over_its_records(config, tmp_path):
    open_folder(tmp_path / "r", config).close()
    (tmp_path / "r" / "metrics.jsonl").write_text("{}\n")
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, "metrics.jsonl but no folder checkpoints")
    (tmp_path / "r" / "checkpoints").mkdir()
    open_folder(tmp_path / "r", config).close()


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "lock"])
def test_a_link_out_of_the_folder_is_not_written_through(name, config, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / name).symlink_to(tmp_path / "mine")
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, f"has a link {name} -> '.*mine'")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_folder_whose_name_has_a_null_byte(config, tmp_path):
    attempt_call(lambda: open_folder(tmp_path / "r\0", config), RunError, "cannot be written: embedded null byte")


def test_a_folder_whose_name_is_not_utf8(config, tmp_path):
    """Orbax could not save the first checkpoint in it."""
    refused = r"run folder '.*x\\udcff.*' cannot be written: its path is not UTF-8; choose another"
    attempt_call(lambda: open_folder(tmp_path / "x\udcff", config), RunError, refused)
    attempt_call(lambda: open_folder(tmp_path / "x\udcff" / "r", config), RunError, refused)
    assert not list(tmp_path.glob("x*"))


def test_a_run_in_a_folder_whose_name_is_not_utf8(config, tmp_path, monkeypatch):
    (tmp_path / "x\udcff").mkdir()
    monkeypatch.chdir(tmp_path / "x\udcff")
    attempt_call(lambda: open_folder(Path("r"), config), RunError, "its path is not UTF-8")


@pytest.mark.parametrize(
    "command",
    [
        "train a.gin --folder",
        "eval a.gin --out",
        "export r --out",
        "generate a.gin --out",
        "sweep run a.gin --folder",
        "report r --output",
    ],
)
def test_a_place_for_results_whose_name_is_not_utf8(command, tmp_path, capsys, monkeypatch):
    said = r": 'x\\udcff' is not UTF-8"
    case = Case(f"{command} x\udcff", said, status=USAGE, files=RUN | {"a.gin": ""}, lines=99)
    attempt(case, tmp_path, capsys, monkeypatch)


def test_a_folder_that_is_a_file(config, tmp_path):
    (tmp_path / "r").write_text("mine")
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, "'.*r' cannot be written: File exists")


def test_a_folder_in_use(config, tmp_path):
    held = open_folder(tmp_path / "r", config)
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, "in use by another process")
    held.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(config, tmp_path):
    (tmp_path / "r").mkdir(mode=0o500)
    attempt_call(lambda: open_folder(tmp_path / "r", config), RunError, "cannot be written: Permission denied")


def test_a_folder_with_too_long_a_name(config, tmp_path):
    attempt_call(lambda: open_folder(tmp_path / ("x" * 300), config), RunError, "cannot be written: File name too long")


@pytest.mark.parametrize("text", ["{", "[]", "", "\x00"])
def test_the_note_beside_a_file_of_lines(text, tmp_path):
    path = tmp_path / "o.jsonl"
    with open_lines(path, {"a": 1}) as lines:
        lines.append([{"b": 2}])
    (tmp_path / "o.jsonl.json").write_text(text)

    def again():
        with open_lines(path, {"a": 1}):
            pass

    attempt_call(again, RunError, r"o\.jsonl\.json'")
    assert path.read_text() == '{"b": 2}\n'


def sizes(**changed):
    return json.dumps({"mode": None, "micro_batch_size": 4, "positions": None, "planned": 0} | changed)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"remat": "full"}', "[" * 100_000),
        *(sizes(micro_batch_size="4"), sizes(micro_batch_size=0), sizes(positions=-1), sizes(mode=["full"])),
    ],
)
def test_the_sizes_with_which_a_run_began(text, tmp_path):
    (tmp_path / "memory.json").write_text(text)
    attempt_call(lambda: _kept(tmp_path / "memory.json"), RunError, r"memory\.json' .*choose another folder")


@pytest.mark.parametrize("text", ["{", "[]", '{"model acme/tiny@main": 3}', "[" * 100_000])
def test_the_meanings_of_names_with_which_a_run_began(text, tmp_path):
    (tmp_path / "sources.json").write_text(text)

    def again():
        with kept_in(tmp_path):
            pass

    attempt_call(again, RunError, r"sources\.json' .*choose another folder")


def test_records_that_are_a_pipe_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    attempt_call(lambda: read_lines(tmp_path / "metrics.jsonl"), RunError, "is not a file")


def test_an_opened_run_whose_identity_is_gone(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    attempt_call(lambda: open_run(tmp_path).id, RunError, "run.json' has no 'run_id'")


@pytest.mark.parametrize(
    ("name", "value"),
    [("phase", "../../x"), ("phase", 3), ("step", "x"), ("step", -1), ("data", []), ("journal", {"a": "b"})],
)
def test_a_checkpoint_that_says_something_odd(name, value, tmp_path):
    """Its phase and its step are in the name of the folder that an evaluation writes."""
    kept = Checkpoints(tmp_path, keep=2)
    kept.save(1, {"w": 1.0}, attrs.evolve(Saved(phase="rl", step=1, data={}, journal={}), **{name: value}))
    attempt_call(kept.newest, RunError, r"checkpoint '.*steps/1' cannot be read .*another kind of phase, step")
    kept.close()


def test_checkpoints_that_are_a_file(tmp_path):
    (tmp_path / "checkpoints").write_text("mine")
    attempt_call(lambda: Checkpoints(tmp_path / "checkpoints", keep=2), RunError, "cannot be used for checkpoints: ")
    assert (tmp_path / "checkpoints").read_text() == "mine"


@pytest.mark.parametrize("damage", ["meta", "state", "all"])
def test_a_checkpoint(damage, tmp_path):
    import jax.numpy as jnp

    state = {"w": jnp.ones(3)}
    kept = Checkpoints(tmp_path, keep=2)
    kept.save(1, state, Saved(phase="rl", step=1, data={}, journal={}))
    kept.close()
    files = [path for path in (tmp_path / "steps" / "1").rglob("*") if path.is_file()]
    for path in files:
        if damage == "all" or f"/{damage}/" in str(path):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    opened = Checkpoints(tmp_path, keep=2)

    def resume():
        number, _ = opened.newest() or (0, None)
        opened.restore(number, state)

    def read_part():
        opened.newest()
        opened.restore_part(1, ("w",), state["w"])

    for attempted in (resume, read_part):
        attempt_call(attempted, RunError, r"checkpoint '.*steps/1' cannot be read .*; move it away")
    opened.close()
