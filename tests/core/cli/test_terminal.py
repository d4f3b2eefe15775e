"""Output streams that a command shares with what it calls."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_a_plugin_has_closed_ends_no_command_with_a_traceback(name):
    command = (
        "import sys\n"
        "from dovetail.cli.terminal import streams\n"
        "with streams() as terminal:\n"
        f"    sys.{name}.close()\n"
        "    terminal.finish()\n"
        f"print('there', file=sys.{name})\n"
    )
    found = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "there\n")
