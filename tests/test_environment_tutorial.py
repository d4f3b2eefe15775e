"""The tutorial for environments, executed word for word in an environment of its own."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.test_plugin_tutorial import environment, put  # noqa: F401 (a fixture)

PAGE = (Path(__file__).parents[1] / "docs" / "environment_tutorial.md").read_text()
SMALLER = ("train.steps=2", "sft.steps=2", "train.prompts=2", "train.group_size=2", "eval.every=2", "eval.examples=4")
SETS = " ".join(f"--set {override}" for override in (*SMALLER, "eval.batch_size=4", "model.decoder.width=16"))


@pytest.mark.slow
def test_the_tutorial_runs_word_for_word(environment):  # noqa: F811
    place, variables = environment
    here, said = place, {}
    for language, text in re.findall(r"```(sh|python|gin)\n(.*?)```", PAGE, re.S):
        if language != "sh":
            put(here, text, language, package="acme_games")
            continue
        for line in text.strip().splitlines():
            words = shlex.split(line)
            if words[0] == "cd":
                here = here / words[1]
                continue
            command = f"{line} {SETS}" if words[:2] == ["dovetail", "train"] else line
            done = subprocess.run(
                ["bash", "-c", command], cwd=here, env=variables, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            said[" ".join(words[:2]) if words[0] == "dovetail" else words[0]] = done.stdout
    assert "acme-games 0.1.0 conforms to dovetail" in said["pytest"]
    assert "interaction = acme-games/corridor" in re.sub(r" +", " ", said["dovetail explain"])
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    assert said["printf"] == shown
    assert "--- the model reads\nWalk.\nsign " in said["dovetail play"]
    assert (here / "runs" / "first" / "report.html").exists()
