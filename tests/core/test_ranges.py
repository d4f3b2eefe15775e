"""Ranges are checked when an object is constructed, and never on traced values."""

from typing import Annotated

import attrs
import jax
import numpy as np
import pytest
from annotated_types import Ge, Gt, Interval

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.ranges import Bound, bounds, in_range, phrase


@attrs.frozen(kw_only=True)
class Ranged:
    share: Annotated[float, Interval(ge=0, lt=1)] = attrs.field(default=0.5, validator=in_range)
    limit: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.0}, r"Ranged.share: expected 0 <= float < 1, got 1.0."),
        ({"share": float("nan")}, r"Ranged.share: expected 0 <= float < 1, got nan."),
        ({"limit": 0}, r"Ranged.limit: expected int >= 1, got 0."),
    ],
)
def test_a_class_is_refused(values, message):
    with pytest.raises(ConfigError) as caught:
        Ranged(**values)
    assert str(caught.value) == message


def test_what_is_in_range_none_and_traced_numbers_pass():
    assert Ranged(share=0, limit=1) == Ranged(share=0.0, limit=1)
    assert Ranged().limit is None
    assert jax.jit(lambda x: Ranged(share=x).share * 2)(np.float32(3.0)) == 6.0


def test_bounds_are_read_through_groups_and_unions():
    assert bounds(Annotated[float, "unit", Interval(gt=0, le=2)]) == (Bound(">", 0), Bound("<=", 2))
    assert bounds(Annotated[float, Gt(0)] | None) == (Bound(">", 0),)
    assert bounds(float | None) == ()
    assert bounds(Annotated[float, ["a mark without a hash"], Ge(0)]) == (Bound(">=", 0),)


def test_a_range_reads_as_mathematics():
    assert phrase("int", ()) == "int"
    assert phrase("float", bounds(Annotated[float, Gt(0.25)])) == "float > 0.25"


@pytest.mark.parametrize(
    ("chosen", "binding", "said"),
    [
        ("train.policy_loss = 'grpo'", "policy_loss.grpo.clip_c = 0.5", "expected float > 1 | None, got 0.5."),
        ("train.advantage = 'gae'", "advantage.gae.lam = 1.1", "expected 0 <= float <= 1, got 1.1."),
        ("train.optimizer = 'adamw'", "optimizer.adamw.b2 = 1.0", "expected 0 <= float < 1, got 1.0."),
        ("train.kl_controller = 'adaptive'", "kl_controller.adaptive.target = 0", "expected float > 0, got 0."),
        ("train.task = 'arithmetic'", "task.arithmetic.noise = -1", "expected 0 <= float <= 1, got -1."),
    ],
)
def test_built_in_components_state_theirs(tmp_path, chosen, binding, said):
    path = tmp_path / "x.gin"
    path.write_text(f"{chosen}\n{binding}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    key = binding.partition(" ")[0]
    assert str(caught.value) == f"{path}:2: {key}: {said}"


def test_describe_shows_them(capsys):
    from dovetail.cli import main

    assert main(["describe", "advantage", "gae"]) == 0
    assert "lam = 0.95  (0 <= float <= 1)" in capsys.readouterr().out


def test_every_default_lies_in_its_own_range():
    from dovetail.config.types import fit
    from dovetail.registry import REQUIRED, current

    for component in current().components():
        for name, value in component.params.items():
            assert value is REQUIRED or fit(value, component.hints[name]) == value, f"{component.label}.{name}"


def test_the_public_mark_and_a_range_go_together():
    assert bounds(Annotated[float, dovetail.STATIC, Ge(0)]) == (Bound(">=", 0),)
