"""What a plugin does to the process while it is imported is undone where that is safe, and said in one warning."""

import os
import signal
import subprocess
import sys

import pytest

from dovetail.registry import _discovered
from dovetail.registry.one_file import FILES

FILE = """
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "mine", "{target}:mine")

def mine(logps, mask):
    return -logps
"""


@pytest.fixture
def result(tmp_path, monkeypatch):
    """Return a function that runs a command with a single-file plugin, and gives what it said and its status."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "odd.py").write_text(body + FILE.format(target="odd"))
        command = [sys.executable, "-m", "dovetail", *arguments]
        environment = {**os.environ, FILES: str(tmp_path / "odd.py"), "JAX_PLATFORMS": "cpu"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("body", "did"),
    [
        ("import sys; sys.stdout.close()", "it closed stdout (undone)"),
        ("import os; os.close(1)", "closed or redirected the file of stdout (undone)"),
        ("import os, sys; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)", "redirected the file of stderr (undone)"),
        ("import io, sys; sys.stderr = sys.stdout = io.StringIO()", "replaced stdout, replaced stderr (undone)"),
        ("import locale; locale.setlocale(locale.LC_ALL, 'C')", "changed the locale (undone)"),
    ],
)
def test_a_command_prints_as_if_nothing_had_happened(result, body, did, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    done = result(body, "describe", "policy_loss", "gspo")
    assert done.returncode == 0
    assert "gspo" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("warning: intrusive plugin odd 0+")
    assert did in warning


def test_the_module_of_a_component_is_watched_when_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "odd_target.py").write_text(
        "import os, signal\nos.chdir('/')\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.environ['ODD'] = '1'\n"
        + FILE.format(target="odd_target")
    )
    (tmp_path / "odd_entry.py").write_text(FILE.format(target="odd_target"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODD", "0")
    monkeypatch.setenv(FILES, str(tmp_path / "odd_entry.py"))
    _discovered.cache_clear()
    before = signal.getsignal(signal.SIGTERM)
    component = _discovered()[0].get("policy_loss", "mine")
    said = r"policy_loss\.mine of odd_entry 0\+\w+ \(odd_target\): while it was imported it changed the working folder,"
    try:
        with pytest.warns(match=said + r" changed the handler of SIGTERM \(undone\); do that"):
            assert component.reads == ("logps", "mask")
        assert os.getcwd() == str(tmp_path)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)
        _discovered.cache_clear()
        for module in ("odd_entry", "odd_target"):
            sys.modules.pop(module, None)


def test_a_plugin_that_raises_is_undone_too_and_reported_once(result):
    done = result("import os; os.chdir('/'); raise ValueError(0)\n", "describe", "policy_loss", "gspo")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "broken plugin odd 0: " in done.stderr
