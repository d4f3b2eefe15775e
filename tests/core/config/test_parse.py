from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.config.parse import read

Write = Callable[..., Path]


def bindings(path: Path | None, *overrides: str) -> list[tuple[str, object, str]]:
    reading = read(path, overrides)
    assert not reading.problems
    return [(b.key, b.value, b.place) for b in reading.bindings]


def problems(path: Path | None, *overrides: str) -> list[str]:
    reading = read(path, overrides)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its message is what matters
        reading.problems.raise_if_any()
    return str(caught.value).splitlines()


def test_every_binding_keeps_its_file_and_line(write: Write):
    path = write(
        """# a lab note
lr = 1e-3  # a macro

train.rewards = ['length',
                 'assorted']
critic/optimizer.adamw.b2 = 0.95
train:
  # a block
  steps = 3
  prompts = 4
kl.k3.clamp = 1
"""
    )
    assert bindings(path) == [
        ("lr", 1e-3, "x.gin:2"),
        ("train.rewards", ["length", "assorted"], "x.gin:4"),
        ("critic/optimizer.adamw.b2", 0.95, "x.gin:6"),
        ("train.steps", 3, "x.gin:9"),
        ("train.prompts", 4, "x.gin:10"),
        ("kl.k3.clamp", 1, "x.gin:11"),
    ]


def test_an_include_is_relative_to_the_including_file_and_applies_in_place(write: Write):
    write("train.steps = 1\n", "base/common.gin")
    write("include '../base/common.gin'\ntrain.steps = 2\n", "algorithms/grpo.gin")
    path = write("train.lr = 0.1\ninclude 'algorithms/grpo.gin'\ntrain.steps = 3\n")
    assert bindings(path) == [
        ("train.lr", 0.1, "x.gin:1"),
        ("train.steps", 1, "base/common.gin:1"),
        ("train.steps", 2, "algorithms/grpo.gin:2"),
        ("train.steps", 3, "x.gin:3"),
    ]


def test_a_file_included_twice_is_read_once(write: Write):
    write("train.steps = 1\n", "base.gin")
    write("include 'base.gin'\ntrain.steps = 2\n", "a.gin")
    path = write("include 'a.gin'\ninclude 'base.gin'\n")
    assert [value for _, value, _ in bindings(path)] == [1, 2]


def test_an_include_cycle_is_refused(write: Write):
    write("include 'x.gin'\n", "a.gin")
    assert problems(write("include 'a.gin'\n")) == ["a.gin:1: include cycle: x.gin -> a.gin -> x.gin"]


def test_a_missing_file_is_named_with_the_nearest(write: Write):
    write("", "conf/gsm8k.gin")
    assert problems(Path("conf/gsm8.gin")) == ["config: no such file: conf/gsm8.gin. Did you mean 'gsm8k.gin'?"]
    assert problems(Path("nowhere/x.gin")) == ["config: no such file: nowhere/x.gin."]


def test_a_missing_include_is_reported_where_it_is_included(write: Write):
    assert problems(write("\ninclude 'base.gin'\n")) == ["x.gin:2: no such file: base.gin."]


def test_a_file_that_is_no_text_is_reported(write: Write):
    path = write("")
    path.write_bytes(b"\xff\xfe")
    assert problems(path)[0].startswith("config: x.gin cannot be read: it is not UTF-8 text")
    assert problems(path.parent)[0].startswith("config: . cannot be read: ")


def test_a_config_is_data(write: Write):
    found = problems(write("import os\nfrom a.b import c as d\ntrain:\n  lr = @schedule()\nx.y = [1,\n @z]\n"))
    assert found == [
        "x.gin:1: 'import os' is refused: a config is data, it runs no code; installed plugins are found without imports",
        "x.gin:2: 'from a.b import c as d' is refused: a config is data, it runs no code;"
        " installed plugins are found without imports",
        "x.gin:4: '@schedule' is refused: a config is data, it runs no code; write a name in the statement that begins at"
        " line 3: lr = @schedule()",
        "x.gin:6: '@z' is refused: a config is data, it runs no code; write a name in the statement that begins at line 5: @z]",
    ]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("train.steps = 3 4", 1, "syntax error, expected newline: train.steps = 3 4"),
        ("\ntrain.steps 3", 2, "syntax error, couldn't parse statement, expected ':' or '=': train.steps 3"),
        ("kl.k-3.clamp = 3", 1, "expected ':' or '=' (in a key, '-' is written '_'): kl.k-3.clamp = 3"),
        ("train.steps =", 1, "syntax error, unable to parse value: train.steps ="),
        ("train.steps = 'abc", 1, "train.steps = 'abc"),
        ("a.b = (3,\n\n", 1, "syntax error, unclosed bracket or quote: a.b = (3,"),
        ("a.b = {[1]: 2}", 1, "syntax error, unhashable type: 'list': a.b = {[1]: 2}"),
        ("train:\n  steps 3\n", 2, "expected '=', got 3 in the statement that begins at line 1: steps 3"),
        ("include other.gin", 1, "syntax error, no value: 'other': include other.gin"),
        ("a.b = 1\n  c.d = 2\n e.f = 3\n", 3, "unindent does not match"),
    ],
)
def test_a_syntax_error_is_one_line_with_file_line_and_text(write: Write, text: str, line: int, said: str):
    (problem,) = problems(write(text))
    assert problem.startswith(f"x.gin:{line}: ")
    assert said in problem


def test_reading_goes_on_after_a_syntax_error(write: Write):
    reading = read(write("a.b = 1 2\nc.d = 3\ne.f = = 4\ng.h = 5\n"))
    assert [binding.key for binding in reading.bindings] == ["c.d", "g.h"]
    assert not reading.complete


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.lr=1e-3", 1e-3),
        ("train.lr = 1e-3", 1e-3),
        ("train.folder='a=b'", "a=b"),
    ],
)
def test_an_override_is_read_like_a_binding(override: str, value: object):
    assert read(None, [override]).bindings[0].value == value


@pytest.mark.parametrize(
    "text", ["/data/x.jsonl", "runs/a", "gs://bucket/x", "2024-01-02", "Qwen/Qwen3-0.6B", "~/x", "1e-3x"]
)
def test_an_override_may_be_a_plain_word(text: str):
    word = read(None, [f"run.folder={text}"]).bindings[0].value
    assert (word.text, word.free) == (text, True)


@pytest.mark.parametrize("override", ["train.lr", "train.lr=", "=3", "a b=3", ""])
def test_an_override_without_key_or_value_is_refused(override: str):
    assert problems(None, override) == [f"--set {override}: write section.field=value or kind.name.parameter=value"]


def test_an_override_that_is_no_value_asks_for_quotes():
    assert problems(None, "run.folder=a b") == [
        "--set run.folder=a b: syntax error, unexpected 'b' after the value; a text with such characters needs quotes of its own"
    ]


def test_an_include_may_name_a_shipped_config_but_a_neighbour_comes_first(tmp_path):
    mine = tmp_path / "mine.gin"
    mine.write_text("include 'quickstart.gin'\n")
    assert "train.task" in {b.key for b in read(mine).bindings}
    (tmp_path / "quickstart.gin").write_text("train.lr = 1.0\n")
    assert [b.key for b in read(mine).bindings] == ["train.lr"]
