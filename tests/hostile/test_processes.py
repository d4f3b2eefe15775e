"""Cases that need a process of their own: environment, standard streams, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.core.train.tiny import TINY

PROGRAM = [sys.executable, "-m", "dovetail"]
PLAIN = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
SECONDS = 180
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
SLOW = (
    "a variable of a plugin",
    "every warning an error",
    "platforms that JAX does not have",
    "a doctor without a platform",
    "a flag that XLA does not have",
    "a truth value that JAX does not know",
    "a cache that is read-only",
)
ROWS = [pytest.param(*row, marks=pytest.mark.slow if name in SLOW else (), id=name) for name, row in CASES.items()]


@pytest.mark.parametrize(("command", "environment", "status", "said"), ROWS)
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


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


def until(condition, process):
    """Wait until something holds, or the process ends."""
    deadline = time.monotonic() + SECONDS
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition(), process.communicate(timeout=SECONDS)


@pytest.mark.parametrize("signum", [slow(signal.SIGINT), signal.SIGTERM, slow(signal.SIGHUP)])
def test_a_signal_while_it_trains(signum, tmp_path):
    """The state after the last whole step is saved, though none is due; the status says which signal it was."""
    (tmp_path / "a.gin").write_text("")
    sets = [part for override in (*TINY, *ENDLESS) for part in ("--set", override)]
    process = subprocess.Popen(
        [*PROGRAM, "train", "a.gin", "--folder", "r", *sets],
        env=PLAIN | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), "JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "r" / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, process)
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
