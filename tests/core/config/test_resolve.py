import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gin
import pytest

from dovetail.config import Config, config_id, dump, load, versions
from dovetail.errors import PlanError
from dovetail.registry import Origin, Registry
from dovetail_kit.rendered import render_show

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]
ACME = Origin("acme-rl", "2.0", "tests")


def test_all_that_is_wrong_is_reported_at_once_by_line(complaints: Complaints):
    text = """import os
train.stpes = 3
policy_loss.gspo.epsilon_lo = 1
train.lr = %rate
train.policy_loss = gpso
unused = 3
"""
    lines = complaints(text, "train.group_size=x")
    assert [line.split(" ")[0] for line in lines] == [f"x.gin:{n}:" for n in range(1, 7)] + ["--set"]


def test_after_a_syntax_error_nothing_is_said_about_what_may_be_lost(complaints: Complaints):
    (line,) = complaints("rate = 1 2\ntrain.lr = %rate\n")
    assert line.startswith("x.gin:1: syntax error")


def test_what_dovetail_has_written_means_its_own_whatever_is_installed(
    load_text: LoadText, complaints: Complaints, registry: Registry
):
    """This holds for resolved files and for defaults; only a bare name written by the user is ambiguous."""
    before = load_text("train.policy_loss = gspo\n")
    for kind, name in (("policy_loss", "gspo"), ("policy_loss", "grpo"), ("value_loss", "ppo")):
        registry.add(kind, name, lambda logps, mask: logps, origin=ACME)
    after = load_text(dump(before))
    assert after == before
    assert config_id(after) == config_id(before)
    assert load_text("train.steps = 3\n").train.steps == 3
    (line,) = complaints("train.policy_loss = gspo\n")
    assert line.startswith("x.gin:1: policy_loss 'gspo' is registered by dovetail 0.1.0 (tests) and acme-rl 2.0")
    assert load_text("train.policy_loss = acme-rl/gspo\n").setting("train.policy_loss") == "acme-rl/gspo"


def test_reading_configs_imports_nothing_heavy():
    code = "import sys, dovetail.config; print([m for m in ('jax', 'numpy', 'tensorflow', 'typeguard') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gin_keeps_no_state(load_text: LoadText):
    load_text("train.steps = 3\nkl.k3.clamp = 3\n")
    assert load_text("").train.steps != 3
    assert not gin.config_str().strip()


# --- model roles


TEACHER = "roles.teacher = frozen\nteacher.model = decoder\n"


def test_a_role_opens_a_section_and_a_scope(load_text: LoadText):
    config = load_text(f"{TEACHER}roles.shadow = ema\nfollower.ema.decay = 0.5\nshadow/follower.ema.decay = 0.9\n")
    assert config.schema.roles == ("reference", "teacher", "shadow")
    assert config.setting("roles.teacher") == "frozen"
    assert config.setting("teacher.model") == "decoder"
    assert config.setting("teacher.adapter") is None
    assert config.setting("shadow.model") is None
    assert config.choice("roles.shadow").params == {"decay": 0.9}
    assert {"teacher", "shadow"} <= set(config.schema.scopes)
    assert load_text(dump(config)) == config


def test_two_configs_that_open_the_same_roles_are_equal(load_text: LoadText):
    assert load_text(TEACHER) == load_text("", *TEACHER.replace(" = ", "=").splitlines())
    assert load_text(TEACHER) != load_text("roles.teacher = frozen\n")
    assert config_id(load_text(TEACHER)) != config_id(load_text("roles.teacher = frozen\n"))


def test_the_reference_is_a_role_that_is_always_there(load_text: LoadText):
    assert load_text("").setting("roles.reference") == "frozen"
    config = load_text("roles.reference = ema\nreference/follower.ema.decay = 0.5\nreference.model = decoder\n")
    assert config.schema.roles == ("reference",)
    assert config.choice("roles.reference").params == {"decay": 0.5}
    assert config.choice("reference.model").scope == "reference"


def test_a_role_makes_fields(registry: Registry, load_text: LoadText):
    def distil(logps: Any, teacher_logps: Any, mask: Any) -> Any:
        return logps, teacher_logps, mask

    registry.add("policy_loss", "distil", distil, origin=ACME)
    plan = load_text(f"{TEACHER}train.policy_loss = distil\n").plan
    assert plan is not None
    assert plan.roles == ("teacher",)
    with pytest.raises(PlanError, match=r"reads the field 'teacher_logps', .* roles.teacher = 'frozen' would open"):
        load_text("train.policy_loss = distil\n")


@pytest.mark.parametrize(
    "name", ["train", "critic", "run", "policy_loss", "model", "policy", "old", "ref", "demo", "roles"]
)
def test_a_name_that_means_something_else_is_no_role(complaints: Complaints, name: str):
    assert complaints(f"roles.{name} = frozen\n") == [
        f"x.gin:1: '{name}' cannot be the name of a model role: it has a meaning already; take another name"
    ]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("roles.my-teacher=frozen", "'my-teacher' is not a name for a model role; use letters, digits and '_'"),
        ("critic/roles.teacher=frozen", "'critic/roles.teacher': a setting has no scope; write roles.teacher"),
        ("roles.teacher=frosen", "unknown follower 'frosen'. Did you mean 'frozen'?"),
        ("roles.teacher=None", "roles.teacher: expected str, got None."),
        ("teacher.model=decoder", "unknown section 'teacher'. roles.teacher = 'frozen' would open the model role"),
        ("teacher/model.decoder.x=1", "unknown scope 'teacher'."),
    ],
)
def test_what_is_wrong_with_a_role_is_said_in_one_line(complaints: Complaints, override: str, said: str):
    (line,) = complaints("", override)
    assert line.startswith(f"--set {override}: {said}")


# --- the plan is part of the configuration


def probing(logps: Any, probe: Any, mask: Any) -> Any:
    return logps, probe, mask


PROBING = "train.policy_loss = probing\n"


def test_a_field_that_the_plan_adds_is_chosen_dumped_shown_and_hashed(registry: Registry, load_text: LoadText):
    registry.add("policy_loss", "probing", probing, origin=ACME)
    config = load_text(f"{PROBING}field.probe.chunk = 3\n")
    assert config.choice("field.probe").params == {"chunk": 3}
    assert config.choice("field.probe").origins == {"chunk": "x.gin:2"}
    assert "field.probe.chunk = 3" in dump(config).splitlines()
    assert "field.probe.chunk = 64" in dump(load_text(PROBING)).splitlines()
    assert "field.probe.chunk = 3" in render_show(config)
    assert config_id(config) != config_id(load_text(PROBING))
    assert load_text(dump(config)) == config


def test_the_owner_of_a_field_that_the_plan_adds_is_part_of_the_id(registry: Registry, load_text: LoadText):
    def doubt(logps: Any, *, tilt: float = 1.0) -> Any:
        return logps, tilt

    def doubting(logps: Any, doubt: Any) -> Any:
        return logps, doubt

    registry.add("field", "doubt", doubt, origin=ACME)
    registry.add("policy_loss", "doubting", doubting, origin=Origin("beta-rl", "1.0", "beta"))
    config = load_text("train.policy_loss = doubting\n")
    assert versions(config).items() >= {"acme-rl": "2.0", "beta-rl": "1.0"}.items()
    assert "acme-rl" not in versions(load_text("train.policy_loss = gspo\n"))


def test_a_field_that_nothing_reads_changes_no_id(load_text: LoadText):
    assert config_id(load_text("field.probe.chunk = 3\n")) == config_id(load_text(""))


def test_what_cannot_be_planned_is_refused_when_it_is_read(registry: Registry, write: Callable[..., Any]):
    def stray(logps: Any, prboe: Any) -> Any:
        return logps, prboe

    registry.add("policy_loss", "stray", stray, origin=ACME)
    path = write("train.policy_loss = stray\n")
    with pytest.raises(PlanError, match=r"reads the field 'prboe', which nobody provides.* Did you mean 'probe'"):
        load(path, registry=registry)
    assert load(path, registry=registry, plan=False).plan is None


def test_names_of_fields_are_looked_up_where_the_config_looks(registry: Registry, load_text: LoadText):
    """`probe` is only in the given registry."""
    registry.add("policy_loss", "probing", probing, origin=ACME)
    plan = load_text(PROBING).plan
    assert plan is not None
    assert "probe" in plan.field_components
