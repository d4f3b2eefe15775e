"""Model-written code: what it may do, and the attacks that it may try."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail_reward._sandbox import outside
from dovetail_reward._sandbox.outside import FULL, Ran, SandboxError, protections, run

linux = pytest.mark.skipif(protections() != FULL, reason=f"this machine holds back no more than {protections()}")

ATTACKS = {
    "read a secret": "open('{secret}').read()",
    "read an absolute path below its folder": "open(os.path.join(os.getcwd(), '..', '{secret}')).read()",
    "read the passwords": "open('/etc/passwd').read()",
    "list a folder": "os.listdir('{folder}')",
    "list /": "os.listdir('/')",
    "the parent's environment": "open(f'/proc/{{os.getppid()}}/environ', 'rb').read()",
    "the parent's memory": "open(f'/proc/{{os.getppid()}}/mem', 'rb')",
    "its own environment by /proc": "open('/proc/self/environ', 'rb').read()",
    "attach to the parent": "call('ptrace', 16, os.getppid(), 0, 0)",
    "read the parent's memory": "call('process_vm_readv', os.getppid(), None, 0, None, 0, 0)",
    "write a new file": "open('{folder}/new', 'w').write('x')",
    "write a file of its own": "open('own', 'w').write('x')",
    "append": "open('{secret}', 'a').write('x')",
    "overwrite in place": "os.open('{secret}', os.O_RDWR)",
    "empty a file": "os.truncate('{secret}', 0)",
    "remove": "os.unlink('{secret}')",
    "rename": "os.rename('{secret}', '{folder}/other')",
    "link": "os.link('{secret}', 'mine')",
    "symlink": "os.symlink('{secret}', 'mine')",
    "make a folder": "os.mkdir('{folder}/new')",
    "change the mode": "os.chmod('{secret}', 0o777)",
    "change the owner": "os.chown('{secret}', 1, 1)",
    "change the time": "os.utime('{secret}', (0, 0))",
    "a file in memory": "os.write(os.memfd_create('x'), b'x')",
    "a large file": "open('large', 'wb').write(bytes(100_000_000))",
    "tcp": "socket.create_connection(('127.0.0.1', {tcp})).send(b'x')",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
    "unix sockets": "socket.socketpair()",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "kill": "os.kill({victim}, 9)",
    "kill a thread": "call('tgkill', {victim}, {victim}, 9)",
    "kill by a handle": "signal.pidfd_send_signal(os.pidfd_open({victim}), 9)",
    "queue a signal": "call('sigqueue', {victim}, 9, 0)",
    "have the kernel signal": "fcntl.fcntl(1, fcntl.F_SETOWN, {victim})",
    "slow down others": "os.setpriority(os.PRIO_PROCESS, {victim}, 19)",
    "fork": "os.fork()",
    "vfork by subprocess": "subprocess.run(['{python}', '-c', 'pass'], check=True)",
    "posix_spawn": "os.posix_spawn('{python}', ['python', '-c', 'pass'], {{}})",
    "system": "os.system('true') == 0 or fail()",
    "another program": "os.execv('{python}', ['python', '-c', 'print(\"through\")'])",
    "a daemon": "os.fork() or os.setsid() or os.fork() or time.sleep(60)",
    "more memory": "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
    "more processor time": "resource.prlimit(0, resource.RLIMIT_CPU, (10**6, 10**6))",
    "the limits of others": "resource.prlimit({victim}, resource.RLIMIT_CPU, (1, 1))",
    "become another user": "os.setuid(65534)",
    "mount": "call('mount', b'none', b'/mnt', b'tmpfs', 0, None)",
    "a namespace": "call('unshare', 0x10000000)",
    "shared memory that stays": "call('shmget', 1234, 4096, 0o1666)",
    "a message queue that stays": "call('msgget', 1234, 0o1666)",
    "a new root": "os.chroot('.')",
    "the clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "the name of the machine": "socket.sethostname('x')",
    "io_uring": "call('syscall', 425, 8, None)",
    "a terminal": "open('/dev/tty', 'w')",
}

PROGRAM = """
import ctypes, fcntl, json, os, resource, signal, socket, subprocess, sys, time
def fail():
    raise OSError
def call(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        fail()
through = []
for name, attack in {attacks}.items():
    try:
        exec(attack)
    except OSError:
        continue
    through.append(name)
print(json.dumps(through))
"""


def facts(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mode, found.st_uid, found.st_nlink, found.st_mtime_ns


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A secret, listeners and a victim, to be found as they were."""
    folder = tmp_path_factory.mktemp("scene")
    secret = folder / "secret"
    secret.write_text("secret")
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        before = facts(secret)
        tcp.setblocking(False)
        udp.setblocking(False)
        yield {
            "folder": folder,
            "secret": secret,
            "victim": victim.pid,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "python": sys.executable,
        }
        assert facts(secret) == before
        assert (os.listdir(folder), secret.read_text()) == (["secret"], "secret")
        assert victim.poll() is None
        for listener in (tcp.accept, lambda: udp.recv(10)):
            with pytest.raises(BlockingIOError):
                listener()
    victim.kill()
    victim.wait()


def outcome(source: str, **params) -> Ran:
    return run(source, **{"time_limit": 20.0, "output_limit": 1000, "require": protections()} | params)


def through(scene, **params) -> list[str]:
    """Return the names of the attacks that were not refused."""
    attacks = {name: attack.format(**scene) for name, attack in ATTACKS.items()}
    ran = outcome(PROGRAM.format(attacks=attacks), **params)
    assert ran.how == "done"
    return json.loads(ran.output)


@linux
def test_every_attack_is_blocked(scene):
    assert through(scene) == []


@linux
def test_without_landlock_nothing_but_reading_is_open(scene, monkeypatch):
    program = outside._PROGRAM.replace("main(", "import _sandbox.confine as c; c._landlock = lambda *_: False; main(")
    monkeypatch.setattr(outside, "_PROGRAM", program)
    with pytest.raises(SandboxError, match="its code has not run"):
        outcome("print(1)")
    open_to_it = through(scene, require=("seccomp",))
    assert "read a secret" in open_to_it
    assert [name for name in open_to_it if not name.startswith(("read", "list", "the parent's", "its own"))] == []


@linux
def test_secrets_of_the_environment_are_not_there(monkeypatch):
    monkeypatch.setenv("SECRET", "secret")
    ran = outcome("import os; print(sorted(os.environ))")
    assert "SECRET" not in ran.output
    assert "HOME" not in ran.output


@pytest.mark.parametrize(
    ("source", "how"),
    [
        ("while True: pass", "late"),
        ("import time; time.sleep(60)", "late"),
        ("9 ** 9 ** 9", "late"),
        ("import signal\nfor s in (14, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass", "late"),
        ("while True: print('x' * 1000)", "loud"),
        ("import sys; sys.stdout.buffer.write(b'x' * 10**7)", "loud"),
        ("x = bytearray(3 << 30)", "failed"),
        ("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()", "late"),
        ("def f(): f()\nf()", "failed"),
        ("import ctypes; ctypes.string_at(0)", "failed"),
        ("import os; os.abort()", "failed"),
        ("import os; os._exit(1)", "failed"),
        ("print(1); raise ValueError", "failed"),
        ("print(1); exit(2)", "failed"),
        ("exit(97)", "failed"),
        ("this is no Python", "failed"),
        ("\ud800\x00", "failed"),
        ("import numpy", "failed"),
    ],
)
def test_ends(source, how):
    assert outcome(source, time_limit=1.0 if how == "late" else 20.0).how == how


@linux
def test_whoever_closes_its_output_and_goes_on_is_ended():
    assert outcome("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)", time_limit=1.0).how == "late"


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("print(input())\nprint(input())", "a\nb é\n"),
        ("import sys; print(sys.stdin.read())", "a\nb é\n"),
        ("print(sum(map(len, open(0))))", "5\n"),
        ("print(1); exit()", "1\n"),
        ("print(1); quit(0)", "1\n"),
        ("if __name__ == '__main__': print(1)", "1\n"),
        ("import os; print(os.listdir('.') != [])", "True\n"),
        (
            "import sys, threading\nsys.setrecursionlimit(10**6); threading.stack_size(1 << 26)\n"
            "f = lambda n: n and 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(20000))); t.start(); t.join()",
            "20000\n",
        ),
        (
            "import bisect, collections, decimal, fractions, heapq, itertools, json, math, random, re, string\nprint(1)",
            "1\n",
        ),
        ("import asyncio, dataclasses, datetime, hashlib, statistics, time, typing\nprint(1)", "1\n"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(A(1))", "A(x=1)\n"),
        ("print(hash('a') == hash('a'), {'a', 'b', 'c'})", None),
    ],
)
def test_ordinary_programs_run(source, output):
    ran = outcome(source, stdin="a\nb é")
    assert ran.how == "done"
    assert ran.output == (outcome(source, stdin="a\nb é").output if output is None else output)


def test_a_large_input_and_output_pass():
    text = "x" * 3_000_000
    assert outcome("print(input(), end='')", stdin=text, output_limit=len(text)).output == text


@linux
def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(outside.tempfile, "tempdir", str(tmp_path))
    outcome("print(1)")
    outcome("while True: pass", time_limit=0.5)
    assert list(Path(tmp_path).iterdir()) == []
