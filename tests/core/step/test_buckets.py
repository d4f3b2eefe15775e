"""Micro-batches of like length: a step of a real decoder is what it is in micro-batches of whole rows."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.configs import step
from tests.configs.test_mixtures import SIZES, clashing, configured, lacking, overrides
from tests.core.step.test_update import make_adapted, moment, one_mini_batch
from tests.core.step.test_update import sampled as drawn
from tests.sampled import sampled

import dovetail
from dovetail.config import load
from dovetail.devices.mesh import AXES, KINDS
from dovetail.registry import current
from dovetail.step.algorithm import Sizes, assemble
from dovetail.step.buckets import Buckets
from dovetail.step.forward import ValueModel
from dovetail.step.update import Trained, Update
from dovetail.training.models import split

GRADIENT = ("train.optimizer=sgd", "train.lr=1.0", "train.max_grad_norm=1e9", "train.lr_schedule=constant")
SMALL = (*GRADIENT, "train.lr=0.01")
"""For several updates: after large steps the gradients of some mixtures are so steep that they magnify rounding."""
SORTED = "train.length_buckets=2"
WHOLE_GROUPS = tuple(each.name for each in current().components("loss_term") if each.declares.get("whole_groups"))
"""What allows no other micro-batches than of whole groups."""
NEEDS = {
    "is_weights": "train.correction=tis_token",
    "schedule_weight": "train.schedule=linear",
    "values": "train.advantage=gae",
}
TEACHER = ("roles.teacher=frozen", "loss_term.gkd.coef=100.0")
NAMES = [
    *(
        pytest.param("train.policy_loss", "policy_loss", name, id=f"policy_loss-{name}")
        for name in dovetail.names("policy_loss")
    ),
    *(pytest.param("train.loss_agg", "loss_agg", name, id=f"loss_agg-{name}") for name in dovetail.names("loss_agg")),
    *(
        pytest.param("critic.value_loss", "value_loss", name, id=f"value_loss-{name}")
        for name in dovetail.names("value_loss")
    ),
    *(
        pytest.param("train.loss_terms", "loss_term", name, id=f"loss_term-{name}")
        for name in dovetail.names("loss_term")
    ),
    *(
        pytest.param("train.loss_mask", "loss_mask", name, id=f"loss_mask-{name}")
        for name in dovetail.names("loss_mask")
    ),
    *(pytest.param("train.kl", "kl", name, id=f"kl-{name}") for name in dovetail.names("kl")),
]


@functools.cache
def decoders():
    """The policy and the critic as decoders with attention, in place of the words counted in `tests.configs.step`."""
    chosen = load(None, [f"model.decoder.{x}" for x in ("width=8", "layers=1", "heads=2", "kv_heads=1", "ffn=8")])
    policy, trunk = (
        chosen.choice("train.model").bind().make(step.VOCAB, rngs=nnx.Rngs(seed, params=seed)) for seed in (0, 1)
    )
    return split(policy), split(ValueModel(trunk, 8))


def close(change, whole):
    """Sums in another order differ by rounding, which is relative to the largest of what is added up."""
    np.testing.assert_allclose(change, whole, rtol=1e-5, atol=1e-6 * max(1.0, float(np.abs(whole).max())))


def alike(config_of, given, size=5, how=(SORTED,)):
    """Compare a step in sorted or packed micro-batches with the same step in one."""
    split_, whole = (*how, f"train.micro_batch_size={size}"), ("train.micro_batch_size=None",)
    (metrics, change), (expected, whole) = (step.one_step(config_of(*more), given) for more in (split_, whole))
    assert metrics.keys() == expected.keys()
    fill, whole_fill = metrics.pop("lengths/fill"), expected.pop("lengths/fill")
    # where rows keep their order, a ragged last micro-batch has empty ones
    assert fill >= whole_fill or not assemble(config_of(*split_)).sizes.by_length
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    jax.tree.map(close, change, whole)


def compare(setting, kind, name, how=(SORTED,)):
    """Compare a step with the component `name` of a kind, chosen by a setting, and with what it reads."""
    reads = dovetail.get(kind, name).reads
    beside = [line for field, line in NEEDS.items() if field in reads or (kind == "value_loss" and field == "values")]
    value = f"['{name}']" if kind in ("loss_term", "loss_mask") else name
    coefficients = ("train.kl_coef=0.1", "train.entropy_coef=0.01")

    def config_of(*more):
        return load(None, [*SIZES, *TEACHER, *GRADIENT, *coefficients, *beside, f"{setting}={value}", *more])

    alike(config_of, step.episodes(), size=4 if name in WHOLE_GROUPS else 5, how=how)


@pytest.mark.parametrize(("setting", "kind", "name"), sampled(NAMES, every=100, slow=10))
def test_values_and_gradients_are_those_of_whole_rows(setting, kind, name, monkeypatch):
    monkeypatch.setattr(step, "models", decoders)
    compare(setting, kind, name)


RUNNABLE = [seed for seed in range(100, 108) if not lacking(configured(seed)) | clashing(configured(seed))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", RUNNABLE[::3])
def test_mixtures_are_those_of_whole_rows(seed):
    """With several mini-batches and epochs, filters that leave rows out, estimators with a state, and random draws."""
    together = any(name in overrides_ for overrides_ in overrides(seed) for name in WHOLE_GROUPS)
    alike(lambda *more: load(None, [*overrides(seed), *SMALL, *more]), step.episodes(), size=4 if together else 5)


@pytest.mark.slow
def test_long_prompts_are_read_a_few_at_a_time_and_dropout_is_that_of_the_row():
    """What is dropped belongs to the row and its prompt, not to the place in a micro-batch."""
    overrides = (*GRADIENT, "train.policy_loss=reinforce", "train.adapter=lora", "adapter.lora.rank=2")
    algorithm, graphdef, weights = make_adapted(*overrides, "adapter.lora.dropout=0.5")
    batch = drawn(prompt=12, token=6)
    batch["advantages"] = jnp.where(batch["mask"], batch["scores"][:, None], 0.0)

    def trained(buckets, size):
        sizes = attrs.evolve(algorithm.sizes, length_buckets=buckets, micro_batch_size=size)
        policy = Trained(weights.trained, algorithm.optimisers["train"].init(weights.trained))
        update = jax.jit(
            Update(algorithm=attrs.evolve(algorithm, sizes=sizes), graphdefs={"policy": graphdef}).__call__
        )
        # seed 0 drops nearly a whole hidden state before a norm, whose gradient then magnifies rounding
        now = moment(seed=1)
        after, _ = update(policy, weights.frozen, {}, one_mini_batch(batch), now, algorithm.hyper)
        return jax.tree.map(lambda new, old: new - old, after.params, weights.trained)

    sizes = attrs.evolve(algorithm.sizes, length_buckets=3, micro_batch_size=3)
    assert Buckets.of(sizes, batch) == Buckets(widths=(2, 4, 6), size=1, rows_per_prompt=4, prompts=2)
    whole, by_length = trained(1, 12), trained(3, 3)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(whole)) > 1e-2
    jax.tree.map(close, by_length, whole)


@pytest.mark.parametrize(
    ("devices", "micro_batch_size", "size"), [(1, 8, 4), (8, 8, 8), (4, 24, 12), (8, 24, 16), (8, 32, 16), (8, 12, 6)]
)
def test_the_rows_of_a_micro_batch_are_as_many_on_each_device(devices, micro_batch_size, size):
    """Rows of one width are equal work, and those that some device lacks would be computed as padding."""
    sizes = Sizes(
        epochs=1, group_size=8, mini_batch_size=64, micro_batch_size=micro_batch_size, length_buckets=4, segments=1
    )
    batch = {"tokens": jnp.zeros((64, 16), jnp.int32), "prompt_tokens": jnp.zeros((64, 4), jnp.int32)}
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((devices, 1, 1), AXES, KINDS)):
        buckets = Buckets.of(sizes, batch)
    assert buckets.size == size
    rows = {buckets._rows_of(width) for width in buckets.widths}
    assert micro_batch_size % devices or not any(number % devices for number in rows)


def test_narrow_micro_batches_have_more_rows():
    lengths = np.array([8, 1, 2, 2, 0, 3, 4, 2, 1, 1, 5, 2], np.int32)
    batch = {"mask": jnp.asarray(np.arange(8) < lengths[:, None]), "tokens": jnp.tile(lengths[:, None], 8)}
    buckets, shapes = Buckets(widths=(2, 4, 8), size=2, rows_per_prompt=4, prompts=3), list[tuple[int, ...]]()

    def see(carry, completions, micro):
        seen, number = carry
        shapes.append(micro["mask"].shape)
        longest = jnp.max(micro["tokens"])
        return (seen.at[completions].set(jnp.stack([number, longest], -1), mode="drop"), number + 1)

    seen, number = buckets.visit(batch, (jnp.full((12, 2), -1), jnp.int32(0)), see)
    assert set(shapes) == {(2, 8), (4, 4), (8, 2)}
    assert number == 3
    # the longest two, the four after them, and the rest, which the empty row fills
    assert seen[:, 0].tolist() == [0, 2, 1, 1, 2, 1, 1, 2, 2, 2, 0, 2]
    assert seen[:, 1].tolist() == [8, 2, 4, 4, 2, 4, 4, 2, 2, 2, 8, 2]
    assert [attrs.evolve(buckets, size=size)._rows_of(2) for size in (1, 2, 3, 8, 16)] == [4, 8, 6, 8, 16]
