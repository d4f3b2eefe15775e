"""The host's contributions to a batch: the prompts that a curriculum chooses, and dataset columns as fields."""

import re

import attrs
import numpy as np
import pytest

from dovetail.errors import DataError, PluginError
from dovetail.registry import Component, Origin
from dovetail.training.drawn import Prompts, numbers


def rows(*values):
    return [{"prompt": f"prompt {i}", "difficulty": value} for i, value in enumerate(values)]


def test_a_column_of_numbers_is_a_field():
    found = numbers(rows(2, 0.5, True, np.float64(3)), "difficulty", "train.advantage = mine")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [2, 0.5, 1, 3])


@pytest.mark.parametrize("value", ["3", None, float("nan"), float("inf"), 10**400, [1]])
def test_a_column_that_holds_something_else_is_refused_with_value_and_prompt(value):
    with pytest.raises(DataError) as caught:
        numbers(rows(1, value), "difficulty", "train.advantage = mine and train.kl = theirs")
    message = str(caught.value)
    assert message.startswith(
        "train.advantage = mine and train.kl = theirs reads the column 'difficulty' as a field, and it is "
    )
    assert message.endswith("where the prompt is 'prompt 1'; a field holds finite numbers")
    assert repr(value)[:40] in message


@attrs.frozen(kw_only=True)
class Constant:
    """Chooses the same prompts again and again."""

    chosen: object = (2, 0)
    reports: bool = False
    grows: bool = False

    def init(self, examples):
        return {"seen": np.zeros(examples, np.int32)}

    def choose(self, state, count, rng):
        return np.array(self.chosen)

    def update(self, state, chosen, scores):
        seen = state["seen"].copy()
        seen[chosen] += np.isfinite(scores).sum(axis=1)
        if self.grows:
            return {"seen": seen[chosen]}
        return ({"seen": seen}, {"seen": seen.sum()}) if self.reports else {"seen": seen}


def prompts(**options):
    examples = [{"prompt": letter} for letter in "abc"]
    curriculum = Constant(**options)
    component = Component(kind="curriculum", name="x", target=Constant, origin=Origin("acme", "1.2", __name__))
    return Prompts(examples=examples, count=2, seed=0, curriculum=curriculum, component=component, stream=None)


def test_a_curriculum_whose_state_changes_its_shape_is_refused():
    made = prompts(grows=True)
    memory = made.init()
    made.next(memory, step=0, number=0)
    said = r"curriculum\.x of acme 1\.2 .* from `update` state\['seen'\] int32 \(2,\), which was int32 \(3,\) before"
    with pytest.raises(PluginError, match=rf"{said}.* \[.*test_drawn\.py:\d+\]$"):
        made.observe(memory, np.zeros(4))


@pytest.mark.parametrize("reports", [False, True])
def test_a_curriculum_chooses_and_is_told_the_scores(reports):
    made = prompts(reports=reports)
    memory = made.init()
    assert [example["prompt"] for example in made.next(memory, step=0, number=0)] == ["c", "a"]
    memory |= made.observe(memory, np.array([1.0, 0.0, np.nan, 2.0]))
    assert memory["curriculum"]["seen"].tolist() == [1, 0, 2]
    assert made.metrics == ({"curriculum/seen": 3.0} if reports else {})


@pytest.mark.parametrize("chosen", [(0,), (0, 1, 2), (0, 3), (-1, 0), (0.0, 1.0), ((0, 1),)])
def test_what_a_curriculum_may_not_choose(chosen):
    made = prompts(chosen=chosen)
    with pytest.raises(PluginError) as caught:
        made.next(made.init(), step=0, number=0)
    assert str(caught.value).startswith(f"curriculum.x of acme 1.2 ({__name__}) chose '[")
    form = re.escape(f"{np.asarray(chosen).dtype} {np.shape(chosen)}")
    end = (
        rf"\]', {form}; a round has 2 of them \(train.prompts and train.oversample\), each an index, an integer below 3"
        r" \[.*test_drawn.py:\d+\]$"
    )
    assert re.search(end, str(caught.value))
