"""Groups from a replay follow the fresh groups, with group ids of their own; groups of the wrong shape are refused."""

import attrs
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import PlanError, PluginError
from dovetail.host.replay import Replaying

FRESH = {
    "mask": np.ones((4, 3), bool),
    "scores": np.arange(4, dtype=np.float32),
    "group_ids": np.array([0, 0, 1, 1], np.int32),
}


@attrs.frozen(kw_only=True)
class Same:
    """Returns the last fresh groups immediately, on every call."""

    groups: int = 3
    wrong: str | None = None

    def init(self, empty):
        return {"steps": np.zeros((), np.int32)}

    def step(self, state, fresh, rng):
        earlier = {name: np.repeat(array[-1:], self.groups, axis=0) for name, array in fresh.items()}
        if self.wrong == "missing":
            del earlier["scores"]
        if self.wrong == "fewer":
            earlier["mask"] = earlier["mask"][1:]
        state = {"steps": state["steps"] + 1}
        if self.wrong == "groups":
            return None, state
        if self.wrong == "metrics":
            return earlier, state, "as many as before"
        if self.wrong == "metric":
            return earlier, state, {"oldest": None}
        return (earlier, state) if self.wrong == "silent" else (earlier, state, {"steps": state["steps"]})


def replaying(*overrides):
    dovetail.register("replay", "same", Same)
    return Replaying.of(
        load(None, ["train.replay=same", "train.group_size=2", "train.correction=tis_token", *overrides])
    )


def test_earlier_groups_stand_behind_the_fresh_ones_and_are_numbered_after_them():
    made = replaying()
    batch, state, metrics = made(made.init(FRESH), FRESH, step=0)
    assert batch["group_ids"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert batch["group_ids"].dtype == np.int32
    assert batch["scores"].tolist() == [0, 1, 2, 3, 2, 3, 2, 3, 2, 3]
    assert batch["mask"].shape == (10, 3)
    assert state["steps"] == 1
    assert metrics == {"replay/steps": 1.0}


def test_it_need_not_report_anything():
    made = replaying("replay.same.wrong='silent'")
    assert made(made.init(FRESH), FRESH, step=0)[2] == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("missing", r"does not return 'scores'"),
        ("fewer", r"returns the shape \(2, 2, 3\) and not \(3, 2, 3\) for 'mask'"),
    ],
)
def test_groups_that_do_not_fit_are_refused_with_their_author(wrong, message):
    made = replaying(f"replay.same.wrong='{wrong}'")
    said = rf"^replay.same of session 0 .* {message}; it returns every field .* \[.*test_replay.py:\d+\]$"
    with pytest.raises(PluginError, match=said):
        made(made.init(FRESH), FRESH, step=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("groups", "raised TypeError: argument of type 'NoneType' is not iterable"),
        ("metrics", "raised AttributeError: 'str' object has no attribute 'items'"),
        ("metric", "raised TypeError: float"),
    ],
)
def test_what_cannot_be_used_of_its_results_is_said_with_its_author(wrong, message):
    made = replaying(f"replay.same.wrong='{wrong}'")
    with pytest.raises(PluginError, match=rf"^replay.same of session 0 .* {message}.* \[.*test_replay.py:\d+\]$"):
        made(made.init(FRESH), FRESH, step=0)


def test_without_a_reader_of_rollout_logps_a_replay_is_refused_when_the_config_is_read():
    message = (
        r"train.replay = recent learns from completions of earlier policies, and no chosen component reads"
        r" 'rollout_logps' to correct for that; set train.correction to a name"
    )
    with pytest.raises(PlanError, match=message):
        load(None, ["train.replay=recent"])
    load(None, ["train.replay=recent", "train.correction=tis_token"])
    load(None, ["train.replay=recent", "train.policy_loss=decoupled_ppo"])


def test_a_run_has_no_replay_unless_one_is_chosen():
    assert Replaying.of(load(None, [])) is None
