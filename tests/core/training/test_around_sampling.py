"""Whole runs with a curriculum, process rewards, a replay, a filter and a reward that ranks: records and resumption."""

from pathlib import Path
from threading import Thread

import attrs
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailWarning, PlanError
from dovetail.kinds import Kind
from dovetail.registry import Origin, current
from dovetail.run.files import read_lines
from dovetail.run.summary import series
from dovetail.training.loop import train
from dovetail_lab.sweep.population import Population
from dovetail_loss.kl_controller.fixed import Fixed

COLD = (*TINY, "sft.steps=0", "eval.examples=2")
CONTROLLED = (
    "train.kl_coef=0.5",
    "train.kl_controller=adaptive",
    "kl_controller.adaptive.horizon=100.0",
    "train.entropy_coef=0.5",
    "train.entropy_controller=adaptive",
)
TOGETHER = (
    *COLD,
    "train.curriculum=difficulty",
    "train.rewards=['relative_length', 'lucky']",
    "train.process_rewards=['equations', 'even_start']",
    "process_reward.even_start.coef=0.5",
    "train.group_filter=nonzero_variance",
    "train.refill_rounds=2",
    "train.replay=recent",
    "replay.recent.groups=2",
    "replay.recent.capacity=4",
    "train.correction=['tis_token']",
    "train.advantage=remax",
    "train.mini_batch_size=12",
)


def even_start(tokens):
    """A process reward that an untrained policy sometimes earns: for completions that begin with an even id."""
    return [[float(ids[0] % 2 == 0)] + [0.0] * (len(ids) - 1) if ids else [] for ids in tokens]


def lucky(tokens, logps, group_ids):
    """A reward of ids, log-probabilities and groups: 1 for the likeliest completion of each group if it starts odd."""
    totals = [sum(of_tokens) for of_tokens in logps]
    best = {group: max(t for t, g in zip(totals, group_ids, strict=True) if g == group) for group in group_ids}
    return [
        float(total == best[group] and sum(ids) % 2)
        for total, group, ids in zip(totals, group_ids, tokens, strict=True)
    ]


@pytest.fixture(autouse=True)
def components():
    dovetail.register("process_reward", "even_start", even_start)
    dovetail.register("reward", "lucky", lucky)


def run(folder: Path, *overrides: str) -> list[dict]:
    train(load(None, list(overrides)), folder)
    return [line for line in read_lines(folder / "metrics.jsonl") if "reward/mean" in line]


@pytest.mark.slow
def test_all_of_them_together_run_and_go_on_bit_for_bit(tmp_path, monkeypatch):
    """This includes a refill, greedy completions, and mini-batches with both fresh and earlier groups."""
    lines = run(tmp_path / "undisturbed", *TOGETHER)
    assert len(lines) == 4
    assert lines[0]["replay/groups"] == 0
    assert max(line["replay/groups"] for line in lines) == 2
    assert [line["curriculum/seen"] for line in lines] == sorted({line["curriculum/seen"] for line in lines})
    assert 0 < max(line["process_reward/even_start"] for line in lines) <= 1
    assert all(line["process_reward/equations/count"] == 0 for line in lines)
    assert not any("process_reward/equations/right" in line for line in lines), "of no completion, no mean"
    assert max(line["group_filter/rounds"] for line in lines) > 1
    with cut_off(3):
        run(tmp_path / "disturbed", *TOGETHER)
    run(tmp_path / "disturbed", *TOGETHER)
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (tmp_path / "disturbed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    assert_same_parameters(tmp_path / "disturbed", tmp_path / "undisturbed")


def test_process_rewards_may_be_all_there_is_to_learn_from(tmp_path):
    only = ("train.rewards=()", "train.process_rewards=['even_start']", "train.advantage=reinforce")
    replay = ("train.replay=recent", "replay.recent.groups=1", "train.correction=['tis_token']")
    lines = run(tmp_path, *COLD, *only, *replay, "train.steps=2")
    assert all(line["reward/mean"] == 0 for line in lines)
    assert all(line["process_reward/even_start"] > 0 for line in lines)
    assert all(line["optimizer/grad_norm"] > 0 for line in lines)
    assert lines[1]["replay/groups"] == 1


def test_a_filter_and_a_kind_of_a_plugin_see_all_that_is_there_when_they_are_called(tmp_path):
    """They read the fields of every stage, columns and roles; the filter also reads what a kind writes after scoring."""

    def doubt(tokens, key, progress, row_keys, schedule_weight):
        """A verifier of completions: by their first token."""
        assert row_keys.shape == (16,)
        return (tokens[:, 0] % 2).astype(np.float32), {"progress": progress}

    def sure(doubt, mask, key, role_ids, answer_mask):
        """Keep the groups whose first completion is not in doubt."""
        assert answer_mask.shape == mask.shape
        return jnp.repeat(doubt[::4] == 0, 4, total_repeat_length=16)

    def doubled(doubt, scores, mask):
        """After the filter: a second kind, which reads the first."""
        return 2 * doubt

    def certain(scores, doubled, mask):
        """Advantages that read it."""
        return jnp.where(mask, (scores - doubled)[:, None], 0.0)

    origin = Origin("session", "0", "")
    current().add_kind(Kind(name="verifier", summary="", stage="scored", reads="fields", writes=("doubt",)), origin)
    current().add_kind(
        Kind(name="afterthought", summary="", stage="filtered", reads="fields", writes=("doubled",)), origin
    )
    for kind, function in (
        ("verifier", doubt), ("group_filter", sure), ("afterthought", doubled), ("advantage", certain)
    ):  # fmt: skip
        dovetail.register(kind, function.__name__, function)
    chosen = ("train.verifier=doubt", "train.group_filter=sure", "train.afterthought=doubled", "train.schedule=linear")
    lines = run(tmp_path, *COLD, *chosen, "train.advantage=certain", "train.steps=2", "train.refill_rounds=1")
    assert [line["verifier/progress"] for line in lines] == [0.0, 0.5]
    assert any(line["group_filter/kept"] < 1 for line in lines)
    assert all(line["optimizer/grad_norm"] > 0 for line in lines)


def test_a_filter_cannot_read_what_is_computed_for_the_prompts_that_it_keeps():
    def hopeful(greedy_scores, mask):
        """Keep prompts that are answered greedily."""
        return greedy_scores > 0

    dovetail.register("group_filter", "hopeful", hopeful)
    with pytest.raises(
        PlanError, match="reads 'greedy_scores', which does not exist before the stage 'filtered' is over"
    ):
        load(None, [*COLD, "train.group_filter=hopeful"])


@pytest.mark.slow
def test_the_members_of_a_population_have_curricula_and_replays_of_their_own(tmp_path):
    """Runs trained as a population give the same results as alone, although they sample different prompts and rounds."""
    population, failed = Population(2), []

    def member(seed: int) -> None:
        with population.member(seed):
            try:
                run(tmp_path / f"member-{seed}", *TOGETHER, f"run.seed={seed}")
            except Exception as error:
                failed.append(error)

    threads = [Thread(target=member, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for seed in (0, 1):
        alone = run(tmp_path / f"alone-{seed}", *TOGETHER, f"run.seed={seed}")
        together = [line for line in read_lines(tmp_path / f"member-{seed}" / "metrics.jsonl") if "reward/mean" in line]
        for one, other in zip(alone, together, strict=True):
            assert one.keys() == other.keys()
            for name in ("curriculum/seen", "replay/groups", "group_filter/rounds", "reward/mean"):
                assert one[name] == other[name], (seed, name)


def abstaining(completions):
    """Abstain always."""
    return [None for _ in completions]


def test_a_step_that_no_reward_has_scored_is_told(tmp_path):
    dovetail.register("reward", "abstaining", abstaining)
    overrides = ("train.rewards=['abstaining']", "eval.every=None", "sft.steps=0", "train.steps=1")
    with pytest.warns(DovetailWarning, match="every reward abstained on every completion of a step"):
        last = train(load(None, [*TINY, *overrides]), tmp_path)
    assert last["reward/unscored"] == 1


def none_at_all(scores):
    """Keep nothing."""
    return scores > jnp.inf


def test_a_filter_that_keeps_nothing_is_told(tmp_path):
    dovetail.register("group_filter", "none_at_all", none_at_all)
    overrides = ("train.group_filter=none_at_all", "train.refill_rounds=1", "eval.every=None", "train.steps=2")
    said = r"group_filter\.none_at_all of session 0 .* kept no group of a step in 2 rounds: the step learns nothing"
    with pytest.warns(DovetailWarning, match=said):
        last = train(load(None, [*COLD, *overrides, *CONTROLLED]), tmp_path)
    assert last["group_filter/kept"] == 0
    # nothing was observed, so no controller has a reason to move
    assert [dict(series(tmp_path, f"{name}/coef")) for name in ("kl", "entropy")] == [{1: 0.5, 2: 0.5}] * 2


ROUNDS: list[tuple[str, list[int]]] = []


@attrs.frozen(kw_only=True)
class Noting:
    """A curriculum that draws one prompt twice in each round, counts it twice, and has a metric every other round."""

    def init(self, examples):
        return {"count": np.zeros(examples, np.int32)}

    def choose(self, state, count, rng):
        ROUNDS.append(("choose", state["count"][:2].tolist()))
        return np.minimum(np.arange(count), 1)

    def update(self, state, chosen, scores):
        ROUNDS.append(("update", np.shape(scores)[1:]))
        count = state["count"].copy()
        np.add.at(count, chosen, 1)
        return {"count": count}, {"even": 1.0} if count[0] % 2 == 0 else {}


def test_a_curriculum_is_asked_and_told_once_in_each_round_of_a_step(tmp_path):
    dovetail.register("curriculum", "noting", Noting)
    dovetail.register("group_filter", "none_at_all", none_at_all)
    ROUNDS.clear()
    filtered = ("train.group_filter=none_at_all", "train.refill_rounds=1", "eval.every=None")
    with pytest.warns(DovetailWarning, match="kept no group"):
        run(tmp_path, *COLD, *filtered, "train.curriculum=noting", "train.steps=1")
    rest = load(None, [*COLD]).train.prompts - 1
    each = ("update", (load(None, [*COLD]).train.group_size,))
    assert [("choose", [0, 0]), each, ("choose", [1, rest]), each] == ROUNDS
    assert dict(series(tmp_path, "curriculum/even")) == {1: 1.0}, "of the last round, as the first has none"


@attrs.frozen(kw_only=True)
class Counting(Fixed):
    """A controller that counts the completions that it is told of."""

    def init(self, coef):
        """Begin with none."""
        return {"coef": jnp.float32(coef), "samples": jnp.float32(0)}

    def coef(self, state):
        """Tell the count in the coefficient, which is among the metrics."""
        return state["coef"] + state["samples"]

    def update(self, state, observed, samples):
        """Remember the last count."""
        return state | {"samples": jnp.asarray(samples, jnp.float32)}


def reject_all(old_logps, rollout_logps, mask):
    """Refuse every token."""
    return jnp.ones(mask.shape), mask & False


@pytest.mark.parametrize(
    ("more", "counted"), [("train.rewards=('every_other',)", 8), ("train.correction=('reject_all',)", 0)]
)
def test_a_controller_is_told_of_the_completions_that_were_learned_from(tmp_path, more, counted):
    def every_other(completions):
        """Abstain on every other completion."""
        return [float(number) if number % 2 else None for number in range(len(completions))]

    dovetail.register("kl_controller", "counting", Counting)
    dovetail.register("reward", "every_other", every_other)
    dovetail.register("correction", "reject_all", reject_all)
    overrides = ("train.kl_coef=0.25", "train.kl_controller=counting", "eval.every=None", "train.steps=2")
    train(load(None, [*COLD, *overrides, more]), tmp_path)
    assert [coef for _, coef in series(tmp_path, "kl/coef")] == [0.25, 0.25 + counted]
