"""`rae` by hand, against prime-rl's figures, over steps, and through whole runs."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import ConfigError, DataError
from dovetail.host.speakers import Speakers
from dovetail.run import checkpoint
from dovetail.training.loop import train
from dovetail_advantage.advantage.rae import RoleConditioned


def step(rae, state, scores, roles, mask=None):
    scores, roles = jnp.array(scores, jnp.float32), jnp.array(roles, jnp.int32)
    mask = jnp.ones((len(scores), 1), bool) if mask is None else jnp.array(mask)[:, None]
    advantages, metrics = rae(state, scores, roles, mask)
    return advantages[:, 0], metrics["baseline"], rae.update(state, scores, roles, mask)


def test_the_figures_of_prime_rl():
    """From prime-rl's test: the first group centres each role on its own mean; the second uses the previous baseline."""
    rae = RoleConditioned(decay=0.5, per="step")
    advantages, _, state = step(rae, rae.init(2), [1.0, -1.0, -1.0], [0, 0, 1])
    assert advantages.tolist() == [1.0, -1.0, 0.0]
    assert state["baseline"].tolist() == [0.0, -1.0]
    advantages, baseline, state = step(rae, state, [1.0, 1.0], [0, 0])
    assert advantages.tolist() == [1.0, 1.0]
    assert baseline.tolist() == [0.0, 0.0]
    assert state["baseline"].tolist() == [0.5, -1.0]


def test_each_completion_decays_the_baseline_as_in_the_paper():
    """The scores are equal, so the order in which the paper processes them does not matter."""
    rae, expected = RoleConditioned(decay=0.95), 0.0
    state = {"baseline": jnp.zeros(1), "seen": jnp.ones(1)}
    _, _, state = step(rae, state, [2.0] * 5, [0] * 5)
    for _ in range(5):
        expected = 0.95 * expected + 0.05 * 2.0
    np.testing.assert_allclose(state["baseline"], [expected], rtol=1e-6)


def test_a_game_that_one_side_wins_teaches_nothing():
    """This is the purpose of the estimator: the benefit of moving first is not credited to any move."""
    rae = RoleConditioned()
    state = rae.init(2)
    for _ in range(3):
        advantages, _, state = step(rae, state, [1.0, -1.0, 1.0, -1.0], [0, 1, 0, 1])
        assert not advantages.any()


def test_a_row_without_policy_tokens_moves_no_baseline():
    rae = RoleConditioned()
    _, _, state = step(rae, rae.init(2), [1.0, 3.0, np.nan], [0, 0, 1], [True, True, False])
    assert state["baseline"].tolist() == [2.0, 0.0]
    assert state["seen"].tolist() == [2.0, 0.0]
    advantages, baseline, after = step(rae, state, [np.nan, 5.0], [0, 1], [False, True])
    assert advantages.tolist() == [0.0, 0.0]
    assert baseline.tolist() == [0.0, 5.0]
    assert after["baseline"].tolist() == [2.0, 5.0]


def test_without_decay_the_baseline_is_the_last_mean():
    rae = RoleConditioned(decay=0.0)
    _, _, state = step(rae, rae.init(1), [1.0, 3.0], [0, 0])
    _, _, state = step(rae, state, [5.0, 6.0], [0, 0])
    assert state["baseline"].tolist() == [5.5]


def test_roles_are_numbered_by_value():
    examples = [{"role": role} for role in ("white", 2, "black", 10, "white")]
    roles = Speakers.of(examples, "role")
    assert roles.names == (2, 10, "black", "white")
    assert roles.ids(examples).tolist() == [3, 0, 2, 1, 3]
    assert Speakers().ids(examples).tolist() == [0] * 5
    with pytest.raises(DataError, match=r"column 'role' of train example 1 is \['x'\]; a role is a text or a whole"):
        Speakers.of([{"role": "a"}, {"role": ["x"]}], "role")


RAE = (*TINY, "train.advantage=rae", "sft.steps=0", "model.decoder.layers=1")


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    """A file with prompts of two roles."""
    path = tmp_path_factory.mktemp("data") / "games.jsonl"
    lines = [{"prompt": f"{i}+1=", "answer": str(i + 1), "role": "first" if i % 2 else "second"} for i in range(9)]
    path.write_text("\n".join(map(json.dumps, lines * 4)))
    return (*RAE, "train.task=records", f"task.records.path='{path}'", "task.records.eval_share=0.3")


@pytest.mark.slow
def test_a_run_remembers_and_resumes_bit_for_bit(games, tmp_path, monkeypatch):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(load(None, games), whole)
    records = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert sum("advantage/baseline" in record for record in records) == 4

    save = checkpoint.Checkpoints.save

    def stop(self, number, *rest):
        path = save(self, number, *rest)
        if number == 2:
            raise KeyboardInterrupt
        return path

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            train(load(None, games), halves)
    train(load(None, games), halves)
    assert (halves / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_a_task_without_roles_has_one(tmp_path):
    config = load(None, [*RAE, "train.steps=1"])
    assert np.isfinite(train(config, tmp_path / "first")["advantage/baseline"])
    written = load(tmp_path / "first" / "config.gin", ())
    assert np.isfinite(train(written, tmp_path / "again")["advantage/baseline"]), "with all defaults written out"


def test_a_column_that_is_asked_for_must_be_there(games, tmp_path):
    with pytest.raises(ConfigError, match=r"train.role_column = 'roll' .* task records. Did you mean 'role'\?"):
        train(load(None, [*games, "train.role_column=roll"]), tmp_path)
