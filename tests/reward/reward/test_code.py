"""Reward `code`: where a completion's code is, how outputs are compared, and what tests may look like."""

from __future__ import annotations

import json

import pytest

import dovetail_reward.reward.code as module
from dovetail.errors import ConfigError, DovetailWarning
from dovetail_reward._sandbox import outside
from dovetail_reward.reward._cases import read_cases
from dovetail_reward.reward._outputs import same_json, same_text
from dovetail_reward.reward.code import Code, code_of

ADD_ONE = {"inputs": ["1\n", "2\n", "3\n"], "outputs": ["2\n", "3\n", "4\n"]}
RIGHT = "```python\nprint(int(input()) + 1)\n```"
PARTLY = "```python\nx = int(input())\nprint(x + 1 if x < 3 else 0)\n```"


def scores(completions, tests, **params):
    return Code(**params)(completions, [tests] * len(completions))[0]


def test_shares_of_tests():
    texts = [RIGHT, PARTLY, "```python\nprint(0)\n```", "I do not know.", ""]
    assert scores(texts, ADD_ONE) == [1.0, pytest.approx(2 / 3), 0.0, 0.0, 0.0]
    assert scores(texts[:3], ADD_ONE, score="all") == [1.0, 0.0, 0.0]
    assert scores([PARTLY], ADD_ONE, max_tests=2, score="all") == [1.0]
    assert scores([RIGHT], json.dumps(ADD_ONE)) == [1.0]
    assert scores([RIGHT], None) == [None]
    assert scores([], ADD_ONE) == []


@pytest.mark.parametrize(
    "definition",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a: int, b: List[int]):\n        return a + b",
    ],
)
def test_functions_and_methods(definition):
    tests = {"fn_name": "add", "inputs": [[1, 2], [[1], [2]], "3\n4"], "outputs": [3, [1, 2], "7"]}
    noisy = f"print('hello')\n{definition}\nprint('again')"
    assert scores([definition, noisy, definition.replace("add", "sub")], tests) == [1.0, 1.0, 0.0]


def test_values_that_json_does_not_have():
    tests = {"fn_name": "f", "inputs": [[]], "outputs": [[1, 2]]}
    texts = [f"f = lambda: {value}" for value in ("(1, 2)", "{1, 2}", "map(int, '12')", "object()", "float('nan')")]
    assert scores(texts, tests) == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_metrics_say_what_went_wrong(monkeypatch):
    def ran(source, **options):
        return run(source, **options | ({} if "while True" in source else {"time_limit": 600.0}))

    run = module.run
    monkeypatch.setattr(module, "run", ran)
    texts = ["```cpp\nint main() {}\n```", "while True: pass", "print(2)", ""]
    tests = [{"inputs": [""], "outputs": ["2"]}] * 3 + [None]
    found, metrics = Code(time_limit=1.0)(texts, tests)
    assert found == [0.0, 0.0, 1.0, None]
    assert metrics == {"no_code": [1.0, 0.0, 0.0, 0.0], "late": [0.0, 1.0, 0.0, 0.0]}


def test_the_right_output_is_out_of_reach():
    """It is not in the process: neither in memory, nor in a file or argument."""
    spy = "import os, sys\nprint(sys.argv, os.listdir('.'), *(open(f).read() for f in os.listdir('.')))"
    secret = "the-right-answer-9731"
    assert scores([spy], {"inputs": ["x"], "outputs": [secret]}) == [0.0]
    claim = "def f():\n    import os\n    os.write(1, b'PASS'); os.write(3, b'true')\n    return 'PASS'"
    assert scores([claim], {"fn_name": "f", "inputs": [[]], "outputs": [secret]}) == [0.0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("so ```python\na\n``` and ```py\nb\n```!", "b\n"),
        ("```Python3 title=x\na\n```", "a\n"),
        ("```python\na\n```\n```\noutput\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```python\nopen", "open"),
        ("```bash\nls\n```", None),
        ("print(1)", "print(1)"),
        ("", ""),
    ],
)
def test_where_the_code_is(text, code):
    assert code_of(text) == code


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("1  2 \r\n\n3", "1 2\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("3\n1 2", "1 2\n3", False),
        ("2.0", "2", True),
        ("02", "2", True),
        ("2", "2.0", True),
        ("1000001", "1000000", False),
        ("1000000007.4", "1000000007", False),
        ("0.33333334", "0.3333333333", True),
        ("0.334", "0.3333333333", False),
        ("1e-9", "0.0", True),
        ("inf", "1e400", False),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("yes", "YES", False),
        ("1" * 5000, "1" * 5000, True),
        ("1e9999", "1", False),
        ("", "", True),
        ("", "0", False),
    ],
)
def test_outputs(printed, expected, same):
    assert same_text(printed, expected) == same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        ("[1, 2]", [1, 2], True),
        ("[1, 2]", [2, 1], False),
        ("3", [3], True),
        ("[1, 2]", 1, False),
        ("0.1", 0.10000000001, True),
        ("1000001", 1000000, False),
        ("1e400", 1.0, False),
        ("1", True, True),
        ('{"a": [1.0]}', {"a": [1]}, True),
        ('{"a": 1, "b": 2}', {"a": 1}, False),
        ("null", None, True),
        ('"null"', None, False),
        ("[" * 100_000, [1], False),
        ("", "", False),
    ],
)
def test_values(returned, expected, same):
    assert same_json(returned, expected) == same


@pytest.mark.parametrize(
    "cell",
    [
        "{",
        "[]",
        {},
        {"inputs": ["1"]},
        {"inputs": ["1"], "outputs": []},
        {"inputs": [], "outputs": []},
        {"inputs": [1], "outputs": ["1"]},
        {"fn_name": 1, "inputs": [[1]], "outputs": [1]},
        {"fn_name": "f", "inputs": [1], "outputs": [1]},
        {"fn_name": "f", "inputs": ["1\nx"], "outputs": [1]},
    ],
)
def test_cells_without_tests_are_shown(cell):
    with pytest.raises(ValueError, match=r"no tests in .* expected \{\"inputs\": \[...\], \"outputs\""):
        read_cases(cell)


def test_lines_may_come_as_lists():
    assert read_cases({"inputs": [["1", "2"]], "outputs": [["3"]]})[0].stdin == "1\n2"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (("seccomp",), "can read every file that you can read"),
        ((), "can do all that you can do"),
    ],
)
def test_weaker_isolation_is_told_or_refused(held, message, monkeypatch):
    monkeypatch.setattr(outside, "protections", lambda: held)
    with pytest.warns(DovetailWarning, match=message):
        reward = Code()
    monkeypatch.setattr(module, "protections", lambda: held)
    assert reward([RIGHT], [ADD_ONE])[0] == [1.0]
    with pytest.raises(ConfigError, match=f"{message}.*isolation = 'any' runs it all the same"):
        Code(isolation="full")


def test_without_posix_it_is_refused(monkeypatch):
    monkeypatch.setattr(module.os, "name", "nt")
    with pytest.raises(ConfigError, match="it needs Linux or macOS"):
        Code()
