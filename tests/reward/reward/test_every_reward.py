"""What is asked of every built-in reward beyond `dovetail_kit.conformance`; a new one joins by being registered."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from tests.reward.texts import formatted

import dovetail

NAMES = dovetail.names("reward")
every = pytest.mark.parametrize("name", NAMES)


def score(name: str, records: list[dict[str, Any]], **params: Any) -> list[float | None]:
    component = dovetail.get("reward", name)
    columns = [[record[read] for record in records] for read in component.reads]
    returned = component.bind(**params)(*columns)
    return returned[0] if isinstance(returned, tuple) else returned


@every
def test_the_page_of_every_reward_says_what_it_reads_and_shows_it(name: str) -> None:
    component = dovetail.get("reward", name)
    assert "Args:" in component.doc
    assert ">>>" in component.doc
    arguments = component.doc.partition("Args:")[2]
    for word in (*component.reads, *(name for name in component.params if name not in component.common)):
        assert re.search(rf"^ +([\w, ]+, )?{word}(, [\w, ]+)?:", arguments, re.MULTILINE), word


@pytest.mark.parametrize("name", [name for name in NAMES if "answer_start" in dovetail.get("reward", name).params])
def test_tags_are_taken_literally(name: str) -> None:
    params = dovetail.get("reward", name).params
    tags = {tag: f"(.*{tag}+?" for tag in params if tag.endswith(("_start", "_end"))}
    text = formatted("42")
    for tag, spelling in tags.items():
        text = text.replace(params[tag], spelling)

    def of(text: str, **params: Any) -> list[float | None]:
        return score(name, [{"completions": text, "answer": "42"}], **params)

    assert of(text, **tags) == of(formatted("42"))
    assert of(formatted("42"), **tags) == of("")


def test_rewards_do_not_import_jax() -> None:
    program = "import sys, dovetail\n"
    program += f"for name in {NAMES}: dovetail.get('reward', name).load()\n"
    program += "assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
