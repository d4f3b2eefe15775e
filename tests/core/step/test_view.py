"""The current values of fields: derived fields follow the fields that they read, and results are checked in one place."""

import re
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.errors import PluginError
from dovetail.registry import Component, Origin
from dovetail.step.parts import Part
from dovetail.step.view import View, check_shape, run_stage
from dovetail.training.metrics import means

ORIGIN = Origin("acme", "1", "acme")
MASK = jnp.array([[True, True, True], [True, True, False]])


def part(function, kind="field", writes=(), **floats):
    component = Component(kind=kind, name=function.__name__, target=function, origin=ORIGIN)
    label = kind if writes else function.__name__
    return Part(role=function.__name__, label=label, component=component, statics={}, floats=floats, writes=writes)


def view(*derived, **fields):
    return View({"mask": MASK} | fields, {each.component.name: each for each in derived}, {})


def tokens_left(mask):
    """A field that reads the mask."""
    CALLS.append("tokens_left")
    return jnp.sum(mask, axis=-1, dtype=jnp.float32), {"most": jnp.max(jnp.sum(mask, axis=-1, dtype=jnp.float32))}


def bonus(scores, tokens_left):
    """A field that reads another one."""
    CALLS.append("bonus")
    return scores + tokens_left


def certainty(entropy):
    """A field that reads a quantity by its bare name."""
    return -entropy


CALLS: list[str] = []


@pytest.fixture(autouse=True)
def forget_calls():
    CALLS.clear()


def test_a_derived_field_follows_what_it_reads():
    before = view(part(tokens_left), part(bonus), scores=jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(before["bonus"], [4, 4])
    narrower = before.take({"mask": MASK.at[0, 1:].set(False)})
    np.testing.assert_array_equal(narrower["tokens_left"], [1, 2])
    np.testing.assert_array_equal(narrower["bonus"], [2, 4])
    scored = narrower.take({"scores": jnp.array([5.0, 5.0])})
    np.testing.assert_array_equal(scored["bonus"], [6, 7])
    np.testing.assert_array_equal(before["bonus"], [4, 4])


def test_it_is_computed_once_while_nothing_that_it_reads_changes():
    now = view(part(tokens_left), part(bonus), scores=jnp.array([1.0, 2.0]))
    _ = now["bonus"], now["tokens_left"]
    later = now.take({"advantages": jnp.zeros((2, 3))})
    _ = later["bonus"], later["tokens_left"]
    _ = later.take({"scores": jnp.zeros(2)})["bonus"]
    assert CALLS == ["tokens_left", "bonus", "bonus"]


def test_at_collection_a_bare_name_is_the_policy_that_sampled():
    fields = {"mask": MASK, "old_entropy": jnp.ones((2, 3))}
    now = View(fields, {"certainty": part(certainty)}, {}, at_collection=True)
    np.testing.assert_array_equal(now["certainty"], -np.ones((2, 3)))
    np.testing.assert_array_equal(now.take({"old_entropy": jnp.zeros((2, 3))})["certainty"], np.zeros((2, 3)))


def test_metrics_of_derived_fields_are_those_of_their_last_value():
    now = view(part(tokens_left))
    _ = now["tokens_left"]
    later = now.take({"mask": MASK.at[0, 1:].set(False)})
    _ = later["tokens_left"]
    assert means(later.metrics()) == {"field/tokens_left/most": 2}


def test_hyperparameters_reach_a_derived_field():
    def scaled(scores, *, factor: float = 1.0):
        return factor * scores

    made = View({"mask": MASK, "scores": jnp.ones(2)}, {"scaled": part(scaled)}, {"scaled": {"factor": jnp.float32(3)}})
    np.testing.assert_array_equal(made["scaled"], [3, 3])


# --- a stage


def halve(mask):
    """A correction that changes weights and keeps all tokens."""
    return jnp.where(mask, 0.5, 0.0), mask, {"seen": mask}


def first_only(mask):
    """A correction that keeps first tokens; a mask is a weight too."""
    return mask, mask & (jnp.arange(3) == 0)[None], {"seen": mask}


def double(token_rewards):
    """A reward shaping."""
    return 2 * token_rewards


def add_one(token_rewards):
    """Another."""
    return token_rewards + 1


CORRECTION = ("is_weights", "mask")


@pytest.mark.parametrize("order", [(halve, first_only), (first_only, halve)])
def test_corrections_see_the_batch_as_sampled_and_their_results_meet(order):
    parts = tuple(part(function, "correction", CORRECTION) for function in order)
    after, metrics = run_stage(parts, view(), {})
    np.testing.assert_array_equal(after["is_weights"], np.where(MASK, 0.5, 0))
    np.testing.assert_array_equal(after["mask"], np.asarray(MASK) & (np.arange(3) == 0))
    assert means(metrics) == {"correction/seen": 1}, "each sees what was sampled, not what another one left"
    assert after["is_weights"].dtype == jnp.float32


def test_reward_shapings_form_a_chain():
    parts = tuple(part(function, "reward_shaping", ("token_rewards",)) for function in (add_one, double))
    after, _ = run_stage(parts, view(token_rewards=jnp.ones((2, 3))), {})
    np.testing.assert_array_equal(after["token_rewards"], np.full((2, 3), 4))


def test_a_component_may_leave_out_the_last_of_what_its_kind_writes_but_not_add_to_it():
    def advantages(scores):
        return scores

    def three(scores):
        return scores, scores, scores

    after, _ = run_stage((part(advantages, "advantage", ("advantages", "returns")),), view(scores=jnp.ones((2, 3))), {})
    assert "advantages" in after
    assert "returns" not in after
    with pytest.raises(
        PluginError, match="advantage.three of acme 1 .* returned 3 values, .* writes advantages, returns"
    ):
        run_stage((part(three, "advantage", ("advantages", "returns")),), view(scores=jnp.ones((2, 3))), {})


def test_a_component_that_raises_is_named_with_its_own_line():
    def wrong(scores):
        return jnp.dot(scores, jnp.ones(7))

    with pytest.raises(PluginError) as caught:
        run_stage((part(wrong, "advantage", ("advantages",)),), view(scores=jnp.ones((2, 3))), {})
    line = wrong.__code__.co_firstlineno + 1
    assert re.fullmatch(
        rf"advantage.wrong of acme 1 \(.*\) raised TypeError: dot_general .* \[{__file__}:{line}\]", str(caught.value)
    )


# --- keys


def draws(key):
    return jax.random.uniform(key)


def draws_too(key):
    return jax.random.uniform(key)


def test_readers_of_one_key_draw_different_numbers_and_each_the_same_again():
    fields = {"key": jax.random.key(0)}
    first, second = (float(part(function)(fields, {})[0]) for function in (draws, draws_too))
    assert first != second
    assert float(part(draws)(fields, {})[0]) == first


def quits(mask):
    """A field that ends the process, or tries to."""
    raise SystemExit(0)


def pair(mask):
    """A field that returns two values for one field."""
    return mask, mask


def test_a_component_that_calls_exit_is_an_error_and_not_an_end():
    with pytest.raises(PluginError, match="quits of acme 1.* raised SystemExit"):
        view(part(quits))["quits"]


def test_a_tuple_is_not_one_field():
    with pytest.raises(PluginError, match="pair of acme 1.* gives .* as a tuple of 2; return one array"):
        check_shape(part(pair), "the loss", (jnp.ones(2), 3), (2, 3))


def test_a_view_is_a_mapping_of_the_fields_that_are_there():
    seen = view(part(tokens_left), scores=jnp.array([1.0, 2.0]))
    assert isinstance(seen, Mapping)
    assert dict(seen.items()).keys() == {"mask", "scores"} == set(seen)
    assert (len(seen), "scores" in seen, "tokens_left" in seen, CALLS) == (2, True, False, [])
    np.testing.assert_array_equal(seen["tokens_left"], [3, 2])
    with pytest.raises(KeyError, match="'score' is not a field here. Did you mean 'scores'"):
        seen["score"]
