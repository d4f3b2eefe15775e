"""Task, reward and interaction `verifiers`, with an environment that is written for the library."""

import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from dovetail.errors import ConfigError
from dovetail.protocols import Turn

vf = pytest.importorskip("verifiers.v1")
from dovetail_environments.interaction.verifiers import VerifiersUser  # noqa: E402
from dovetail_environments.reward.verifiers import verifiers  # noqa: E402
from dovetail_environments.task.verifiers import Verifiers  # noqa: E402

TASK = Verifiers(id="dovetail_letters", config={"letters": "abc"}, size=30, eval_size=10)


def letter(example):
    """Return the letter to be guessed."""
    from dovetail_environments._verifiers import named

    return named(example["verifiers_task"])[1].data.letter


def play(example, *texts, user=None):
    """Return the steps of an episode."""
    user = user or VerifiersUser()
    state, said = user.reset(example, np.random.default_rng(0))
    assert said == ()
    steps = []
    for number, text in enumerate(texts):
        steps.append(user.step(state, Turn(text=text, number=number), None))
        state = steps[-1].state
    return steps


def test_a_taskset_is_a_task():
    example = TASK.examples("train")[0]
    assert example["prompt"] == [
        {"role": "system", "content": "Guess."},
        {"role": "user", "content": "Game 11: a letter from a to c."},
    ]
    assert (len(TASK.examples("train")), len(TASK.examples("eval")), len(TASK.examples("sft"))) == (20, 10, 0)
    assert {letter(each) for each in TASK.examples("train")} == set("abc")
    with pytest.raises(ConfigError, match=r"task.verifiers.eval_size = 5 leaves no task .* has 5"):
        Verifiers(id="dovetail_letters", size=5, eval_size=5).examples("train")


def test_its_rewards_are_weighted_and_logged():
    example = TASK.examples("train")[0]
    right = letter(example)
    scores, metrics = verifiers([right, right * 2], [example["verifiers_task"]] * 2)
    assert scores == [1.5, 0]
    assert metrics == {"right": [1, 0], "short": [1, 0], "turns": [1, 1]}


def test_an_environment_plays_the_user_until_it_returns():
    example = next(each for each in TASK.examples("train") if letter(each) == "b")
    steps = play(example, "a", "c", "b")
    assert [step.messages[0]["content"] for step in steps[:2]] == ["later", "earlier"]
    assert [step.done for step in steps] == [False, False, True]
    assert [step.reward for step in steps] == [0, 0, 1.5]
    assert steps[-1].metrics == {"turns": 3}
    assert [step.done for step in play(example, "a", "a", "a", "a")] == [False] * 3 + [True]


def test_old_states_stay_usable():
    example, user = TASK.examples("train")[0], VerifiersUser()
    wrong = "z"
    steps = play(example, wrong, wrong, user=user)
    again = [user.step(steps[0].state, Turn(text=wrong, number=1), None) for _ in range(2)]
    assert again == [steps[1]] * 2
    assert VerifiersUser().step(steps[0].state, Turn(text=letter(example), number=1), None).reward == 1.5


def test_what_needs_a_sandbox_is_refused(monkeypatch):
    class Sandboxed(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
        @vf.reward
        async def passes(self, runtime) -> float:
            return 1.0

    class Boxes(vf.Taskset[Sandboxed, vf.TasksetConfig]):
        def load(self):
            yield Sandboxed(vf.TaskData(prompt="?"), self.config.task)

    module = types.ModuleType("boxes")
    module.__spec__, module.__all__, module.Boxes = ModuleSpec("boxes", None), ["Boxes"], Boxes
    monkeypatch.setitem(sys.modules, "boxes", module)
    with pytest.raises(ConfigError, match="the reward passes of 'boxes' reads verifiers' sandbox"):
        Verifiers(id="boxes").examples("train")
    with pytest.raises(
        ConfigError, match=r"verifiers cannot load the taskset 'none' with \{\}: taskset 'none' not found"
    ):
        Verifiers(id="none").examples("train")
    with pytest.raises(ConfigError, match=r"cannot load the taskset 'dovetail_letters' with .*sizes"):
        Verifiers(id="dovetail_letters", config={"sizes": 3}).examples("train")
