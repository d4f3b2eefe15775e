"""Every component against a case computed by hand."""

import math

import dovetail
import jax.numpy as jnp
import pytest

OWN = "dovetail-acme/{}".format


def test_soft_clip():
    loss = dovetail.get("policy_loss", OWN("soft_clip"))
    old, new = jnp.log(jnp.array([[0.25, 0.5, 0.5]])), jnp.log(jnp.array([[0.5, 0.5, 0.1]]))
    mask = jnp.array([[True, True, False]])
    found = loss(logps=new, old_logps=old, advantages=jnp.array([[2.0, 1.0, 7.0]]), mask=mask, temperature=0.5)
    assert jnp.allclose(found, jnp.array([[-4.0 * math.tanh(0.5 * math.log(2.0)), 0.0, 0.0]]), atol=1e-6)


def test_top_probability():
    field = dovetail.get("field", OWN("top_probability"))
    assert jnp.allclose(field(logits=jnp.log(jnp.array([[0.2, 0.7, 0.1]])) + 3.0), jnp.array([0.7]))


def test_hesitant_reads_the_field_of_this_package():
    estimate = dovetail.get("advantage", OWN("hesitant"))
    assert "old_top_probability" in estimate.reads
    scores, groups = jnp.array([1.0, 7.0, 4.0, 3.0]), jnp.array([0, 9, 0, 0])
    mask = jnp.array([[True, False], [True, True], [True, True], [False, False]])
    sure = jnp.array([[1.0, jnp.nan], [0.5, 0.5], [0.5, 0.0], [0.5, 0.5]])
    found = estimate(scores=scores, group_ids=groups, old_top_probability=sure, mask=mask, strength=0.5)
    # group 0 has 1 and 4, as its third row is empty; group 9 has one completion
    assert jnp.allclose(found, jnp.array([[-1.5 * 0.5, 0.0], [0.0, 0.0], [1.5 * 0.75, 1.5], [0.0, 0.0]]))


def test_near_miss():
    reward = dovetail.get("reward", OWN("near_miss"))
    found = reward(completions=["<answer>7</answer>", "3, no: 5", "seven", "7"], answer=["7", 7, 7, None], width=2.0)
    assert found[:3] == pytest.approx([1.0, math.exp(-1.0), 0.0])
    assert found[3] is None


def test_sequences_asks_in_eval_what_it_never_trains_on():
    task = dovetail.get("task", OWN("sequences")).bind(size=300)
    prompts = {split: {e["prompt"] for e in task.examples(split)} for split in ("train", "eval", "sft")}
    assert not prompts["eval"] & (prompts["train"] | prompts["sft"])
    first, second, third = map(int, task.examples("eval")[3]["prompt"].split())
    assert int(task.examples("eval")[3]["answer"]) == third + second - first


@pytest.mark.filterwarnings("ignore")  # wandb's own
def test_the_sink_writes_files_without_a_network(tmp_path):
    wandb = pytest.importorskip("wandb")
    sink = dovetail.get("sink", OWN("team_wandb")).bind(project="test").open(tmp_path, total_steps=2, start_step=0)
    sink.write(1, {"sft/loss": 2.0})
    sink.write(1, {"reward/mean": 0.5})
    sink.close()
    wandb.teardown()  # its own process writes the file, and has then ended
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"reward/mean" in file.read_bytes()


def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(dovetail.DovetailError, match=r"pip install 'dovetail-acme\[wandb\]'"):
        dovetail.get("sink", OWN("team_wandb")).bind().open(tmp_path, total_steps=2, start_step=0)
