"""Process rewards receive texts, tokens and the end of each token; errors name the reward and the sample."""

import itertools
import math
import re
import sys

import attrs
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import PlanError, RewardError
from dovetail.host.process_rewards import ProcessScorer
from dovetail.host.rewards import ALWAYS, check_columns
from dovetail.protocols import Completions
from dovetail.registry import Component, Origin
from dovetail.step.parts import Part

EXAMPLES = [{"prompt": "1+1", "answer": "2"}, {"prompt": "1+2", "answer": "3"}]
ORIGIN = Origin("acme-rl", "1.0", "acme")


@attrs.frozen
class Words:
    """A tokenizer whose tokens are the letters of the alphabet, and 0, which has no text."""

    decoded: list = attrs.field(factory=list, eq=False)

    def decode(self, ids):
        self.decoded.append(len(ids))
        return "".join(chr(96 + token) for token in ids if token)


def drawn(*rows, width=4):
    """Return completions with these ids; negative ids are tool tokens, which are outside the mask."""
    tokens = np.zeros((len(rows), width), np.int32)
    mask = np.zeros((len(rows), width), bool)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = np.abs(ids)
        mask[row, : len(ids)] = np.array(ids) >= 0
    finish = np.full(len(rows), "eos")
    return Completions(
        tokens=tokens, mask=mask, logps=np.where(mask, -0.5, 0.0), finish=finish, versions=np.zeros(len(rows), int)
    )


def part(function, coef=1.0, **statics):
    component = Component(kind="process_reward", name=function.__name__, target=function, origin=ORIGIN)
    return Part(role="p", label="p", component=component, statics=statics, floats={"coef": coef})


def scorer(*parts):
    bound = [each if isinstance(each, Part) else part(each) for each in parts]
    for each in bound:
        each.component.common = {"coef": 1.0}
    return ProcessScorer(rewards=tuple(bound), tokenizer=Words())


def score(*functions, rows=((1, 2, 0), (3,)), texts=("ab", "c")):
    return scorer(*functions)(EXAMPLES, list(texts), drawn(*rows), 1)


def per_token(tokens):
    """As many as the id says."""
    return [[float(token) for token in ids] for ids in tokens]


def test_one_number_for_each_policy_token_lands_on_it():
    total, metrics = score(per_token, rows=((1, -7, 2), (3,)))
    np.testing.assert_array_equal(total, [[1, 0, 2, 0], [3, 0, 0, 0]])
    assert total.dtype == np.float32
    np.testing.assert_array_equal(metrics["per_token"], [3, 3])


def test_several_add_up_each_times_its_coefficient():
    def ends_here(ends):
        """One on the last token."""
        return [[0.0] * (len(each) - 1) + [1.0] for each in ends]

    total, metrics = score(part(per_token, coef=0.5), part(ends_here, coef=-2.0))
    np.testing.assert_array_equal(total, [[0.5, 1, -2, 0], [-0.5, 0, 0, 0]])
    np.testing.assert_array_equal(metrics["ends_here"], [1, 1])  # without the coefficient: what the reward says


def test_none_gives_a_completion_nothing_and_no_tokens_want_no_numbers():
    def sometimes(tokens):
        """Nothing for the first."""
        return [None, *([] for _ in tokens[1:])]

    total, metrics = score(sometimes, rows=((1, 2), ()), texts=("ab", ""))
    assert not total.any()
    assert metrics["sometimes"].tolist() == [0, 0]


def test_what_it_may_read():
    seen = {}

    def curious(completions, prompts, examples, group_ids, tokens, logps, ends, answer):
        """Everything there is."""
        seen.update(locals())
        return [None for _ in completions]

    score(curious)
    assert {name: value for name, value in seen.items() if name != "seen"} == {
        "completions": ["ab", "c"],
        "prompts": ["1+1", "1+2"],
        "examples": EXAMPLES,
        "group_ids": [0, 1],
        "tokens": [[1, 2, 0], [3]],
        "logps": [[-0.5] * 3, [-0.5]],
        "ends": [[1, 2, 2], [1]],
        "answer": ["2", "3"],
    }


def test_ends_cost_nothing_where_nobody_reads_them():
    made = scorer(per_token)
    made(EXAMPLES, ["ab", "c"], drawn((1, 2), (3,)), 1)
    assert made.tokenizer.decoded == []


@attrs.frozen
class Spaces(Words):
    """A tokenizer of words that omits the space before the first one, as sentencepiece does."""

    def decode(self, ids):
        self.decoded.append(len(ids))
        return "".join(" " + "x" * token for token in ids if token).removeprefix(" ")


@attrs.frozen
class Counts(Words):
    """A tokenizer whose text depends on the number of all tokens, so that a few tokens do not determine its length."""

    def decode(self, ids):
        self.decoded.append(len(ids))
        return "x" * sum(range(len(ids)))


@pytest.mark.parametrize("tokenizer", [Words, Spaces, Counts])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 100])
def test_ends_are_the_lengths_of_the_beginnings_of_the_text(tokenizer, length):
    seen = []

    def ends_of(ends):
        """Looks where tokens end."""
        seen.extend(ends)
        return [None for _ in ends]

    ids = (np.arange(length) * 7 % 5).tolist()
    made, reference = tokenizer(), tokenizer()
    text = reference.decode(ids)
    attrs.evolve(scorer(ends_of), tokenizer=made)(EXAMPLES[:1], [text], drawn(ids, width=length), 1)
    assert seen == [[len(reference.decode(ids[: end + 1])) for end in range(length)]]
    if tokenizer is not Counts:
        assert sum(made.decoded) <= length * (32 + length / 16 + 1), "not the square of the length"


def failing(completions):
    raise KeyError("step")


def one_too_few(completions):
    return [[1.0] for _ in completions]


def for_one_completion(completions):
    return [[1.0, 1.0, 1.0]]


def nan_at_the_end(tokens):
    return [[0.0] * (len(ids) - 1) + [math.nan] for ids in tokens]


def words(tokens):
    return [["good"] * len(ids) for ids in tokens]


def a_number(tokens):
    return [1.0 for _ in tokens]


def without_end(tokens):
    return itertools.repeat([])


def leaves(tokens):
    sys.exit("no model")


def forgets(completions):
    [[1.0] for _ in completions]


def by_completion(completions):
    return dict.fromkeys(completions)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_end, "process_reward without_end returned more than 2 lists for as many completions"),
        (leaves, "process_reward leaves (acme-rl 1.0 (acme)) raised SystemExit: no model; first completion: 'ab' ["),
        (forgets, "forgets (acme-rl 1.0 (acme)) returned None, as a function without `return` does; return a list"),
        (by_completion, "return a list with a list of numbers for each completion"),
        (failing, "process_reward failing (acme-rl 1.0 (acme)) raised KeyError: 'step'; first completion: 'ab'"),
        (for_one_completion, "process_reward for_one_completion returned 1 lists for 2 completions"),
        (
            one_too_few,
            "one_too_few gave '[1.0]' to sample 0, completion 'ab'; return a finite number for each of its 3",
        ),
        (nan_at_the_end, "nan_at_the_end gave '[0.0, 0.0, nan]' to sample 0, completion 'ab'; return a finite number"),
        (words, "words gave \"['good', 'good', 'good']\" to sample 0"),
        (
            a_number,
            "a_number gave '1.0' to sample 0, completion 'ab'; return a finite number for each of its 3 tokens, or None [",
        ),
    ],
)
def test_a_faulty_process_reward_is_named_with_its_sample(function, message):
    with pytest.raises(RewardError, match=re.escape(message)):
        score(function)


def test_a_column_that_the_task_lacks_is_refused():
    def graded(completions, step_scores):
        """Reads what is not there."""
        return []

    message = "process_reward graded of acme-rl 1.0 (acme) reads the column 'step_scores', which task own does not have. Did you mean 'scores'"
    with pytest.raises(PlanError, match=re.escape(message)):
        check_columns([part(graded)], ("answer", "scores"), "own", (*ALWAYS, "ends"))


def test_a_reader_of_what_is_not_chosen_is_refused_with_the_setting():
    def reader(process_rewards, mask):
        """An estimator on process rewards."""
        return process_rewards

    dovetail.register("advantage", "reader", reader)
    message = "reads 'process_rewards', which process rewards provide; set train.process_rewards to names"
    with pytest.raises(PlanError, match=message):
        load(None, ["train.advantage=reader"])
    load(None, ["train.advantage=reader", "train.process_rewards=['equations']"])


def test_what_it_reports_is_for_each_completion():
    def reports(tokens):
        """A metric that only the first has, and one for all."""
        return [None for _ in tokens], {"steps": [2.0, math.nan], "seconds": 0.5}

    _, metrics = score(reports)
    np.testing.assert_array_equal(metrics["reports/steps"], [2.0, math.nan])
    np.testing.assert_array_equal(metrics["reports/seconds"], [0.5, 0.5])

    def reports_wrongly(tokens):
        """One too many."""
        return [None for _ in tokens], {"steps": [1, 2, 3]}

    with pytest.raises(
        RewardError, match=r"metric reports_wrongly/steps of a reward is '\[1, 2, 3\]'; return one number"
    ):
        score(reports_wrongly)
