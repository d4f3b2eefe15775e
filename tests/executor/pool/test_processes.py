"""Rewards and tools in worker processes."""

import os

import attrs
import pytest
from tests.agent.agent_loop.test_tool_agent import ADD, begin, say
from tests.core.training.tiny import TINY
from tests.executor.pool import cases
from tests.limits import limit_only

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, RewardError
from dovetail.protocols import Tool
from dovetail.training.loop import train
from dovetail_executor.pool.processes import Processes

POOL = Processes(workers=2, seconds=300.0)


def pooled(function, pool=POOL):
    return cases.component(function).bind(pool=pool)


@pytest.mark.slow
def test_a_run_with_a_pool_writes_the_same_bytes(tmp_path):
    sets = [*TINY, "sft.steps=2", "train.steps=2"]
    chosen = [
        "reward.exact_match.pool='processes'",
        "reward.match_format_approximately.pool='dovetail/processes'",
        "pool.processes.workers=2",
    ]
    train(load(None, sets), tmp_path / "without")
    train(load(None, [*sets, *chosen]), tmp_path / "with")
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


@pytest.mark.parametrize(("rows", "calls"), [(1, 3), (3, 2), (99, 1)])
def test_groups_stay_together_and_completions_in_order(rows, calls):
    given = ["a", "bbb", "cc", "dd", "eeee", ""], [7, 7, 3, 3, 5, 5]
    reward = pooled(cases.length, attrs.evolve(POOL, rows=rows))
    scores, metrics = reward(*given)
    assert scores == cases.length(*given)[0]
    assert os.getpid() not in metrics["process"]
    assert len(reward._cuts(given)) == calls + 1
    assert reward([], []) == ([], {"process": []})


def test_what_goes_wrong_is_told(tmp_path):
    reward = pooled(cases.obey)
    again = f"end_once {tmp_path / 'note'}"
    assert reward(["one", "abstain", again, "three"])[0] == [3.0, None, 8.0, 5.0]
    with pytest.raises(
        RewardError, match=r"reward obey \(acme-rl.*raised KeyError.*completion: 'raise' .*cases.py:\d+"
    ):
        reward(["one", "raise"])
    with pytest.raises(RewardError, match="reward obey ended its process twice on the completion 'end'; .* `failed`"):
        reward(["one", "end"])
    with pytest.raises(RewardError, match="reward short returned 0 scores for 1 completions"):
        pooled(cases.short)(["one"])
    assert pooled(cases.words)(["one"])[0] == "good"  # which the engine refuses


@pytest.mark.slow
@pytest.mark.parametrize(("failed", "score"), [("abstain", None), (-1.0, -1.0)])
def test_a_late_call_costs_only_its_own_score(failed, score, monkeypatch):
    limit_only(monkeypatch, "sleep")
    reward = pooled(cases.obey, attrs.evolve(POOL, seconds=1.0, failed=failed))
    scores, metrics = reward(["one", "sleep", "three", "end"])
    assert scores == [3.0, score, 5.0, score]
    assert metrics["unscored"].tolist() == [0.0, 1.0, 0.0, 1.0]
    with pytest.raises(RewardError, match="took longer than 1 s on the completion 'sleep'"):
        pooled(cases.obey, attrs.evolve(POOL, seconds=1.0))(["sleep"])


def test_what_cannot_run_there_is_refused():
    with pytest.raises(ConfigError, match="reward.<lambda> cannot run in pool 'processes': it cannot be sent to"):
        pooled(lambda completions: [])
    with pytest.raises(ConfigError, match=r"reward.model.pool: this reward computes on the devices of the run"):
        POOL.around(dovetail.get("reward", "model"), lambda completions: [])
    with pytest.raises(ConfigError, match=r"exact_match.pool: .*pool 'proceses'.* Did you mean 'processes'"):
        load(None, [*TINY, "reward.exact_match.pool='proceses'"])
    with pytest.raises(ConfigError, match=r"pool.processes has no parameter 'worker'\. Did you mean 'workers'"):
        load(None, [*TINY, "reward.exact_match.pool='processes'", "pool.processes.worker=2"])


def test_tools_run_there():
    tool = Tool(name="add", function=cases.add, target=cases.add)
    running = begin(tools=[tool], pool=POOL)
    said = say(running, ADD)
    assert said.startswith("[tool:3 ")
    assert not said.endswith(f" {os.getpid()}]")
    assert say(running, ADD.replace('"a": 1', '"a": 0')) == "[tool:error: the process of the tool ended]"
    with pytest.raises(ConfigError, match="tools run in `processes` or in a `pool`"):
        begin(tools=[tool], pool=POOL, processes=2)
    with pytest.raises(ConfigError, match="the tools of train.tools cannot run in pool 'processes'"):
        begin(tools=[attrs.evolve(tool, function=lambda a, b: a)], pool=POOL)
