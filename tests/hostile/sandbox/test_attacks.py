"""Model-written code against the sandbox, as this user and, where that is root, as an ordinary one."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.hostile.sandbox.attacks import ENDED, FORGED, PROGRAM, REFUSED, SECRET, SPIES

from dovetail_reward._sandbox import outside
from dovetail_reward._sandbox.outside import FULL, Ran, SandboxError, protections, run
from dovetail_reward.reward import code as module
from dovetail_reward.reward.code import Code

linux = pytest.mark.skipif(protections() != FULL, reason=f"this machine holds back no more than {protections()}")
NOBODY = 65534
ORDINARY_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin")
"""A Python that everybody may start, as that of a virtual environment below a private home is not."""


def ordinary_python_is_new_enough() -> bool:
    if ORDINARY_PYTHON is None:
        return False
    asked = subprocess.run([ORDINARY_PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False)
    return asked.returncode == 0


@pytest.fixture(scope="module", params=["this user", "nobody"])
def user(request):
    """Have confined processes started by a user; root's are started by nobody, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "nobody":
            if os.geteuid() != 0 or not ordinary_python_is_new_enough():
                pytest.skip("takes root, and a Python 3.11 that an ordinary user may start")
            become(patch, NOBODY)
        yield request.param


def become(patch: pytest.MonkeyPatch, uid: int) -> None:
    """Start confined processes as another user."""
    start, watched = subprocess.Popen, outside._watched

    def popen(command, **options):
        return start([ORDINARY_PYTHON, *command[1:]], **options, user=uid, group=uid, extra_groups=[])

    def let_in(folder, *limits):
        folder.chmod(0o755)
        return watched(folder, *limits)

    patch.setattr(outside.subprocess, "Popen", popen)
    patch.setattr(outside, "_watched", let_in)


@pytest.fixture(scope="module")
def scene(user):
    """A secret and a victim that the code's user may touch, and listeners; to be found as they were."""
    with (
        tempfile.TemporaryDirectory(prefix="scene-", ignore_cleanup_errors=True) as name,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        folder, secret = Path(name).resolve(), Path(name).resolve() / "secret"
        secret.write_text("secret")
        folder.chmod(0o777)
        secret.chmod(0o666)
        victim = outside.subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        udp.bind(("127.0.0.1", 0))
        tcp.setblocking(False)
        udp.setblocking(False)
        before = facts(secret)
        yield {
            "folder": folder,
            "secret": secret,
            "victim": victim.pid,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "python": ORDINARY_PYTHON or sys.executable,
        }
        assert facts(secret) == before
        assert (os.listdir(folder), secret.read_text()) == (["secret"], "secret")
        assert not Path("/dev/shm/dovetail-attack").exists()
        assert victim.poll() is None
        assert os.getpriority(os.PRIO_PROCESS, victim.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        for listener in (tcp.accept, functools.partial(udp.recv, 10)):
            with pytest.raises(BlockingIOError):
                listener()
        victim.kill()
        victim.wait()


def facts(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mode, found.st_uid, found.st_nlink, found.st_mtime_ns


def outcome(source: str, **params) -> Ran:
    return run(source, **{"time_limit": 20.0, "output_limit": 10_000, "require": protections()} | params)


def through(scene, attacks=REFUSED, **params) -> list[str]:
    """Return the names of the attacks that were not refused."""
    filled = {name: attack.format(**scene) for name, attack in attacks.items()}
    ran = outcome(PROGRAM.format(attacks=filled), **params)
    assert ran.how == "done"
    return json.loads(ran.output)


@linux
def test_every_attack_is_refused(scene):
    assert through(scene) == []


@linux
def test_every_attack_is_refused_where_packages_can_be_imported(scene, user):
    """What they bring along, shared libraries among it, opens nothing else."""
    if user == "nobody":
        pytest.skip("an ordinary user's Python has no numpy of ours")
    loaded = PROGRAM.replace("\n", "\nimport numpy\n", 1)
    filled = {name: attack.format(**scene) for name, attack in REFUSED.items()}
    ran = outcome(loaded.format(attacks=filled), packages=("numpy",), time_limit=60.0)
    assert (ran.how, json.loads(ran.output)) == ("done", [])


@linux
def test_the_files_of_packages_can_be_read_and_those_beside_them_cannot():
    import attrs
    import numpy

    read = "print(len(open({!r}).read()) > 0)"
    assert outcome(read.format(numpy.__file__), packages=("numpy",)).output == "True\n"
    assert outcome(read.format(numpy.__file__)).how == "failed"
    assert outcome(read.format(attrs.__file__), packages=("numpy",)).how == "failed"
    assert outcome(
        "import os; os.listdir('packages/..'); os.listdir('packages/numpy/..')", packages=("numpy",)
    ).how == ("failed")
    assert outcome("open('packages/numpy/own.py', 'w')", packages=("numpy",)).how == "failed"


@linux
def test_attacks_that_harm_nobody_succeed_where_nothing_holds_them_back(scene, monkeypatch):
    """So it is the sandbox that refuses them, and not a mistake in how they are written."""
    program = outside._PROGRAM.replace("main(", "import _sandbox.inside as i; i.confine = lambda _: (); main(")
    monkeypatch.setattr(outside, "_PROGRAM", program)
    harmless = ("read a secret", "read from the folder itself", "list /", "map a secret", "ask whether it can kill")
    harmless += ("the parent's command line", "its own map by /proc", "unix sockets", "listen", "watch files")
    chosen = {name: REFUSED[name] for name in harmless}
    assert through(scene, chosen, require=()) == list(chosen)


@linux
def test_without_landlock_nothing_but_reading_is_open(scene, monkeypatch):
    program = outside._PROGRAM.replace("main(", "import _sandbox.confine as c; c._landlock = lambda *_: False; main(")
    monkeypatch.setattr(outside, "_PROGRAM", program)
    with pytest.raises(SandboxError, match="its code has not run"):
        outcome("print(1)")
    open_to_it = set(through(scene, require=("seccomp",)))
    assert "read a secret" in open_to_it
    reads = (
        "read",
        "list",
        "the parent's",
        "its own",
        "map",
        "open such",
        "run a secret",
        "follow",
        "the victim's root",
    )
    reads += ("the list of processes", "load a secret", "messages of the kernel", "a disk", "the machine's memory")
    assert [name for name in open_to_it if not name.startswith(reads)] == []


@pytest.mark.slow
@linux
def test_programs_that_do_not_end_well(user):
    """Those that would go on for ever wait for their time; so several run at a time."""
    with ThreadPoolExecutor(8) as threads:
        ran = threads.map(lambda case: outcome(case[0], time_limit=1.0 if case[1] == "late" else 300.0), ENDED.values())
        ended = {name: each.how for name, each in zip(ENDED, ran, strict=True)}
    assert ended == {name: how for name, (_, how) in ENDED.items()}


@linux
@pytest.mark.parametrize("spy", SPIES.values(), ids=SPIES)
def test_the_right_answer_is_out_of_reach(spy, monkeypatch):
    """It is in the process that grades, never in the one that is graded: neither in memory, nor in a file or argument."""
    seen = []

    def overheard(*arguments, **options):
        seen.append(run(*arguments, **options | {"output_limit": 50_000_000}))
        return seen[-1]

    monkeypatch.setattr(module, "run", overheard)
    for tests in ({"inputs": ["x"], "outputs": [SECRET]}, {"fn_name": "f", "inputs": [[]], "outputs": [SECRET]}):
        asked = spy if "fn_name" not in tests else f"import sys\nsys.stdout = open(3, 'w', closefd=False)\n{spy}"
        assert Code(isolation="full")([asked], [tests])[0] == [0.0]
    assert seen[0].how == "done"
    assert len(seen[0].output) > 10
    assert not any(SECRET in ran.output for ran in seen)


@pytest.mark.slow
@linux
def test_what_is_claimed_is_not_believed():
    tests = {"fn_name": "f", "inputs": [[]], "outputs": [SECRET]}
    scores, _ = Code(isolation="full", time_limit=2.0)(list(FORGED.values()), [tests] * len(FORGED))
    assert dict(zip(FORGED, scores, strict=True)) == dict.fromkeys(FORGED, 0.0)
