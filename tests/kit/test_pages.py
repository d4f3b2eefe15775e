"""Pages about a plugin's own components."""

from typing import Annotated

from annotated_types import Ge

import dovetail
from dovetail.cli import main


def damped(logps, advantages, mask, *, damping: Annotated[float, Ge(0)] = 0.5):
    """Policy gradient that is damped.

        L = -A·log π / (1 + d)

    Args:
        logps: log π.
        damping: d.
    """
    return -logps * advantages / (1 + damping)


def test_they_are_made_from_its_docstrings(tmp_path, capsys):
    dovetail.register("policy_loss", "damped", damped)
    assert main(["docs", "session", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'policy_loss.md'}\n"
    text = (tmp_path / "policy_loss.md").read_text()
    assert "## damped\n\nPolicy gradient that is damped.\n\n```text\nL = -A·log π / (1 + d)\n```" in text
    assert "| `logps` | log π. |" in text
    assert "| `damping` | `0.5` | float >= 0 | d. |" in text
    assert main(["docs", "sesion", "--out", str(tmp_path)]) == 1
    assert "no plugin 'sesion' has components. Did you mean 'session'?" in capsys.readouterr().err
