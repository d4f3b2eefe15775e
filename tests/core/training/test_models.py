"""The initial weights of a critic."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights
from dovetail.step.forward import values
from dovetail.training.models import Models

FIXTURES = Path(__file__).parents[2] / "fixtures" / "models"
SMALL = ["model.decoder.width=16", "model.decoder.layers=1", "model.decoder.heads=2", "model.decoder.kv_heads=1"]


def begin(*overrides, change=0.5):
    """Return the policy's weights, each changed a little, as by a warm start, and the critic made beside them."""
    config = load(None, ["train.advantage=gae", *SMALL, *overrides])
    models = Models(config=config, devices=Devices.open(config.mesh), vocab_size=32)
    policy = Weights(*jax.tree.map(lambda x: x + change, models.policy()[1]))
    return policy, *models.critic(policy)


def embedding(weights):
    return next(leaf for path, leaf in nnx.to_flat_state(weights.trained) if path[-1] == "embedding").get_value()


def test_the_policy_s_model_begins_as_the_policy_in_arrays_of_its_own():
    policy, _, critic = begin()
    np.testing.assert_array_equal(embedding(critic), embedding(policy))
    assert embedding(critic) is not embedding(policy)


def test_another_model_keeps_its_own_weights_also_where_they_would_fit():
    policy, _, critic = begin("critic/model.decoder.init_std=0.5")
    assert embedding(critic).shape == embedding(policy).shape
    assert not np.any(np.asarray(embedding(critic)) == np.asarray(embedding(policy)))
    policy, _, critic = begin("critic.init_from_policy=False")
    assert not np.any(np.asarray(embedding(critic)) == np.asarray(embedding(policy)))


def test_a_critic_over_a_base_that_is_stored_in_other_bits_keeps_its_own():
    policy, _, critic = begin("train.adapter=lora", "adapter.lora.quantise_base=int8", change=0)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(critic.trained)} == {"float32"}
    assert "int8" in {leaf.dtype.name for leaf in jax.tree.leaves(policy.frozen)}
    same = ["train.adapter=lora", "critic.adapter=lora", "adapter.lora.quantise_base=int8"]
    policy, _, critic = begin(*same, "critic/adapter.lora.quantise_base=int8", change=0)
    found, expected = ([x for x in jax.tree.leaves(each.frozen) if x.dtype == "int8"] for each in (critic, policy))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_reward_model_s_folder_gives_the_value_head_too():
    """The value of the state after the last prompt token is the score that transformers gives the prompt."""
    folder = FIXTURES / "qwen3_reward"
    _, graphdef, critic = begin("critic.model=pretrained", f"critic/model.pretrained.path={folder}")
    with np.load(folder / "reference.npz") as reference:
        tokens, mask = jnp.asarray(reference["leftpad/input_ids"]), jnp.asarray(reference["leftpad/attention_mask"])
        batch = {
            "prompt_tokens": tokens.astype(jnp.int32),
            "prompt_mask": mask.astype(bool),
            "tokens": jnp.zeros((len(tokens), 1), jnp.int32),
        }
        found = jax.jit(lambda weights: values(graphdef, weights, batch))(critic)
        np.testing.assert_allclose(found[:, 0], reference["leftpad/scores"], atol=1e-5)
