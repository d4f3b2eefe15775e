"""The contract is read from the signature; a broken one is refused with the distribution, the file and a remedy."""

import errno
import functools
import pickle
from typing import Annotated, Literal

import attrs
import pytest
from annotated_types import Ge, Gt, MultipleOf

import dovetail
from dovetail.errors import PluginError
from dovetail.kinds import Kind
from dovetail.registry import REQUIRED, Component, Origin, Registry, read_interface

ORIGIN = Origin("acme-rl", "1.2", "acme.losses")


def loss(
    logps,
    mask,
    *,
    epsilon: float = 0.2,
    clip: float | None = None,
    mode: Literal["a", "b"] = "a",
    size: Annotated[float, dovetail.STATIC] = 2.0,
    needed: int,
):
    """A loss."""
    return logps * epsilon


@attrs.frozen(kw_only=True)
class Reward:
    """A reward with state."""

    scale: float = 1.0
    names: tuple[str, ...] = attrs.field(factory=tuple)

    def __call__(self, completions, answer):
        return [self.scale] * len(completions)


def component(target) -> Component:
    return Component(kind="policy_loss", name="x", target=target, origin=ORIGIN)


def test_positional_parameters_are_fields_and_keyword_only_ones_hyperparameters():
    found = component(loss)
    assert found.reads == ("logps", "mask")
    assert dict(found.params) == {"epsilon": 0.2, "clip": None, "mode": "a", "size": 2.0, "needed": REQUIRED}


def test_floats_are_traced_unless_marked():
    assert component(loss).static == {"mode", "size", "needed"}


def test_a_range_leaves_a_float_traced():
    def ranged(
        logps,
        *,
        low: Annotated[float, Ge(0)] = 0.0,
        high: Annotated[float, Gt(1)] | None = None,
        size: Annotated[float, dovetail.STATIC, Gt(0)] = 1.0,
        count: Annotated[int, Ge(1)] = 1,
    ):
        return logps

    assert component(ranged).static == {"size", "count"}


def test_a_class_has_its_fields_as_hyperparameters_and_reads_what_its_call_takes():
    found = component(Reward)
    assert found.reads == ("completions", "answer")
    assert dict(found.params) == {"scale": 1.0, "names": ()}
    assert found.bind(scale=3.0)(["x"], ["y"]) == [3.0]


def test_a_call_may_be_inherited():
    @attrs.frozen(kw_only=True)
    class Halved(Reward):
        """The same reward, halved."""

        scale: float = 0.5

    found = component(Halved)
    assert found.reads == ("completions", "answer")
    assert dict(found.params) == {"names": (), "scale": 0.5}


def test_a_class_without_a_call_reads_nothing():
    @attrs.frozen(kw_only=True)
    class Settings:
        """Values alone."""

    assert component(Settings).reads == ()


def test_bound_functions_pickle():
    bound = pickle.loads(pickle.dumps(component("math:isclose").bind(rel_tol=0.5)))
    assert bound(1.0, 1.4)


def test_public_access():
    gspo = dovetail.get("policy_loss", "gspo")
    assert gspo.reads == ("logps", "old_logps", "advantages", "mask")
    assert dict(gspo.params) == {"epsilon_low": 3e-4, "epsilon_high": 4e-4}
    assert gspo.origin.distribution == "dovetail"
    assert gspo.origin.module == "dovetail_loss.policy_loss.gspo"
    assert "gspo" in dovetail.names("policy_loss")


def test_origin_and_label_name_the_owner():
    assert str(component(loss).origin) == "acme-rl 1.2 (acme.losses)"
    assert component(loss).qualified_name == "acme-rl/x"


def _star(logps, *rest):
    return rest


def _double_star(logps, **rest):
    return rest


def _default(logps, mask=None):
    return mask


def _multiple(logps, *, width: Annotated[int, MultipleOf(8)] = 8):
    return width


def _long(logps, *, names: list[Annotated[str, Ge(2)]] = ()):
    return names


class _Plain:
    pass


@attrs.frozen
class _Positional:
    scale: float = 1.0


@attrs.define(kw_only=True)
class _Mutable:
    scale: float = 1.0


@attrs.frozen(kw_only=True)
class _TakesSelf:
    scale: float = 1.0
    twice: float = attrs.field(default=attrs.Factory(lambda self: 2 * self.scale, takes_self=True))


@attrs.frozen(kw_only=True)
class _Keyword:
    def __call__(self, completions, *, scale=1.0):
        return [scale] * len(completions)


class _InheritsKeyword(_Keyword):
    pass


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (_star, r"has '\*rest'; name every field and hyperparameter"),
        (_double_star, r"has '\*\*rest'"),
        (_default, r"gives the positional parameter 'mask' a default; .* put '\*' before hyperparameters"),
        (
            _multiple,
            r"has a constraint on 'width' that cannot be checked: MultipleOf.*; a range is made of Ge, Gt, Le, Lt and Interval",
        ),
        (
            _long,
            r"has a constraint on 'names' that cannot be checked: Ge\(ge=2\) on <class 'str'>, which is not a number",
        ),
        (_Plain, "is a class without attrs"),
        (_Positional, r"has positional fields \['scale'\]; write @attrs.frozen\(kw_only=True\)"),
        (_Mutable, r"is an attrs class that is not frozen; write @attrs.frozen\(kw_only=True\)"),
        (_TakesSelf, "computes the default of 'twice' from other fields; a config could not spell it out"),
        (_Keyword, r"has keyword-only parameters \['scale'\] in __call__; make them attrs fields"),
        (_InheritsKeyword, r"has keyword-only parameters \['scale'\] in __call__"),
    ],
)
def test_a_broken_signature_is_refused_at_registration(target, message):
    registry = Registry()
    registry.add_kind(Kind(name="policy_loss", summary=""), ORIGIN)
    with pytest.raises(PluginError, match=message) as caught:
        registry.add("policy_loss", "x", target, origin=ORIGIN)
    assert "acme-rl" in str(caught.value)


def test_the_message_gives_file_and_line():
    with pytest.raises(PluginError, match=r"test_component.py:\d+\]"):
        read_interface(_star, "policy_loss 'x' of acme-rl")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("acme_absent.losses:x", "cannot be imported from 'acme_absent.losses:x': ModuleNotFoundError"),
        ("math:absent", "cannot be imported from 'math:absent': AttributeError"),
        ("math:sqtr", "has no attribute 'sqtr'. Did you mean 'sqrt'?"),
        ("math:pi", "'math:pi' is neither a function nor a class"),
    ],
)
def test_a_target_that_cannot_be_had_is_named_on_first_use(target, message):
    with pytest.raises(PluginError, match=message) as caught:
        component(target).load()
    assert "acme-rl" in str(caught.value)


@pytest.mark.parametrize("claims", [None, ["unbiased_value"], "noisy"])
def test_claims_that_are_no_mapping_are_refused(claims):
    def shout(x):
        """Claim it in another way."""

    shout.declares = claims
    with pytest.raises(
        PluginError, match=r"`declares` is .*; write @dovetail\.declares.* \[.*test_component\.py:\d+\]"
    ):
        component(shout).load()


def test_a_module_that_exits_is_named(tmp_path, monkeypatch):
    file = tmp_path / "acme_exits.py"
    file.write_text("import sys\n\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError) as caught:
        component("acme_exits:loss").load()
    assert str(caught.value).endswith(f"cannot be imported from 'acme_exits:loss': SystemExit: 3 [{file}:3]")


def test_what_is_raised_before_a_method_is_reached_has_the_line_of_the_method(tmp_path, monkeypatch):
    file = tmp_path / "acme_thing.py"
    file.write_text(
        'import attrs\n\n\n@attrs.frozen(kw_only=True)\nclass Thing:\n    """Has a method."""\n\n    def grow(self, by): ...\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    thing = component("acme_thing:Thing")
    with pytest.raises(PluginError) as caught, thing.named("grow"):
        thing.load()().grow()
    assert str(caught.value).endswith(f"missing 1 required positional argument: 'by' [{file}:8]")


def test_a_full_disk_is_nobody_s_mistake():
    full = OSError(errno.ENOSPC, "No space left on device", "metrics.txt")
    with pytest.raises(OSError, match="No space left") as caught, component("math:sqrt").named():
        raise full
    assert caught.value is full


def test_claims_of_two_decorators_add_up():
    @dovetail.declares(on_policy_gradient=True)
    @dovetail.declares(pessimistic=True, settings={"epsilon": 0.5})
    def clipped(logps, advantages, mask): ...

    assert clipped.declares == {"on_policy_gradient": True, "pessimistic": True, "settings": {"epsilon": 0.5}}
    with pytest.raises(TypeError, match=r"'pessimistic' is declared twice for .*clipped; leave one of them out"):
        dovetail.declares(pessimistic=False)(clipped)


def test_a_function_or_class_that_stands_on_another_may_claim_otherwise():
    @dovetail.declares(unbiased_value=True, non_negative=False)
    def first(logps, ref_logps): ...

    @dovetail.declares(unbiased_value=False)
    @functools.wraps(first)
    def second(logps, ref_logps): ...

    @dovetail.declares(noisy=True)
    class Base: ...

    @dovetail.declares(scheduled=True)
    class Heir(Base): ...

    assert first.declares == {"unbiased_value": True, "non_negative": False}
    assert second.declares == {"unbiased_value": False, "non_negative": False}
    assert Base.declares == {"noisy": True}
    assert Heir.declares == {"scheduled": True}
