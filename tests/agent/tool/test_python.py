"""Tool `python`: the text that the model reads, the state between calls, and the limits."""

import re
import subprocess
import sys
import time

import pytest

from dovetail.errors import ConfigError, DovetailWarning
from dovetail.protocols import Tool
from dovetail_agent.signature import schema
from dovetail_agent.tool.python import Python
from dovetail_reward._sandbox import outside
from dovetail_reward._sandbox.outside import FULL, protections

RUN = Python(isolation="any", time_limit=300.0)


def say(*cells, tool=RUN):
    """Return the output of the last cell of an episode."""
    state = text = None
    for cell in cells:
        found = tool(cell, state)
        state, text = found.state, found.text
    return text


def test_names_are_kept_and_earlier_output_is_not_printed_again():
    assert say("print('once'); x = 4", "def f(y):\n    return x * y", "f(2)") == "8\n"
    assert "NameError" in say("x = 4", "x", tool=Python(isolation="any", keep=False))


ARRAYS = Python(isolation="any", time_limit=300.0, packages=("numpy",))


def test_packages_that_are_named_can_be_imported_and_no_others():
    assert (
        say("import numpy as np", "np.linalg.inv(2 * np.eye(2)).tolist()", tool=ARRAYS) == "[[0.5, 0.0], [0.0, 0.5]]\n"
    )
    assert "ModuleNotFoundError" in say("import numpy")
    assert "No module named 'attrs'" in say("import attrs", tool=ARRAYS)


def test_chance_of_numpy_is_the_same_when_code_runs_again():
    drawn = ARRAYS("import numpy as np\nx = np.random.rand(), np.random.default_rng().random()\nx", None)
    assert ARRAYS("x", drawn.state).text == drawn.text


def test_the_model_is_told_of_packages():
    def described(tool):
        return schema(Tool(name="python", function=tool, target=Python))["function"]["description"]

    assert described(RUN) == Python.__doc__.partition("\n")[0]
    assert described(ARRAYS) == f"{described(RUN)} Besides the standard library, it can import numpy."


def test_a_package_that_is_not_installed_is_refused():
    said = "tool.python.packages: 'nunpy' is not installed in this environment. Did you mean 'numpy'?"
    with pytest.raises(ConfigError, match=re.escape(said)):
        Python(isolation="any", packages=("nunpy",))


def test_an_episode_can_be_branched_from_an_earlier_state():
    first = RUN("x = [1]", None)
    RUN("x.append(2)", first.state)
    assert RUN("x", first.state).text == "[1]\n"


def test_chance_is_the_same_when_code_runs_again():
    drawn = RUN("import random\nx = random.random()\nx", None)
    assert RUN("x", drawn.state).text == drawn.text


def test_what_is_raised_is_read_with_its_line_and_the_names_before_it_stay():
    text = say("x = 1", "print('before')\nx = 2\n1 / 0")
    assert text.startswith(
        'before\nTraceback (most recent call last):\n  File "cell 2", line 3, in <module>\n    1 / 0'
    )
    assert text.endswith("ZeroDivisionError: division by zero\n")
    assert "_sandbox" not in text
    assert say("x = 1", "x = 2\n1 / 0", "x") == "2\n"
    assert say("if True print(1)").startswith('  File "cell 1", line 1')
    assert say("import sys\nsys.exit(3)", "print('on')") == "on\n"


@pytest.mark.parametrize(
    ("code", "settings", "said"),
    [
        (
            "for _ in range(10**5): print('x' * 1000)",
            {"output_limit": 5},
            "xxxxx(stopped: more than 5 bytes of output)",
        ),
        ("x = bytearray(10**9)", {}, "MemoryError"),
        ("import os\nos._exit(3)", {}, "(the process ended: too much memory, or a crash)"),
        (r"print('\ud800')", {}, "UnicodeEncodeError"),
        ("x = '\ud800'", {}, "?"),
        ("import sys\n_ = sys.stdout.buffer.write(b'\\xff')", {}, "\N{REPLACEMENT CHARACTER}"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", {}, "Error"),
    ],
)
def test_what_goes_wrong_is_told(code, settings, said):
    tool = Python(isolation="any", **({"time_limit": 300.0} | settings))
    result = tool(code, ("y = 7",))
    assert said in result.text or (said == "?" and not result.failed)
    if result.failed:
        assert result.state == ("y = 7",), "it is not run again"


def test_what_was_printed_before_the_time_is_up_is_told():
    for seconds in (1, 60):  # on a busy machine the process may not have printed anything after the first
        result = Python(isolation="any", time_limit=float(seconds))("print('so far')\nwhile True: pass", ("y = 7",))
        assert result.text.endswith(f"(stopped: over {seconds} seconds)")
        assert result.state == ("y = 7",), "it is not run again"
        if said := result.text.startswith("so far\n"):
            break
    assert said


@pytest.mark.skipif(protections() != FULL, reason="the kernel ends a process with its parent on Linux alone")
def test_a_confined_process_ends_with_the_one_that_reads_it(tmp_path):
    program = (
        "import subprocess, sys\n"
        "from dovetail_reward._sandbox import outside\n"
        "start = subprocess.Popen\n"
        "def watched(*args, **kwargs):\n"
        "    process = start(*args, **kwargs)\n"
        "    print(process.pid, flush=True)\n"
        "    return process\n"
        "subprocess.Popen = watched\n"
        "outside.run('import time\\nprint(1, flush=True)\\ntime.sleep(3600)', time_limit=3600, output_limit=9)"
    )
    reader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    confined = int(reader.stdout.readline())
    while not _confined(confined):
        time.sleep(0.01)
    reader.kill()
    reader.communicate()
    deadline = time.monotonic() + 120
    while _runs(confined):
        assert time.monotonic() < deadline, "it outlived its reader"
        time.sleep(0.01)


def _confined(pid):
    with open(f"/proc/{pid}/status") as lines:
        return any(line.split() == ["Seccomp:", "2"] for line in lines)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_where_less_is_held_back_it_is_refused(monkeypatch):
    monkeypatch.setattr(outside, "protections", lambda: ("seccomp",))
    with pytest.raises(ConfigError, match=r"can read every file that you can read.*; isolation = 'any' runs"):
        Python()
    with pytest.warns(DovetailWarning, match="^tool python: model-written code can read every file"):
        assert Python(isolation="any").isolation == "any"
