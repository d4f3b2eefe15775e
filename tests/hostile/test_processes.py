"""Cases that need a process of their own: environment, standard streams, signals."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY
from tests.programs import shared

from dovetail_lab.sweep import Store

PROGRAM = [sys.executable, "-m", "dovetail"]
PLAIN = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
COMPILES = PLAIN | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), "JAX_PLATFORMS": "cpu"}
TRAINS = COMPILES | shared()
SECONDS = 180
STUB = Path(__file__).parents[1] / "lab" / "sweep" / "stub.py"
ENDLESS = ("sft.steps=0", "train.steps=100000", "run.checkpoint_every=100000", "eval.every=None")

CASES = {
    "no HOME, no TERM, nothing": ("explain quickstart", {}, 0, ""),
    "a HOME that is not there": ("explain quickstart", {"HOME": "/nowhere/at/all", "TERM": "nonsense"}, 0, ""),
    "a C locale": ("describe policy_loss gspo", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, 0, ""),
    "ASCII alone": ("describe policy_loss gspo", {"PYTHONIOENCODING": "ascii"}, 0, ""),
    "ASCII alone, and an error": ("names é", {"PYTHONIOENCODING": "ascii"}, 1, "unknown kind"),
    "a locale that is not there": ("explain quickstart", {"LC_ALL": "xx_YY.UTF-8", "LANG": "nonsense"}, 0, ""),
    "20 columns": ("--help", {"COLUMNS": "20"}, 0, ""),
    "no columns": ("--help", {"COLUMNS": "0"}, 0, ""),
    "columns that are a word": ("--help", {"COLUMNS": "wide"}, 0, ""),
    "a plugin file that is missing": ("explain quickstart", {"DOVETAIL_PLUGINS": "/nowhere.py"}, 0, "nowhere"),
    "a distribution that is not there switched off": (
        "explain quickstart",
        {"DOVETAIL_DISABLE": "nobody"},
        1,
        "'nobody'",
    ),
    "a variable that is nearly ours": (
        "names kl",
        {"DOVETAIL_DISBALE": "nobody"},
        0,
        "warning: the environment variable DOVETAIL_DISBALE has no effect. Did you mean DOVETAIL_DISABLE?\n",
    ),
    "a variable of a plugin": ("names kl", {"DOVETAIL_VLLM_PYTHON": "/nowhere", "DOVETAIL_GSM8K": "x"}, 0, ""),
    "no traceback": ("explain missing", {"DOVETAIL_TRACEBACK": "0"}, 1, "no config file 'missing'"),
    "every warning an error": ("explain quickstart", {"PYTHONWARNINGS": "error"}, 0, ""),
    "platforms that JAX does not have": (
        "plan quickstart --set model.decoder.layers=1",
        {"JAX_PLATFORMS": "garbage"},
        1,
        "error: JAX cannot start a platform: ",
    ),
    "a doctor without a platform": ("doctor", {"JAX_PLATFORMS": "garbage"}, 1, ""),
    "a flag that XLA does not have": (
        "doctor",
        {"XLA_FLAGS": "--xla_nonsense=1", "JAX_PLATFORMS": "cpu"},
        1,
        "Unknown flag in XLA_FLAGS: --xla_nonsense=1",
    ),
    "a truth value that JAX does not know": ("doctor", {"JAX_ENABLE_X64": "maybe"}, 1, "'JAX_ENABLE_X64'"),
    "a cache in a file": (
        "doctor",
        {"XDG_CACHE_HOME": "/dev/null", "JAX_PLATFORMS": "cpu"},
        0,
        "warning: compiled programs are not kept: folder '/dev/null/dovetail/xla' cannot be written: Not a directory",
    ),
    "a cache that is read-only": (
        "doctor",
        {"JAX_COMPILATION_CACHE_DIR": "/proc/cache", "JAX_PLATFORMS": "cpu"},
        0,
        "warning: compiled programs are not kept: folder '/proc/cache' cannot be written: ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "environment", "status", "said"), CASES.values(), ids=CASES)
def test_an_environment(command, environment, status, said, tmp_path):
    done = subprocess.run(
        [*PROGRAM, *command.split()],
        env=PLAIN | environment,
        cwd=tmp_path,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    err = done.stderr.decode(errors="replace")
    assert "Traceback" not in err
    assert done.returncode == status, err
    assert said in err if said else err == ""
    assert err.count("\n") <= 1


@pytest.mark.parametrize(
    ("redirected", "status"),
    [(">/dev/full", 1), (">&-", (0, 1)), ("2>&-", 0), (">&- 2>&- <&-", (0, 1)), ("| true", 0), ("<&-", 0)],
)
def test_standard_streams(redirected, status, tmp_path):
    """A stream may be closed, full, or a pipe that nobody reads."""
    line = f"{' '.join(PROGRAM)} names {redirected}"
    done = subprocess.run(
        ["bash", "-c", line], env=PLAIN, cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False
    )
    err = done.stderr.decode()
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), err
    assert err.count("\n") <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        ("| head -n 1", 0, ""),
        pytest.param("2>&1 >o | head -n 1", 0, "", marks=pytest.mark.exhaustive),  # as with both streams, below
        ("2>&1 | true", 0, ""),
        (">/dev/full", 1, "error: the output cannot be written: No space left"),
        pytest.param("2>/dev/full", 0, "", marks=pytest.mark.exhaustive),
        (">/dev/full 2>&1", 1, ""),
    ],
)
def test_a_run_does_not_end_with_who_reads_of_it(redirected, status, said, tmp_path):
    """A log that goes through `head`, or onto a full disk, loses lines and no steps."""
    (tmp_path / "a.gin").write_text("")
    sets = (*TINY, "sft.steps=0", "train.steps=2", "eval.every=None", "run.sinks=('console',)")
    words = [*PROGRAM, "train", "a.gin", "--folder", "r", *(part for each in sets for part in ("--set", each))]
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shlex.join(words)} {redirected}"],
        env=TRAINS,
        cwd=tmp_path,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    err = done.stderr.decode()
    assert done.returncode == status, err
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert said in err
    steps = [json.loads(line)["step"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 2
    assert (tmp_path / "r" / "checkpoints" / "steps" / "2").exists()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see what is being imported")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_imports(signum, tmp_path):
    """The process ends at once with a message; numpy, if interrupted while importing, prints more before that."""
    process = subprocess.Popen(
        [*PROGRAM, "train", "quickstart"], env=PLAIN, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + SECONDS
    while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode in (128 + signum, -signum), err
    assert signum != signal.SIGINT or err.endswith(b"stopped; run the same command again to go on\n")


SLOWLY = """
import time
from pathlib import Path
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "slowly", "slowly:slowly")

def slowly(completions):
    Path("scoring").touch()
    time.sleep(0.5)
    return [0.0] * len(completions)
"""
WHILE = {
    # what is looked for in the folder before a signal is sent, what is set for it, and whether a step can be saved
    "it compiles": ("r/metrics.jsonl", (), False),
    "it evaluates": ("scoring", ("train.rewards=['slowly']", "eval.success=slowly"), False),
    "it writes a checkpoint": ("r/checkpoints/steps/*tmp*", ("run.checkpoint_every=1",), True),
}


def train(folder, *overrides, environment=TRAINS):
    """Start a training of a tiny model in a folder."""
    (folder / "a.gin").write_text("")
    (folder / "slowly.py").write_text(SLOWLY)
    sets = [
        part for override in (*TINY, "sft.steps=0", "train.steps=100000", *overrides) for part in ("--set", override)
    ]
    return subprocess.Popen(
        [*PROGRAM, "train", "a.gin", "--folder", "r", "--plugin", "slowly.py", *sets],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,  # nobody would read a pipe until it has ended
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "signum", "times"),
    [
        ("it compiles", signal.SIGTERM, 2),
        ("it evaluates", signal.SIGINT, 1),
        ("it evaluates", signal.SIGHUP, 3),
        ("it writes a checkpoint", signal.SIGTERM, 1),
        ("it writes a checkpoint", signal.SIGINT, 2),
    ],
)
def test_a_signal_while(what, signum, times, tmp_path):
    """It ends with the status of the signal and one line, and what it has written can be gone on with."""
    waited_for, overrides, saves = WHILE[what]
    process = train(tmp_path, *overrides, environment=COMPILES if what == "it compiles" else TRAINS)
    until(lambda: any(tmp_path.glob(waited_for)), process)
    for _ in range(times):
        process.send_signal(signum)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signum, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "stopped; run the same command again to go on"
    steps = tmp_path / "r" / "checkpoints" / "steps"
    whole = max((int(each.name) for each in steps.glob("*") if each.name.isdigit()), default=0)
    if saves:
        lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
        newest = max(json.loads(line)["step"] for line in lines)
        assert newest - whole in (0, 1), "at most the step is lost in whose saving Ctrl-C came twice"
        again = train(tmp_path, *overrides)
        until(lambda: any(int(each.name) > whole for each in steps.glob("*") if each.name.isdigit()), again)
        again.kill()
        again.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_report_is_served(signum, tmp_path):
    run = tmp_path / "r"
    run.mkdir()
    for name, content in (("run.json", '{"run_id": "a", "config_id": "a"}'), ("environment.json", "[]")):
        (run / name).write_text(content)
    process = subprocess.Popen(
        [*PROGRAM, "report", "r", "--watch", "--port", "0"],
        env=PLAIN,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signum)
    while signum != signal.SIGINT and process.poll() is None:  # whenever another one comes
        process.send_signal(signum)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signum, err
    assert err == "stopped; run the same command again to go on\n"


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 1)])
def test_a_signal_to_the_driver_of_a_sweep(signum, times, tmp_path):
    """Its workers end with it, and every trial waits, is done, or can be gone on with."""
    program = [sys.executable, str(STUB), "drive", "sweep", "0.3", "0.1"]
    process = subprocess.Popen(
        program, env=PLAIN | {"PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    trials = tmp_path / "sweep" / "trials"
    until(lambda: any("about to hang" in each.read_text() for each in trials.glob("*/log.txt")), process)
    for _ in range(times):
        process.send_signal(signum)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signum, err
    assert "Traceback" not in err
    store = Store.open(tmp_path / "sweep")
    assert {store.state(trial).status for trial in store.trials} <= {"waiting", "interrupted", "done"}
    assert not store.is_driven


def until(condition, process):
    """Wait until something holds, or the process ends."""
    deadline = time.monotonic() + SECONDS
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition(), process.communicate(timeout=SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum",
    # three of SIGHUP end what evaluates (above)
    [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.exhaustive)],
)
def test_a_signal_while_it_trains(signum, tmp_path):
    """The state after the last whole step is saved, though none is due; the status says which signal it was."""
    (tmp_path / "a.gin").write_text("")
    sets = [part for override in (*TINY, *ENDLESS) for part in ("--set", override)]
    process = subprocess.Popen(
        [*PROGRAM, "train", "a.gin", "--folder", "r", *sets],
        env=TRAINS,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "r" / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, process)
    process.send_signal(signal.SIGPIPE)  # changes nothing
    for _ in range(1 if signum == signal.SIGINT else 3):  # schedulers and terminals send several
        process.send_signal(signum)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signum, err
    assert err.splitlines()[-1] == "stopped; run the same command again to go on"
    steps = [
        int(folder.name)
        for folder in (tmp_path / "r" / "checkpoints" / "steps").glob("[0-9]*")
        if folder.name.isdigit()
    ]
    assert len(steps) == 1
    assert steps[0] >= 2
    assert f"saved the state after rl step {steps[0]}\n" in err
