"""Roles on devices of their own: the settings, what is refused, what is planned, and weights that move."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY
from tests.devices import EIGHT

import dovetail
from dovetail.cli import main
from dovetail.config import config_id, dump, load
from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.devices.population import CURRENT
from dovetail.errors import ConfigError, PlanError
from dovetail.training.loop import train
from dovetail_lab.sweep.population import Population
from dovetail_memory.cost import estimate

ROOT = Path(__file__).parents[3]
KL = (*TINY, "train.kl_coef=0.1")
AHEAD = ("train.staleness=1", "train.correction=['tis_token']")


def test_a_role_has_the_policys_devices_where_nothing_else_is_said():
    config = load(None, [*KL, "mesh.fsdp=2", "rollout/mesh.first=4", "reference/mesh.tp=2"])
    assert config.mesh_of("critic") == config.mesh == Mesh(fsdp=2)
    assert config.apart == {"rollout": Mesh(fsdp=2, first=4), "reference": Mesh(fsdp=2, tp=2)}
    assert load(None, [*KL, "reference/mesh.first=0"]).apart == {}


def test_placement_is_written_and_no_part_of_what_is_computed(tmp_path: Path):
    config = load(None, [*KL, "reference/mesh.first=3"])
    (tmp_path / "config.gin").write_text(dump(config))
    assert load(tmp_path / "config.gin") == config
    assert config_id(config) == config_id(load(None, KL))


def test_a_role_of_a_third_party_has_a_mesh_too():
    opened = ("roles.judge=frozen", "train.loss_terms=['reads_judge']")
    dovetail.register("loss_term", "reads_judge", lambda logps, judge_logps: logps - judge_logps)
    config = load(None, [*TINY, *opened, "judge/mesh.first=5"])
    assert config.apart == {"judge": Mesh(first=5)}
    assert [place.roles for place in estimate(config).placement] == [("policy", "rollout"), ("judge",)]


def test_devices_of_a_model_that_no_step_asks_are_named_as_unused():
    (unused,) = load(None, [*TINY, "critic/mesh.first=3"]).unused
    assert (
        str(unused)
        == "critic/mesh.first (--set critic/mesh.first=3) has no effect: no forward pass of a step uses its model"
    )


REFUSED = [
    (["refrence/mesh.first=2"], "no role 'refrence' has devices. Did you mean 'reference'?"),
    (["teacher/mesh.first=2"], "roles.teacher = 'frozen' would open the model role 'teacher'"),
    (["rollout/train.lr=2"], "'rollout/train.lr': a setting has no scope; write train.lr"),
    (["rollout/mesh.firs=2"], "rollout/mesh has no setting 'firs'. Did you mean 'first'?"),
    (
        [*AHEAD, "mesh.fsdp=2"],
        "train.staleness = 1 (--set train.staleness=1): sampler and trainer would both have programs that span devices"
        " 0 to 1, which may deadlock; place the sampler from device 2 on (rollout/mesh.first), which a run of one process"
        " can, take an engine that computes outside of this process, or set train.staleness = 0",
    ),
    (
        ["roles.teacher=frozen", "train.loss_terms=['gkd']", "teacher/mesh.first=2"],
        "teacher/mesh (device 2; --set teacher/mesh.first=2): policy being trained beside teacher on completions",
    ),
    (["train.rollout=vllm", "rollout/mesh.first=1"], "vllm does not compute with JAX in this process"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_no_devices_could_do_is_refused_when_the_config_is_read(overrides: list[str], message: str):
    with pytest.raises((ConfigError, PlanError), match=re.escape(message)):
        load(None, [*TINY, *overrides])


def test_one_device_in_common_cannot_close_a_circle_of_waiting():
    between = ("mesh.fsdp=2", "rollout/mesh.first=3", "critic/mesh.first=4", "train.advantage=gae")
    assert load(None, [*TINY, *AHEAD, *between]).plan
    with pytest.raises(PlanError, match="span devices 4 to 5"):
        load(None, [*TINY, *AHEAD, *between, "rollout/mesh.first=4"])


def test_a_reward_with_a_model_computes_where_the_sampler_may():
    """It is the sampler's program that asks it, so that with `train.staleness` it cannot be on the trainer's devices."""

    @dovetail.declares(placed=True)
    def verdict(completions):
        return [0.0 for _ in completions]

    dovetail.register("reward", "verdict", verdict)
    dovetail.register("reward", "counted", lambda completions: [0.0 for _ in completions])
    apart = (*TINY, *AHEAD, "mesh.fsdp=2", "rollout/mesh.first=2", "train.rewards=['verdict']")
    assert load(None, [*apart, "reward/mesh.first=4"]).apart["reward"] == Mesh(fsdp=2, first=4)
    with pytest.raises(PlanError, match=r"from device 2 on \(rollout/mesh.first, reward/mesh.first\)"):
        load(None, apart)
    with pytest.raises(PlanError, match=r"reward/mesh \(device 1; .*train.rewards = counted does not compute with"):
        load(None, [*TINY, "train.rewards=['counted']", "reward/mesh.first=1"])


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"reference/mesh.fsdp = 2 times reference/mesh.cp = 1 times reference/mesh.tp = 1 needs 2 devices from"
        r" reference/mesh.first = 999 on; there (is|are) \d+ \(cpu\)",
    ):
        Devices.open(Mesh(), {"reference": Mesh(fsdp=2, first=999)})


def test_a_population_has_one_placement(tmp_path: Path):
    token = CURRENT.set(Population(1))
    try:
        with pytest.raises(ConfigError, match=r"^rollout/mesh: the runs of a population .* sweep.vectorize = 1"):
            train(load(None, [*TINY, "rollout/mesh.first=1"]), tmp_path)
    finally:
        CURRENT.reset(token)


def test_a_model_that_reads_one_text_in_a_row_is_not_packed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dovetail_model.transformer.Transformer.packs", False)
    said = r"^train.model = 'decoder': Transformer does not take 'texts', .* set train.packing = False$"
    with pytest.raises(ConfigError, match=said):
        estimate(load(None, [*KL, "train.packing=True"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["mesh.tp=4"],
            r"mesh.tp = 4 does not divide a vocabulary of \d+ and 2 heads; values that divide .* and 2 heads: 1, 2$",
        ),
        (["reference/mesh.tp=7"], r"reference/mesh.tp = 7 does not divide a vocabulary of \d+ and 2 heads; "),
    ],
)
def test_a_mesh_that_cuts_heads_or_leaves_the_vocabulary_whole_is_refused(overrides: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        estimate(load(None, [*KL, *overrides]))


def test_the_plan_draws_who_is_where(capsys: pytest.CaptureFixture[str]):
    placed = ("mesh.fsdp=2", "rollout/mesh.first=3", "reference/mesh.first=1", "reference/mesh.fsdp=1")
    sets = [part for each in (*KL, *placed) for part in ("--set", each)]
    assert main(["plan", *sets]) == 0
    text = capsys.readouterr().out
    drawing = text[text.index("placement") :].splitlines()[:4]
    assert [line.split() for line in drawing] == [
        ["placement", "0", "1", "3", "4"],
        ["policy", "#", "#", ".", "."],
        ["reference", ".", "#", ".", "."],
        ["rollout", ".", ".", "#", "#"],
    ]
    assert "memory per device of 3 to 4 (rollout)" in text


def test_what_is_elsewhere_takes_no_memory_here():
    together = estimate(load(None, KL))
    apart = estimate(load(None, [*KL, "reference/mesh.first=1", "rollout/mesh.first=2"]))
    policy, reference, rollout = apart.placement
    assert [place.roles for place in apart.placement] == [("policy",), ("reference",), ("rollout",)]
    assert set(policy.memory) == set(together.memory) - {"reference"}
    assert set(together.moments) - set(policy.moments) == {"sampling"}
    assert reference.memory == {"reference": together.memory["reference"]}
    assert rollout.memory == {"sampler's parameters": together.memory["parameters"]}
    assert set(rollout.moments) == {"sampling", "new weights"}


def test_weights_move_between_meshes_and_share_no_memory():
    """In a process with eight devices; see `handed_over.py` beside this file."""
    command = [sys.executable, "-m", "tests.core.devices.handed_over"]
    done = subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
