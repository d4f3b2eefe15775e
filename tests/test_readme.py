"""The README's plugin, copied word for word into a distribution, trains."""

import re
from pathlib import Path

from tests.core.training.several import ended, start
from tests.core.training.tiny import TINY

README = (Path(__file__).parents[1] / "README.md").read_text()


def block(language: str, first_line: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.S)
    return next(text for text in blocks if text.startswith(first_line))


def test_the_plugin_of_the_readme_trains(tmp_path):
    package = tmp_path / "acme_rl"
    package.mkdir()
    (package / "losses.py").write_text(block("python", "# acme_rl/losses.py"))
    (package / "__init__.py").write_text(block("python", "# acme_rl/__init__.py"))
    entry = block("toml", "# pyproject.toml").splitlines()[-1].replace('"', "")
    info = tmp_path / "acme_rl-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rl\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[dovetail]\n{entry}\n")
    overrides = (
        *TINY,
        "sft.steps=0",
        "train.steps=1",
        "train.policy_loss=soft_clip",
        "policy_loss.soft_clip.temperature=0.5",
    )
    ((status, said),) = ended([start(tmp_path / "run", [], overrides, variables={"PYTHONPATH": str(tmp_path)})])
    assert status == 0, said
    assert '"acme-rl": "0.1"' in (tmp_path / "run" / "environment.json").read_text()
    assert "policy_loss/loss" in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_the_documented_variants_plan(capsys):
    import shlex

    from dovetail.cli import main

    for line in re.findall(r"^dovetail train (.*)$", README, re.M):
        assert main(["explain", *shlex.split(line, comments=True)]) == 0
