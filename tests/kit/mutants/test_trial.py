"""Changes of a component that its examples do not notice are told, and nothing else of it is changed."""

import re
import sys

import pytest
from tests.limits import limit_only

from dovetail.cli import main
from dovetail.errors import ConfigError
from dovetail.registry import _discovered, current
from dovetail.registry.one_file import FILES
from dovetail_kit import workers
from dovetail_kit.mutants import examination, trial
from dovetail_kit.mutants.examination import examine

SOURCE = '''
"""A loss and a reward."""

from __future__ import annotations

import attrs
import dovetail
import jax.numpy as jnp


@dovetail.hookimpl
def dovetail_components(register):
    for kind, name in (("policy_loss", "mine"), ("reward", "brief"), ("kl_controller", "stepped"), ("reward", "bare")):
        register(kind, name, f"acme_mutants:{name}")


def bounded(x: Annotation, bound=2.0):
    """At most `bound` - 1 + 3."""
    if bound < 0:
        raise ValueError(f"bound must be {1 + 1} at least, not {bound - 1}")
    return jnp.minimum(x, bound)


def mine(logps, advantages, mask, *, bound: float = 2.0):
    """-A·min(x, b) + (x < 0)/2.

    >>> x, mask = jnp.array([[1.0, 3.0]]), jnp.array([[True, True]])
    >>> mine(x, jnp.array([[1.0, 1.0]]), mask).tolist()
    [[-1.0, -2.0]]
    """
    x = jnp.where(mask, logps + 1e-8, 0.0)
    return -advantages * bounded(x, bound) + (x < 0) / 2


def brief(completions, *, scale: float = 1.0):
    """The length, times `scale`.

    >>> brief(["", "ab", "abcd"], scale=3.0)
    [0.0, 6.0, 12.0]
    """
    return [len(text) * scale for text in completions]


@attrs.frozen(kw_only=True)
class stepped:
    """Adds a tenth.

    >>> stepped(start=1.0).next(2.0)
    2.1
    """

    start: float = 0.0

    def next(self, value: float) -> float:
        return value + 0.1 if not value < 0 else value


def bare(completions):
    """Nothing is shown."""
    return [0.0] * len(completions)
'''


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(FILES, "")
    monkeypatch.setattr(workers, "cores", lambda: 0)  # changes are tried in this process, which has JAX already
    (tmp_path / "acme_mutants.py").write_text(SOURCE)
    yield tmp_path / "acme_mutants.py"
    _discovered.cache_clear()
    sys.modules.pop("acme_mutants", None)


def told(file, capsys, *words):
    assert main(["plugin", "mutants", "--plugin", str(file), *words]) == 0
    return capsys.readouterr().out


def test_what_the_examples_do_not_notice_is_told_with_its_line(file, capsys):
    out = told(file, capsys, "--only", "policy_loss.mine")
    line = SOURCE.splitlines().index("    x = jnp.where(mask, logps + 1e-8, 0.0)") + 1
    minimum = SOURCE.splitlines().index("    return jnp.minimum(x, bound)") + 1
    guard = "jnp.where(mask, logps + 1e-08, 0.0)"
    sums = "-advantages * bounded(x, bound) + (x < 0) / 2"
    assert out.splitlines() == [
        "policy_loss.mine: its examples notice 11 of 23 changes, but not",
        f"  acme_mutants.py:{minimum}:12: jnp.minimum(x, bound)  as  jnp.minimum(jnp.maximum(x, 1 / bound), bound)",
        f"  acme_mutants.py:{line}:9: {guard}  as  {guard.replace('mask', 'mask | True')}",
        f"  acme_mutants.py:{line}:25: logps + 1e-08  as  logps - 1e-08",
        f"  acme_mutants.py:{line}:39: 0.0  as  1.0  in  jnp.where(mask, logps + 1e-08, 0.0)",
        f"  acme_mutants.py:{line + 1}:12: {sums}  as  {sums.replace('+', '-')}",
        f"  acme_mutants.py:{line + 1}:34: x  as  logps",
        f"  acme_mutants.py:{line + 1}:46: (x < 0) / 2  as  (x < 0) * 2",
        f"  acme_mutants.py:{line + 1}:47: x < 0  as  x <= 0",
        f"  acme_mutants.py:{line + 1}:47: x  as  logps or advantages",
        f"  acme_mutants.py:{line + 1}:51: 0  as  1  in  x < 0",
        f"  acme_mutants.py:{line + 1}:56: 2  as  3  in  (x < 0) / 2",
    ]


def test_a_file_is_read_in_the_encoding_that_it_names(file, capsys):
    text = f"# coding: latin-1{SOURCE}".replace("    if bound < 0:", "    # café\n    if bound < 0:")
    file.write_bytes(text.encode("latin-1"))
    minimum = text.split("\n").index("    return jnp.minimum(x, bound)") + 1
    assert f"acme_mutants.py:{minimum}:12: jnp.minimum(x, bound)" in told(file, capsys, "--only", "policy_loss.mine")


def test_nothing_is_told_of_what_they_pin_down(file, capsys):
    assert told(file, capsys, "--only", "reward.brief") == "reward.brief: its examples notice 3 of 3 changes\n"


def test_classes_are_changed_too(file, capsys):
    out = told(file, capsys, "--only", "kl_controller.stepped")
    assert [text.split(": ", 1)[1] for text in out.splitlines()] == [
        "its examples notice 4 of 6 changes, but not",
        "value < 0  as  value <= 0",
        "0  as  1  in  value < 0",
    ]


def test_all_of_a_plugin(file, capsys):
    out = told(file, capsys)
    assert "reward.bare: has no examples" in out
    assert {line.split(":")[0] for line in out.splitlines() if not line.startswith(" ")} == {
        "policy_loss.mine",
        "reward.brief",
        "kl_controller.stepped",
        "reward.bare",
    }


def test_the_component_stays_as_it_is(file, capsys):
    told(file, capsys)
    component = current().get("reward", "brief")
    assert component.load()(["ab"]) == [2.0]
    assert examine(component) == examine(component)


def test_how_far_it_is_is_told(file, capsys):
    told(file, capsys, "--only", "reward.brief")
    seen = []
    examine(current().get("reward", "brief"), lambda *counts: seen.append(counts))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_parent_of_processes_runs_the_examples_once(file, capsys, monkeypatch):
    """Turns are counted where changes are tried, and that is in the processes."""
    told(file, capsys, "--only", "reward.brief")
    ran, run = [], trial.run_examples
    monkeypatch.setattr(trial, "run_examples", lambda each, *changed: ran.append(each) or run(each, *changed))
    monkeypatch.setattr(examination, "Workers", InTurn)
    seen = []
    verdict = examine(current().get("reward", "brief"), lambda *counts: seen.append(len(ran)), processes=1)
    assert seen[0] == 1
    assert verdict == examine(current().get("reward", "brief"))


class InTurn:
    """`Workers` whose calls run here."""

    def __init__(self, make, processes):
        self.function = make()

    def call(self, *arguments, time_limit):
        return self.function(*arguments)

    def close(self):
        """Do nothing, since there is no process."""


def test_one_whose_examples_fail_is_told_and_the_others_are_examined(file, capsys):
    file.write_text(SOURCE.replace("[0.0, 6.0, 12.0]", "[1.0]"))
    assert main(["plugin", "mutants", "--plugin", str(file)]) == 1
    out = capsys.readouterr().out
    assert "reward.brief: its examples fail as it is: Failed example: " in out
    assert "policy_loss.mine: its examples notice" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--only", "reward.breif"), "unknown reward 'breif'. Did you mean 'brief'?"),
        (("acme-mutant",), r"acme-mutant registers nothing. Did you mean 'acme_mutants'\? these do: "),
    ],
)
def test_what_does_not_exist_is_told_with_the_nearest_spelling(file, capsys, words, reason):
    assert main(["plugin", "mutants", "--plugin", str(file), *words]) == 1
    assert re.search(re.escape(reason) if "\\" not in reason else reason, capsys.readouterr().err)


def test_a_component_made_by_a_function_is_refused(file, monkeypatch):
    told_of = current().get("policy_loss", "gspo")
    monkeypatch.setattr(type(told_of), "load", lambda self: made())
    with pytest.raises(ConfigError, match="it is not defined at the top level of a file"):
        examine(told_of)


LOOPS = '''
"""A reward that counts."""

import re

import dovetail
from dovetail_kit.tables import folded as lines_of

MOST = 8
KEPT: float = 0.5


@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "halved", "acme_mutants:halved")
    register("reward", "plain", "acme_mutants:plain")


def halvings(n):
    """How often a number can be halved.

    >>> halvings(8), halvings(1)
    (3, 0)
    """
    count = 0
    while n > 1:
        n, count = n // 2, count + 1
    return count


def halved(completions):
    """How often the length can be halved.

    >>> halved(["ab", 16 * "a"])
    [1.0, 3.0]
    """
    return [float(halvings(min(len(each), MOST))) for each in completions]


def plain(completions):
    """The lines.

    >>> plain([" ab "])
    ['ab']
    """
    return [re.sub(" ", "", "a b")] if completions else lines_of([], None)
'''


ASKED = '''"""A component whose example asks until there is nothing left to say."""

import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "count", "acme_mutants:count")


class Count:
    said = 0

    def ask(self):
        self.said += 1
        return self.said if self.said != 4 else None


def count(completions):
    """Three for each.

    >>> count(["a"])
    [3.0]
    >>> len(list(iter(Count().ask, None)))
    3
    """
    counts = [Count() for _ in completions]
    return [float(max(count.ask() for _ in range(3))) for count in counts]
'''


def test_an_example_ends_that_asks_until_a_changed_method_says_something(file, capsys):
    file.write_text(ASKED)
    said = told(file, capsys, "--only", "reward.count")
    assert said.splitlines() == ["reward.count: its examples notice 9 of 9 changes"]


GROWING = '''"""A reward that keeps what it has seen, of which a change makes more and more."""

import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "growing", "acme_mutants:growing")


def twice(text):
    return text + text


def joined(earlier, fresh):
    return twice(fresh) if earlier is not None else earlier


def growing(completions):
    """Twice the number of bytes.

    >>> growing(["a" * 2**20])
    [2097152.0]
    """
    for text in completions:
        seen = text.encode()
        for _ in range(40):
            seen = joined(seen, text.encode())
    return [float(len(seen)) for _ in completions]
'''


def test_a_change_that_takes_more_and_more_memory_is_stopped(file, capsys, monkeypatch):
    sizes, resident = [], trial._resident

    def watched():
        sizes.append(resident())
        return sizes[-1]

    monkeypatch.setattr(trial, "MEMORY", 2**27)
    monkeypatch.setattr(trial, "_resident", watched)
    file.write_text(GROWING)
    told(file, capsys, "--only", "reward.growing")
    assert sizes[0] + 2**27 < max(sizes) < sizes[0] + 2**29


HANGING = '''"""A reward of which a change waits for ever."""

import time

import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "hanging", "acme_mutants:hanging")


def hanging(completions):
    """The length.

    >>> hanging(["ab"])
    [2.0]
    """
    time.sleep(0 * 1e6)
    return [float(len(each)) for each in completions]
'''


def test_a_change_that_hangs_is_ended_with_its_process(file, capsys, monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 1)
    monkeypatch.setattr(examination, "SECONDS", 0.5)
    limit_only(monkeypatch, "(2,)")  # the third change is the one that waits
    file.write_text(HANGING)
    out = told(file, capsys, "--only", "reward.hanging")
    assert "its examples notice 2 of 5 changes" in out
    assert ": 0  as  1  in  0 * 1000000.0" not in out


def test_what_was_found_until_an_interrupt_is_told(file, capsys, monkeypatch):
    def interrupted(done, total):
        if done == 2:
            raise KeyboardInterrupt

    told(file, capsys, "--only", "reward.brief")
    verdict = examine(current().get("reward", "brief"), interrupted)
    assert (verdict.made, verdict.left, verdict.unnoticed) == (2, 1, ())
    monkeypatch.setattr(examination, "examine", lambda *args, **kwargs: verdict)
    assert main(["plugin", "mutants", "--plugin", str(file), "--only", "reward.brief"]) == 130
    assert "its examples notice 2 of 2 changes (1 others were not tried)" in capsys.readouterr().out


def test_a_changed_loop_ends_and_the_examples_of_a_helper_and_constants_count(file, capsys):
    file.write_text(LOOPS)
    assert told(file, capsys, "--only", "reward.halved").splitlines() == [
        "reward.halved: its examples notice 17 of 19 changes, but not",
        "  acme_mutants.py:9:8: 8  as  9",
        "  acme_mutants.py:27:20: n // 2  as  round(n / 2) * 2 // 2",
    ]


def test_of_one_without_anything_to_change_that_is_said_and_not_that_all_is_well(file, capsys):
    file.write_text(LOOPS)
    assert told(file, capsys, "--only", "reward.plain").splitlines() == [
        "reward.plain: there is nothing in it that this command can change, so its examples are not measured",
        "  not changed: lines_of (imported); re.sub (text)",
    ]


def test_a_helper_whose_examples_fail_is_named(file, capsys):
    file.write_text(LOOPS.replace("(3, 0)", "(3, 1)"))
    assert main(["plugin", "mutants", "--plugin", str(file), "--only", "reward.halved"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("reward.halved: the examples of 'halvings' fail as it is: Failed example: ")


def made():
    def inside():
        """>>> 1
        1
        """

    return inside


AGAIN = '''
"""A loss and two advantages."""

import attrs
import dovetail
import jax.numpy as jnp
from dovetail.arrays import Groups, log_ratio, masked


@dovetail.hookimpl
def dovetail_components(register):
    for kind, name in (("policy_loss", "mine"), ("advantage", "shared"), ("reward", "kept")):
        register(kind, name, f"acme_again:{name}")


def mine(logps, old_logps, advantages, mask):
    """-(A + r).

    >>> x, mask = jnp.zeros((1, 2)), jnp.array([[True, False]])
    >>> (mine(x, x, x + 2.0, mask) + 0.0).tolist()
    [[-3.0, 0.0]]
    """
    ratio = jnp.exp(log_ratio(logps, old_logps, mask))
    return -masked(ratio + masked(advantages, mask), mask)


def shared(scores, group_ids, mask):
    """A = s.

    >>> shared(jnp.ones(2), jnp.array([0, 0]), jnp.ones((2, 1), bool)).tolist()
    [[1.0], [1.0]]
    """
    groups = Groups.of(group_ids, mask)
    return scores[:, None] * mask * (groups.sizes > 0)[:, None]


@attrs.frozen
class Counter:
    def count(self, text):
        return len(text) + 1


COUNTER = Counter()


def kept(completions):
    """Something.

    >>> kept([""])
    [1]
    """
    return [COUNTER.count(text) for text in completions]
'''


@pytest.fixture
def again(file):
    path = file.with_name("acme_again.py")
    path.write_text(AGAIN)
    yield path
    sys.modules.pop("acme_again", None)


def test_a_mask_that_is_left_out_before_the_same_one_is_told_apart(again, capsys):
    told_apart = "  and these, which may make no difference, as what comes of them is masked again:"
    lines = told(again, capsys, "--only", "policy_loss.mine").splitlines()
    first, others = lines[: lines.index(told_apart)], lines[lines.index(told_apart) + 1 : -1]
    assert [line.split("  as  ")[1] for line in others] == [
        "log_ratio(logps, old_logps, mask | True)",
        "masked(advantages, mask | True)",
    ]
    assert all(line.startswith("    acme_again.py:") for line in others)
    assert not [line for line in first if "mask | True" in line], "what selects last is noticed"


def test_classes_whose_methods_are_not_changed_are_named(again, capsys):
    assert "not changed: Groups (imported)" in told(again, capsys, "--only", "advantage.shared")
    out = told(again, capsys, "--only", "reward.kept")
    assert "not changed: COUNTER, Counter of COUNTER (made once)" in out
