"""An update of a tiny model with the shipped components, which gives the same result however it is split."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import dovetail
from dovetail.config import load
from dovetail.devices.compiled import share
from dovetail.protocols import Weights
from dovetail.step.algorithm import assemble
from dovetail.step.collect import Collector, on_last_token
from dovetail.step.forward import Model, ValueModel, hidden_states, quantities, values
from dovetail.step.moment import Moment
from dovetail.step.parts import Part, masked_sum
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training.metrics import means
from dovetail.training.models import split

VOCAB = 23
MODEL = ["model.decoder.width=16", "model.decoder.layers=1", "model.decoder.heads=2", "model.decoder.kv_heads=1"]


def make(*overrides):
    config = load(None, ["train.prompts=3", "train.group_size=4", *MODEL, *overrides])
    choice = config.choice("train.model")
    model = choice.bind().make(VOCAB, rngs=nnx.Rngs(0))
    return assemble(config), *split(model)


def make_adapted(*overrides):
    """Return the same with an adapter whose change is not zero."""
    config = load(None, ["train.prompts=3", "train.group_size=4", *MODEL, *overrides])
    model = config.choice("train.model").bind().make(VOCAB, rngs=nnx.Rngs(0))
    graphdef, weights = split(config.choice("train.adapter").bind().apply(model, rngs=nnx.Rngs(1)))
    return assemble(config), graphdef, weights._replace(trained=jax.tree.map(lambda x: x + 0.1, weights.trained))


def sampled(rows=12, prompt=3, token=5, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, token + 1, rows)
    mask = np.arange(token) < lengths[:, None]
    mask[1, 0] = lengths[1] == 1  # a hole, where the environment wrote
    batch = {
        "prompt_tokens": np.repeat(rng.integers(0, VOCAB, (rows // 4, prompt)).astype(np.int32), 4, axis=0),
        "prompt_mask": np.repeat(np.arange(prompt) >= rng.integers(0, prompt, rows // 4)[:, None], 4, axis=0),
        "tokens": rng.integers(0, VOCAB, (rows, token)).astype(np.int32),
        "mask": mask,
        "group_ids": np.repeat(np.arange(3, dtype=np.int32), 4),
        "rollout_logps": -rng.random((rows, token)).astype(np.float32),
        "lengths": mask.sum(1).astype(np.int32),
        "truncated": np.zeros(rows, bool),
        "scores": rng.normal(size=rows).astype(np.float32),
        "score_table": rng.normal(size=(rows, 1)).astype(np.float32),
    }
    return jax.tree.map(jnp.asarray, batch)


def moment(seed=0, step=0, entropy_coef=0.01, update=0):
    return Moment(
        step=jnp.int32(step),
        total=jnp.int32(10),
        key=jax.random.key(seed),
        coefficients={"train.kl_coef": jnp.float32(0.1), "train.entropy_coef": jnp.float32(entropy_coef)},
        update=jnp.int32(update),
    )


def fields(*names):
    """Return components of kind `field` as parts, with their defaults."""
    found = {name: dovetail.get("field", name) for name in names}
    return {
        name: Part(role=f"field.{name}", label=name, component=component, statics={}, floats=dict(component.params))
        for name, component in found.items()
    }


def in_micro_batches(algorithm, size):
    return attrs.evolve(algorithm, sizes=attrs.evolve(algorithm.sizes, micro_batch_size=size))


def others(algorithm, weights, *roles):
    """Return the models of the other roles, each slightly different from the policy."""
    numbered = {role: number for number, role in enumerate(algorithm.follow, 1)}
    return {role: jax.tree.map(lambda x, n=numbered[role]: x * (1 + 0.01 * n), weights) for role in roles}


def reference(algorithm, weights):
    return others(algorithm, weights, "reference")["reference"]


def collect(algorithm, graphdef, weights, batch, critic=None, now=None):
    collector = Collector(
        algorithm=algorithm, graphdefs={"policy": graphdef} | ({"critic": critic[0]} if critic else {})
    )
    by_role = {"policy": weights} | others(algorithm, weights, *algorithm.follow)
    by_role |= {"critic": critic[1]} if critic else {}
    collected, metrics, _ = share(collector)(by_role, batch, now or moment(seed=1), algorithm.hyper)
    return collected, metrics


def one_mini_batch(batch):
    """Return a batch as the only mini-batch of an epoch."""
    return batch if "draw_ids" in batch else mini_batches(batch, len(batch["tokens"]), 1, jax.random.key(0))[0]


def change(algorithm, graphdef, weights, batch, now=None):
    policy = Trained(weights.trained, algorithm.optimisers["train"].init(weights.trained))
    update = share(Update(algorithm=algorithm, graphdefs={"policy": graphdef}))
    beside = others(algorithm, weights, *algorithm.plan.roles_in_update)
    after, metrics = update(policy, weights.frozen, beside, one_mini_batch(batch), now or moment(), algorithm.hyper)
    return jax.tree.map(lambda new, old: new - old, after.params, weights.trained), metrics


def evaluate(graphdef, weights, batch, wanted, temperature, **options):
    """Quantities of one model's forward pass."""
    model = Model(graphdef=graphdef, weights=weights)
    return quantities(model, batch, wanted, jnp.float32(temperature), {}, **options)


PLAIN = ("train.optimizer=sgd", "train.lr=1.0", "train.max_grad_norm=1e9", "train.lr_schedule=constant")
VARIANTS = {
    "grpo": ("train.policy_loss=grpo",),
    "gspo": ("train.policy_loss=gspo", "train.loss_agg=sequence_mean_token_mean"),
    "ppo with kl and entropy": ("train.policy_loss=ppo", "train.kl_coef=0.1", "train.entropy_coef=0.01"),
    "rloo, kl in the reward": ("train.advantage=rloo", "train.kl_coef=0.1", "train.kl_in=reward"),
}


@pytest.mark.parametrize(
    "overrides",
    [pytest.param(v, id=name, marks=[] if "kl and" in name else pytest.mark.slow) for name, v in VARIANTS.items()],
)
def test_the_gradient_does_not_depend_on_the_micro_batch(overrides):
    algorithm, graphdef, params = make(*PLAIN, *overrides)
    batch, _ = collect(algorithm, graphdef, params, sampled())
    expected_change, metrics = change(algorithm, graphdef, params, batch)
    for size in (1, 4, 5):
        split, measured = change(in_micro_batches(algorithm, size), graphdef, params, batch)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), expected_change, split)
        expected, found = means(metrics), means(measured)
        assert found.keys() == expected.keys()
        assert found.pop("lengths/fill") <= expected.pop("lengths/fill")  # a ragged last micro-batch has empty rows
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_what_lora_drops_belongs_to_the_row_and_the_epoch():
    """It is the same however whole groups are split, and different in the next epoch."""
    overrides = (*PLAIN, "train.policy_loss=reinforce", "train.adapter=lora", "adapter.lora.rank=2")
    algorithm, graphdef, weights = make_adapted(*overrides, "adapter.lora.dropout=0.5")
    batch = sampled()
    batch["advantages"] = jnp.where(batch["mask"], batch["scores"][:, None], 0.0)
    policy = Trained(weights.trained, algorithm.optimisers["train"].init(weights.trained))

    def trained(micro_batch_size, *minis):
        smaller = in_micro_batches(algorithm, micro_batch_size)
        update = jax.jit(Update(algorithm=smaller, graphdefs={"policy": graphdef}).__call__)
        return [update(policy, weights.frozen, {}, mini, moment(), algorithm.hyper)[0].params for mini in minis]

    first, second = mini_batches(batch, 12, 2, jax.random.key(0))
    (whole, again), (split,) = trained(12, first, second), trained(4, first)
    near = [np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*map(jax.tree.leaves, (whole, split)), strict=True)]
    assert all(near)
    far = [np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*map(jax.tree.leaves, (whole, again)), strict=True)]
    assert not any(far)


def test_dropout_is_for_what_is_trained_on():
    """Forward passes without a key, such as all sampling and scoring, are those of the model without dropout."""
    found = []
    for dropout in (0.0, 0.5):
        _, graphdef, weights = make_adapted("train.adapter=lora", f"adapter.lora.dropout={dropout}")
        found.append(jax.jit(lambda w, g=graphdef: hidden_states(nnx.merge(g, *w), sampled(), 4))(weights))
    np.testing.assert_array_equal(*(each.hidden for each in found))


def test_the_update_norm_is_the_length_of_the_step():
    """The length of an SGD step at rate 1 is the norm of the gradient; at half the rate it is half of that."""
    for rate in (1.0, 0.5):
        algorithm, graphdef, params = make(*PLAIN, f"train.lr={rate}", "train.policy_loss=grpo")
        batch, _ = collect(algorithm, graphdef, params, sampled())
        moved, metrics = change(algorithm, graphdef, params, batch)
        found = means(metrics)
        length = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(moved)))
        assert found["optimizer/update_norm"] == pytest.approx(length, rel=1e-3)
        assert found["optimizer/update_norm"] == pytest.approx(rate * found["optimizer/grad_norm"], rel=1e-5)


def test_collection_does_not_depend_on_the_micro_batch():
    algorithm, graphdef, params = make("train.kl_coef=0.1", "train.kl_in=reward")
    at_once, _ = collect(algorithm, graphdef, params, sampled())
    split, _ = collect(in_micro_batches(algorithm, 5), graphdef, params, sampled())
    assert at_once.keys() == split.keys()
    assert {"old_logps", "ref_logps", "advantages"} <= at_once.keys()
    for name in at_once:
        np.testing.assert_allclose(at_once[name], split[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_empty_rows_change_nothing():
    algorithm, graphdef, params = make(*PLAIN, "train.loss_agg=sequence_mean_token_mean")
    batch, _ = collect(algorithm, graphdef, params, sampled())
    padded = jax.tree.map(lambda x: jnp.pad(x, [(0, 3)] + [(0, 0)] * (x.ndim - 1)), batch)
    without, _ = change(algorithm, graphdef, params, batch)
    more, _ = change(algorithm, graphdef, params, padded)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), without, more)


def test_on_policy_old_logps_from_the_update_equal_scored_ones():
    algorithm, graphdef, params = make(*PLAIN, "train.policy_loss=ppo")
    assert algorithm.plan.detached == {"old_logps": "logps"}
    batch, _ = collect(algorithm, graphdef, params, sampled())
    without, _ = change(algorithm, graphdef, params, batch)
    scored = evaluate(graphdef, params, batch, fields("logps"), 1.0)["logps"]
    plan = attrs.evolve(algorithm.plan, detached={})
    with_pass, _ = change(attrs.evolve(algorithm, plan=plan), graphdef, params, batch | {"old_logps": scored})
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), without, with_pass)


def test_an_all_masked_batch_changes_nothing():
    algorithm, graphdef, params = make(*PLAIN, "train.entropy_coef=0.1", "train.kl_coef=0.1")
    batch, _ = collect(algorithm, graphdef, params, sampled() | {"mask": jnp.zeros((12, 5), bool)})
    delta, _ = change(algorithm, graphdef, params, batch)
    assert all(np.array_equal(leaf, np.zeros_like(leaf)) for leaf in jax.tree.leaves(delta))


def test_logits_are_chunked_without_changing_the_result(monkeypatch):
    _, graphdef, params = make()
    wanted = fields("logps", "entropy")
    whole = evaluate(graphdef, params, sampled(), wanted, 0.7)
    monkeypatch.setattr("dovetail.step.forward.LOGITS_PER_CHUNK", VOCAB * 7)
    chunked = evaluate(graphdef, params, sampled(), wanted, 0.7)
    for name in wanted:
        np.testing.assert_allclose(whole[name], chunked[name], rtol=1e-5, atol=1e-6)


def test_log_probabilities_are_at_the_sampling_temperature():
    _, graphdef, params = make()
    batch = sampled()
    model = nnx.merge(graphdef, *params)
    tokens = jnp.concatenate([batch["prompt_tokens"], batch["tokens"]], axis=1)
    visible = jnp.concatenate([batch["prompt_mask"], jnp.ones((12, 5), bool)], axis=1)
    logits = model.logits(model(tokens, visible)[0])[:, 2:-1]
    for temperature, divisor in ((0.5, 0.5), (0.0, 1.0)):
        found = evaluate(graphdef, params, batch, fields("logps"), temperature)["logps"]
        table = jax.nn.log_softmax(logits / divisor)
        expected = jnp.take_along_axis(table, batch["tokens"][..., None], -1)[..., 0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_critic_learns_the_returns():
    algorithm, graphdef, params = make("train.advantage=gae", "train.policy_loss=ppo", "critic.lr=0.03")
    assert algorithm.has_critic
    critic_graphdef, weights = split(ValueModel(nnx.merge(graphdef, *params), 16))
    batch, _ = collect(algorithm, graphdef, params, sampled(), (critic_graphdef, weights))
    assert {"old_values", "returns", "advantages"} <= batch.keys()
    critic = Trained(weights.trained, algorithm.optimisers["critic"].init(weights.trained))
    graphdefs = {"policy": graphdef, "critic": critic_graphdef}
    update = jax.jit(Update(algorithm=algorithm, graphdefs=graphdefs, model="critic").__call__)

    def error(params):
        found = values(critic_graphdef, Weights(params, weights.frozen), batch)
        return masked_sum(batch["mask"].astype(jnp.float32), (found - batch["returns"]) ** 2)

    before = error(critic.params)
    for _ in range(60):
        critic, _ = update(critic, weights.frozen, {}, one_mini_batch(batch), moment(), algorithm.hyper)
    assert error(critic.params) < 0.7 * before  # the first values of a group are one state with four returns


def test_mini_batches_hold_every_row_once_per_epoch():
    batch = {"tokens": jnp.arange(10)[:, None], "mask": jnp.ones((10, 1), bool)}
    pieces = mini_batches(batch, 4, 2, jax.random.key(0))
    assert [p["tokens"].shape for p in pieces] == [(4, 1)] * 6
    for epoch in (pieces[:3], pieces[3:]):
        rows = jnp.concatenate([p["tokens"][p["mask"]] for p in epoch])
        assert sorted(rows.tolist()) == list(range(10))
    assert not jnp.array_equal(pieces[0]["tokens"], pieces[3]["tokens"])


def test_mini_batches_keep_rows_of_one_prompt_together():
    batch = {"tokens": jnp.arange(20)[:, None], "mask": jnp.ones((20, 1), bool)}
    pieces = mini_batches(batch, 8, 1, jax.random.key(0), rows_per_prompt=4)
    rows = np.stack([p["tokens"][:, 0] for p in pieces]).reshape(-1, 4)
    begun = rows[:, 0][rows[:, 1] > 0]
    np.testing.assert_array_equal(rows[: len(begun)], begun[:, None] + np.arange(4))
    assert sorted(begun.tolist()) == [0, 4, 8, 12, 16]
    assert begun.tolist() != [0, 4, 8, 12, 16]
    assert not rows[len(begun) :].any()


def test_the_score_sits_on_the_last_policy_token():
    mask = jnp.array([[True, True, False, True, False], [False] * 5])
    found = on_last_token(jnp.array([2.0, 3.0]), mask)
    assert found.tolist() == [[0, 0, 0, 2, 0], [0, 0, 0, 0, 0]]
