"""Routing replay: scoring and update compute with the experts that were chosen while sampling."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.step.test_update import PLAIN, VOCAB, change, collect, evaluate, fields, sampled
from tests.core.training.cut_off import cut_off
from tests.core.training.tiny import TINY
from tests.devices import EIGHT
from tests.model.folders import config_of

from dovetail.config import load
from dovetail.errors import ConfigError, PlanError, PluginError
from dovetail.plan.planner import plan_step
from dovetail.plan.routing import CHOICES, check_recorded
from dovetail.protocols import Completions
from dovetail.step.algorithm import assemble
from dovetail.step.forward import AGREEMENT
from dovetail.training.loop import train
from dovetail.training.models import split
from dovetail_memory.cost import estimate

REPLAY = "train.replay_choices=True"
EXPERTS, EACH = 4, 4
"""The fixture has four experts, and two layers in which a token uses two of them."""


def folder_of(path, vocab):
    """Return a folder with the sizes of a small mixture, which is random whenever it is made."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config_of("qwen3_moe") | {"vocab_size": vocab, "dtype": "float32"}))
    return path


def mixture(path, vocab=VOCAB):
    return ("train.model=pretrained", f"model.pretrained.path={folder_of(path, vocab)}", "model.pretrained.random=True")


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")

    @functools.cache
    def made(*overrides):
        config = load(None, ["train.prompts=3", "train.group_size=4", REPLAY, *mixture(folder), *overrides])
        maker: Any = config.choice("train.model").bind()
        model = maker.make(VOCAB, rngs=nnx.Rngs(0))
        return assemble(config), *split(model)

    return made


def whole(batch):
    tokens = jnp.concatenate([batch["prompt_tokens"], batch["tokens"]], axis=1)
    return tokens, jnp.concatenate([batch["prompt_mask"], jnp.ones_like(batch["tokens"], bool)], axis=1)


def own_choices(graphdef, weights, batch):
    """Return what the model itself chooses at each token of prompts and completions."""
    tokens, mask = whole(batch)
    none = jnp.full((*tokens.shape, EACH), -1, jnp.int16)
    return chosen_by(graphdef, weights, tokens, mask, none)


@functools.partial(jax.jit, static_argnames="graphdef")
def chosen_by(graphdef, weights, tokens, mask, none):
    return nnx.merge(graphdef, *weights)(tokens, mask, choices=none)[2]


def with_choices(batch, choices):
    """Return the batch with these choices; there are none at a completion's last token and after it."""
    first = batch["prompt_tokens"].shape[1]
    mask = np.asarray(batch["mask"])
    last = np.max(mask * np.arange(mask.shape[1]), axis=1)
    kept = np.where((np.arange(mask.shape[1]) < last[:, None])[..., None], choices[:, first:], np.int16(-1))
    return batch | {"choices": jnp.asarray(kept), "prompt_choices": choices[:, :first]}


def other_choices(batch, seed=0):
    """Return other experts for every token, the same ones for the prompts of a group."""
    tokens, _ = whole(batch)
    drawn = np.random.default_rng(seed).permuted(np.tile(np.arange(EXPERTS), (*tokens.shape, 2, 1)), axis=-1)
    drawn = drawn[..., :2].reshape(*tokens.shape, EACH)
    first = batch["prompt_tokens"].shape[1]
    drawn[:, :first] = np.repeat(drawn[::4, :first], 4, axis=0)
    return jnp.asarray(drawn, jnp.int16)


WANTED = fields("logps")


@functools.partial(jax.jit, static_argnames=("graphdef", "rows_per_prompt"))
def scored(graphdef, weights, batch, rows_per_prompt=1):
    return evaluate(graphdef, weights, batch, WANTED, 1.0, rows_per_prompt=rows_per_prompt)


def inside(batch, array):
    return np.where(batch["mask"], array, 0)


def test_the_models_own_choices_change_nothing(make):
    _, graphdef, weights = make()
    batch = sampled()
    found = scored(graphdef, weights, with_choices(batch, own_choices(graphdef, weights, batch)))
    plain = scored(graphdef, weights, batch)
    np.testing.assert_allclose(inside(batch, found["logps"]), inside(batch, plain["logps"]), atol=1e-6)
    assert AGREEMENT not in plain
    np.testing.assert_array_equal(inside(batch, found[AGREEMENT]), batch["mask"])


def test_given_choices_are_used_whatever_the_weights_would_choose(make):
    """A pass over prompts and completions together is that of the model with these choices."""
    _, graphdef, weights = make()
    batch = sampled()
    choices, (tokens, mask) = other_choices(batch), whole(batch)
    found = scored(graphdef, weights, with_choices(batch, choices))

    @nnx.jit
    def by_hand(model):
        hidden, _, own = model(tokens, mask, choices=choices)
        logps = nnx.log_softmax(model.logits(hidden), -1)[:, :-1]
        return jnp.take_along_axis(logps, tokens[:, 1:, None], -1)[..., 0], jnp.mean(own == choices, axis=2)

    logps, agreed = by_hand(nnx.merge(graphdef, *weights))
    first = batch["prompt_tokens"].shape[1] - 1
    np.testing.assert_allclose(inside(batch, found["logps"]), inside(batch, logps[:, first:]), atol=1e-5)
    np.testing.assert_allclose(inside(batch, found[AGREEMENT]), inside(batch, agreed[:, first:-1]), atol=1e-6)
    plain = inside(batch, scored(graphdef, weights, batch)["logps"])
    assert np.abs(inside(batch, found["logps"]) - plain).max() > 0.01
    assert 0.2 < np.mean(np.asarray(found[AGREEMENT])[batch["mask"]]) < 0.8


def test_log_probabilities_do_not_jump_when_weights_move_a_little(make):
    """Without replay a few tokens get other experts, and their ratio says nothing about the change of the weights."""
    _, graphdef, weights = make()
    batch = sampled(rows=256, prompt=8, token=24)
    moved = [x + 1e-3 * jnp.std(x) * jax.random.normal(jax.random.key(3), x.shape) for x in jax.tree.leaves(weights)]
    moved = jax.tree.unflatten(jax.tree.structure(weights), moved)
    recorded = with_choices(batch, own_choices(graphdef, weights, batch))
    before = scored(graphdef, weights, batch)["logps"]
    found = [scored(graphdef, moved, each) for each in (batch, recorded)]
    anew, replayed = (np.abs(inside(batch, each["logps"] - before)).max() for each in found)
    assert 0 < replayed < anew / 2
    assert 0.99 < np.asarray(found[1][AGREEMENT])[batch["mask"]].mean() < 1


def test_a_shared_prompt_is_read_with_its_choices(make):
    _, graphdef, weights = make()
    batch = sampled()
    batch = with_choices(batch, other_choices(batch))
    together, apart = (scored(graphdef, weights, batch, rows_per_prompt=rows) for rows in (4, 1))
    for name in ("logps", AGREEMENT):
        np.testing.assert_allclose(inside(batch, together[name]), inside(batch, apart[name]), atol=1e-5)


@pytest.fixture(scope="module")
def updated(make):
    """Return a function that updates with some settings; what it returns for the same ones is computed once."""
    batch = sampled()
    batch = with_choices(batch, other_choices(batch))

    @functools.cache
    def update(*overrides):
        algorithm, graphdef, weights = make(*PLAIN, "train.policy_loss=grpo", *overrides)
        collected, measured = collect(algorithm, graphdef, weights, batch)
        moved, more = change(algorithm, graphdef, weights, collected)
        return moved, collected, measured, more

    return update


@pytest.mark.slow
@pytest.mark.parametrize("how", ["train.packing=True", "train.length_buckets=2", "train.micro_batch_size=4"])
def test_neither_packing_nor_the_split_changes_an_update(how, updated):
    loss = ("train.kl_coef=0.1", "train.mini_batch_size=8")
    moved, collected, measured, more = updated(*loss, "train.micro_batch_size=8")
    again, collected_again, measured_again, more_again = updated(*loss, how)
    old, old_again = (inside(each, each["old_logps"]) for each in (collected, collected_again))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), (moved, old), (again, old_again))
    for name, one, other in (
        ("field/old_choices/agreement", measured, measured_again),
        ("field/choices/agreement", more, more_again),
    ):
        np.testing.assert_allclose(one[name][0], other[name][0], rtol=1e-5)
        assert 0.2 < one[name][0] / one[name][1] < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("remat", [pytest.param("dots_no_batch", marks=pytest.mark.exhaustive), "full"])
def test_what_the_backward_pass_recomputes_changes_nothing(remat, updated):
    moved = [updated(f"model.pretrained.remat={how}")[0] for how in ("none", remat)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), *moved)


def test_the_reference_routes_by_itself(make):
    """Its log-probabilities are those without any choices; the policy's are not."""
    algorithm, graphdef, weights = make("train.kl_coef=0.1", "train.mini_batch_size=8")
    batch = sampled()
    plain, _ = collect(algorithm, graphdef, weights, batch)
    found, _ = collect(algorithm, graphdef, weights, with_choices(batch, other_choices(batch)))
    np.testing.assert_allclose(inside(batch, found["ref_logps"]), inside(batch, plain["ref_logps"]), atol=1e-5)
    assert np.abs(inside(batch, found["old_logps"] - plain["old_logps"])).max() > 0.01


def test_a_step_has_the_choices_only_if_they_are_replayed():
    plain, plan = (plan_step(load(None, settings)) for settings in ([], [REPLAY]))
    assert not set(CHOICES) & {entry.field for entry in plain.entries}
    entries = {entry.field: entry.readers for entry in plan.entries}
    assert all(entries[name] == ["train.replay_choices"] for name in CHOICES)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("train.rollout=vllm",), "rollout vllm of"),
        (("rollout.vanilla.replicas=2",), "does not declare 'keeps_choices'"),
        (("train.agent_loop=tool_agent",), "train.agent_loop is 'tool_agent'; set train.replay_choices = False"),
    ],
)
def test_who_records_no_choices_is_refused_at_once(settings, said):
    with pytest.raises(PlanError) as refused:
        load(None, [REPLAY, *settings]).plan  # noqa: B018
    assert str(refused.value).startswith("train.replay_choices = True (--set train.replay_choices=True)")
    assert said in str(refused.value)


def test_a_model_without_choices_is_refused_before_it_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.model = 'decoder' is a Transformer that makes no choices"):
        train(load(None, [*TINY, REPLAY]), tmp_path / "run")


def test_the_plan_has_room_for_what_is_recorded(tmp_path):
    asked = small(tmp_path / "model", "train.prompts=5", "train.group_size=4")
    with_, without = (estimate(load(None, [*asked, f"train.replay_choices={on}"])).memory for on in (True, False))
    assert with_.pop("recorded choices") == 5 * 4 * (12 + 6) * EACH * 2
    assert with_ == without


def test_an_engine_that_returns_none_although_it_claims_to_is_refused():
    shape = (1, 2)
    drawn = Completions(
        tokens=np.zeros(shape, np.int32),
        mask=np.ones(shape, bool),
        logps=np.zeros(shape, np.float32),
        finish=np.array(["eos"]),
        versions=np.zeros(1, np.int32),
    )
    check_recorded(load(None, []), drawn)
    with pytest.raises(PluginError, match=r"rollout.vanilla of .* declares 'keeps_choices' and returned no 'choices'"):
        check_recorded(load(None, [REPLAY]), drawn)


def small(path, *overrides):
    """Return the settings of a few steps of a small mixture."""
    others = [setting for setting in TINY if not setting.startswith("model.decoder")]
    rewarded = (
        "task.arithmetic.train_size=10000",
    )  # of its first prompts one has completions that are not all the same
    return [*others, *rewarded, *mixture(path, 300), "sft.steps=0", REPLAY, *overrides]


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_grpo_with_several_updates_of_a_batch(tmp_path):
    more = ("train.mini_batch_size=8", "train.epochs=2", "train.lr=0.1", "train.steps=2")
    train(load(None, small(tmp_path / "model", *more)), tmp_path / "run")
    steps = [line for line in records(tmp_path / "run") if "field/choices/agreement" in line]
    assert len(steps) == 2
    assert all(line["field/old_choices/agreement"] == 1.0 for line in steps), "the sampler has the same weights"
    assert all(0.3 < line["field/choices/agreement"] < 1.0 for line in steps), "later updates would choose others"
    assert all(line["mismatch/abs_max"] < 1e-4 for line in steps)


AHEAD = ("train.staleness=1", "train.correction=['tis_token']", "train.packing=True", "train.lr=0.1")


@pytest.fixture(scope="module")
def ahead(tmp_path_factory):
    """Return the settings of a run that samples ahead into packed rows, and its folder."""
    place = tmp_path_factory.mktemp("ahead")
    settings = small(place / "model", *AHEAD, "eval.every=None", "run.checkpoint_every=1")
    train(load(None, settings), place / "run")
    return settings, place / "run"


@pytest.mark.slow
def test_completions_of_older_weights_in_packed_rows(ahead):
    agreed = [line["field/choices/agreement"] for line in records(ahead[1]) if "field/choices/agreement" in line]
    assert agreed[0] == 1.0, "the first batch is of the weights that the step begins with"
    assert all(0.3 < each < 1.0 for each in agreed[1:])
    assert len(agreed) == 4


@pytest.mark.slow
def test_a_run_that_is_cut_off_replays_the_same_choices(ahead, tmp_path):
    """A batch in flight is drawn again with its own weights, so the experts are those of the first time."""
    settings, whole = ahead
    with cut_off(3):
        train(load(None, settings), tmp_path / "cut")
    train(load(None, settings), tmp_path / "cut")
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_devices_that_share_a_model_replay_as_one_does(tmp_path):
    mesh = ("mesh.fsdp=2", "mesh.tp=2", "rollout/mesh.fsdp=1", "rollout/mesh.first=4")
    meshes = {"one": (), "mesh": mesh}
    settings = small(tmp_path / "model", "train.mini_batch_size=8", "train.steps=2", "eval.every=None")
    runs = json.dumps([[str(tmp_path / name), [*settings, *mesh]] for name, mesh in meshes.items()])
    command = [sys.executable, "-m", "tests.core.training.placed", runs]
    subprocess.run(command, env=EIGHT, cwd=Path(__file__).parents[3], check=True)
    for found, expected in zip(records(tmp_path / "mesh"), records(tmp_path / "one"), strict=True):
        assert found.keys() == expected.keys()
        for metric in found.keys() - {"phase"}:
            np.testing.assert_allclose(found[metric], expected[metric], rtol=2e-3, atol=2e-4, err_msg=metric)
