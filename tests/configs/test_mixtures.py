"""Components mix freely: a step of a tiny model with random combinations of all components, without exceptions.

The batches are episodes of several turns, with observations between the turns.
"""

import random

import jax
import numpy as np
import pytest
from tests.configs.step import GROUP, PROMPTS, TOKENS, episodes, one_step, without_observations
from tests.core.training.test_episodes import GUESSING, short, won
from tests.sampled import sampled

import dovetail
from dovetail.config import Config, load
from dovetail.errors import PlanError
from dovetail.registry import current
from dovetail.training.loop import train

COUNT, SLOW, FAST = 240, 30, 10
"""Seeds of all mixtures, of those of the slow suite, and of those of the fast one; names are dealt one after another.

Components by themselves are tested elsewhere, and what fails with most others does so in one of thirty mixtures;
`make test-all` tries them all.
"""
SIZES = (
    f"train.prompts={PROMPTS}",
    f"train.group_size={GROUP}",
    f"sampling.max_tokens={TOKENS}",
    "train.lr=0.01",
    "loss_agg.sequence_mean_token_scale.normalizer=5.0",
    "reward_shaping.cosine_length.max_tokens=7",
    "reward_shaping.overlong.max_tokens=7",
    "reward_shaping.overlong.buffer=3",
    "train.agent_loop=tool_agent",
)
KINDS = (
    "advantage",
    "policy_loss",
    "loss_agg",
    "kl",
    "completion_filter",
    "correction",
    "loss_mask",
    "reward_shaping",
    "group_filter",
)
KINDS += ("loss_term", "schedule", "value_loss", "optimizer", "lr_schedule", "kl_controller", "entropy_controller")
PROVIDED_BY = {"is_weights": "correction", "schedule_weight": "schedule"}
"""Fields that exist only where a setting chooses their provider."""


def mixture(seed: int) -> dict[str, str]:
    """Choose a value for every setting that takes a component or splits a step; every name gets its turn.

    The names of a kind are chosen one after another in a random order, so that each of them occurs.
    """
    chance = random.Random(seed)

    def dealt(kind: str) -> str:
        names = list(dovetail.names(kind))
        random.Random(f"{kind} {seed // len(names)}").shuffle(names)
        return names[seed % len(names)]

    def some(kind: str, most: int) -> str:
        return repr(tuple(chance.sample(dovetail.names(kind), chance.randint(0, most))))

    def maybe(kind: str) -> str:
        return chance.choice(["None", *[dealt(kind)] * 3])

    # most losses that correct by themselves get no correction here; with one they are refused
    excluded = dovetail.get("policy_loss", dealt("policy_loss")).declares.get("excludes", ())
    corrections = 0 if "correction" in excluded and chance.random() < 0.75 else 2
    terms = random.Random(f"terms {seed}").sample(dovetail.names("loss_term"), seed % 3)
    together = any(dovetail.get("loss_term", name).declares.get("whole_groups") for name in terms)

    return {
        **{f"train.{kind}": dealt(kind) for kind in ("advantage", "policy_loss", "loss_agg", "kl", "optimizer")},
        **{f"train.{kind}": dealt(kind) for kind in ("lr_schedule", "kl_controller", "entropy_controller")},
        **{f"train.{kind}": maybe(kind) for kind in ("group_filter", "schedule")},
        "train.correction": some("correction", corrections),
        "train.completion_filter": some("completion_filter", 1),
        "train.loss_mask": some("loss_mask", 2),
        "train.reward_shaping": some("reward_shaping", 2),
        "train.loss_terms": repr(terms),
        "roles.teacher": dealt("follower"),
        "roles.reference": dealt("follower"),
        "critic.value_loss": dealt("value_loss"),
        "critic.loss_agg": chance.choice(dovetail.names("loss_agg")),
        "train.kl_coef": chance.choice(["0.0", "0.05"]),
        "train.kl_in": chance.choice(["'loss'", "'reward'"]),
        "train.entropy_coef": chance.choice(["0.0", "0.01"]),
        "train.epochs": chance.choice(["1", "2"]),
        "train.mini_batch_size": chance.choice(["None", "8", "8" if together else "5"]),
        "train.micro_batch_size": chance.choice(["None", "4", "4" if together else "3"]),
    }


def overrides(seed: int) -> list[str]:
    return [*SIZES, *(f"{setting}={value}" for setting, value in mixture(seed).items())]


def configured(seed: int) -> Config:
    return load(None, overrides(seed), plan=False)


def clashing(config: Config) -> set[str]:
    """Return the settings of the kinds whose work some chosen component declares to do itself."""
    excluded = {kind for choice in config.choices.values() for kind in choice.component.declares.get("excludes", ())}
    return {f"train.{kind}" for kind in excluded if config.several(f"train.{kind}")}


def lacking(config: Config) -> set[str]:
    """Return the settings without which a field of this combination has no provider, derived here only from names."""
    readers = [choice.component for path, choice in config.choices.items() if path.startswith("train.")]
    if not config.train.kl_coef:
        readers.remove(config.choice("train.kl").component)
    fields = [field for component in readers for field in component.reads]
    for field in fields:
        if current().has("field", field):
            fields += current().get("field", field).reads
    chosen = {"correction": config.train.correction, "schedule": config.train.schedule}
    return {f"train.{s}" for field, s in PROVIDED_BY.items() if field in fields and not chosen[s]}


def check(seed: int) -> None:
    config = configured(seed)
    wrong = {f"set {setting} to None" for setting in clashing(config)}
    wrong |= {f"set {setting} to a name" for setting in lacking(config)}
    if wrong:
        with pytest.raises(PlanError) as refused:
            load(None, overrides(seed))
        assert any(advice in str(refused.value) for advice in wrong), mixture(seed)
        return
    metrics, change = one_step(load(None, overrides(seed)), episodes())
    assert "policy_loss/loss" in metrics
    assert all(np.isfinite(value) for value in metrics.values()), (metrics, mixture(seed))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(change)), mixture(seed)


def looks_at_places(config: Config) -> bool:
    """Return whether a chosen component draws for each position, counts positions, or learns from the observations."""
    parts = [choice.component for choice in config.choices.values()]
    fields = [field for part in parts for field in part.reads]
    parts += [current().get("field", field) for field in fields if current().has("field", field)]
    reads = {field for part in parts for field in part.reads}
    return bool({"key", "row_keys", "observed"} & reads) or any(part.declares.get("by_position") for part in parts)


def check_without_observations(seed: int) -> None:
    """Observations between the turns do not change the result if the model ignores them.

    No reward is lost there, no discount, mean or weight counts them, and no eligibility trace ends at them.
    """
    config = load(None, overrides(seed))
    metrics, (change, state) = one_step(config, episodes())
    others, (alone, kept) = one_step(config, without_observations(episodes()))
    del metrics["lengths/fill"], others["lengths/fill"]  # observations take positions
    assert metrics == pytest.approx(others, rel=1e-3, abs=1e-5), mixture(seed)
    moved, expected = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (change, alone))
    np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max(), err_msg=mixture(seed))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state, kept)


def is_comparable(seed: int) -> bool:
    config = configured(seed)
    return not (lacking(config) or clashing(config) or looks_at_places(config))


@pytest.mark.parametrize("seed", [seed for seed in range(FAST) if is_comparable(seed)][:3])
def test_observations_make_no_difference_to_a_mixture(seed: int) -> None:
    check_without_observations(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(0, COUNT, 8), every=COUNT, slow=6))
def test_observations_make_no_difference_to_many_more_mixtures(seed: int) -> None:
    if is_comparable(seed):
        check_without_observations(seed)


SEEDS = [
    *range(FAST),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FAST, SLOW)),
    *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.exhaustive]) for seed in range(SLOW, COUNT)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mixture_trains_or_is_refused(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_few_mixtures_are_refused_and_no_component_is_left_out() -> None:
    configs = [configured(seed) for seed in range(COUNT)]
    runnable = [config for config in configs if not lacking(config) and not clashing(config)]
    assert len(runnable) > 0.75 * COUNT
    used = {
        choice.component.label
        for config in runnable
        for path, choice in config.choices.items()
        if path.startswith(("train.", "critic."))
    }
    assert {f"{kind}.{name}" for kind in KINDS for name in dovetail.names(kind)} <= used


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* kept no group of a step")  # few completions, and filters of all kinds
@pytest.mark.parametrize(
    "seed", [seed for seed in range(8) if not lacking(configured(seed)) | clashing(configured(seed))][:4]
)
def test_whole_runs_of_mixtures(seed: int, tmp_path) -> None:
    """The same for whole runs with episodes of a game, rewards, controllers and checkpoints."""
    dovetail.register("reward", "short", short)
    dovetail.register("reward", "won", won)
    brief = ("sft.steps=0", "train.steps=2", "eval.every=2", "eval.examples=1", "train.refill_rounds=1")
    last = train(load(None, [*GUESSING, *brief, *overrides(seed)]), tmp_path)
    assert np.isfinite(last["policy_loss/loss"])
    assert np.isfinite(last["optimizer/grad_norm"])
