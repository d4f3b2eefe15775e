"""Model-written code: what it may do, and what is left of it. What it may try is in `tests/hostile/sandbox`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail_reward._sandbox import outside
from dovetail_reward._sandbox.outside import FULL, Ran, protections, run

linux = pytest.mark.skipif(protections() != FULL, reason=f"this machine holds back no more than {protections()}")


def outcome(source: str, **params) -> Ran:
    return run(source, **{"time_limit": 20.0, "output_limit": 1000, "require": protections()} | params)


@linux
def test_secrets_of_the_environment_are_not_there(monkeypatch):
    monkeypatch.setenv("SECRET", "secret")
    ran = outcome("import os; print(sorted(os.environ))")
    assert "SECRET" not in ran.output
    assert "HOME" not in ran.output


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
