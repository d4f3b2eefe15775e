"""Pages about a plugin's own components."""

from typing import Annotated

import attrs
import jax.numpy as jnp
from annotated_types import Ge

import dovetail
from dovetail.arrays import per_token
from dovetail.cli import main
from dovetail.registry import current
from dovetail_kit.conformance.check import checks
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge


def damped(logps, advantages, mask, *, damping: Annotated[float, Ge(0)] = 0.5):
    """Policy gradient that is damped.

        L = -A·log π / (1 + d)

    Args:
        logps: log π.
        damping: d.
    """
    return -logps * advantages / (1 + damping)


@attrs.frozen(kw_only=True)
class Remembering:
    """Subtract a number for each role.

        A = s - b

    Reads:
        state: b.
        role_ids: the role.

    Attributes:
        start: the first b.
    """

    start: float = 0.0

    def init(self, roles):
        return jnp.full(roles, self.start)

    def __call__(self, state, scores, role_ids, mask):
        """Return A.

        Args:
            scores: s.
            mask: policy tokens.
        """
        return per_token(scores - state[role_ids], mask)

    def update(self, state, scores, role_ids, mask):
        return state


def test_what_a_class_reads_is_told_in_it_or_in_its_call(tmp_path):
    dovetail.register("advantage", "remembering", Remembering)
    assert main(["docs", "session", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "advantage.md").read_text()
    assert "| `state` | b. |\n| `scores` | s. |\n| `role_ids` | the role. |\n| `mask` | policy tokens. |" in text
    assert "Reads:" not in text
    verdict = judge(next(each for each in checks("advantage") if each.name == "docstring"), subject_of("remembering"))
    assert verdict.outcome == "passed"


def subject_of(name):
    return Subject(current().get("advantage", name))


def test_a_page_says_what_its_kind_asks_for(tmp_path):
    dovetail.register("advantage", "remembering", Remembering)
    main(["docs", "session", "--out", str(tmp_path)])
    text = (tmp_path / "advantage.md").read_text()
    assert "protocol dovetail.protocols.StatefulAdvantage, of a class that reads 'state':\n" in text
    assert "    init(roles: int) -> Any\n        Return the initial state" in text


def test_they_are_made_from_its_docstrings(tmp_path, capsys):
    dovetail.register("policy_loss", "damped", damped)
    assert main(["docs", "session", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'policy_loss.md'}\n"
    text = (tmp_path / "policy_loss.md").read_text()
    assert "## damped\n\nPolicy gradient that is damped.\n\n```text\nL = -A·log π / (1 + d)\n```" in text
    assert "| `logps` | log π. |" in text
    assert "| `damping` | `0.5` | float >= 0 | d. |" in text
    assert main(["docs", "Session", "--out", str(tmp_path)]) == 0  # as pip takes it
    assert main(["docs", "sesion", "--out", str(tmp_path)]) == 1
    assert "no plugin 'sesion' has components. Did you mean 'session'?" in capsys.readouterr().err
