"""The single-file plugins that the docs print pass the checks that they recommend."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax
import pytest

import dovetail
from dovetail.registry import current
from dovetail.registry.one_file import imported
from dovetail_kit.conformance.check import applicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.verdict import judge, report

DOCS = Path(__file__).parents[3] / "docs"
FILES = [
    pytest.param("plugins.md", "my_loss", "policy_loss", "unclipped", marks=pytest.mark.slow),
    ("sweeps.md", "hopeless", "early_stopping", "hopeless"),
]


@pytest.mark.parametrize(("page", "module", "kind", "name"), FILES)
def test_it_conforms(page, module, kind, name, tmp_path, monkeypatch):
    (code,) = re.findall(rf"```python\n# {module}\.py\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    file = tmp_path / f"{module}.py"
    file.write_text(code)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)  # as some checks ask another process, which has the same path
    dovetail.register(kind, name, getattr(imported(file), name))
    subject = Subject(current().get(kind, name))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as third parties have it
        verdicts = {check: judge(check, subject) for check in applicable(subject.component)}
    assert len(verdicts) > 5
    failed = [report(check, subject, found) for check, found in verdicts.items() if found.outcome == "failed"]
    assert not failed, "\n".join(failed)
