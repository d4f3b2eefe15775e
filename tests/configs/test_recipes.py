"""Every shipped recipe trains for a few steps of its own sizes.

Recipes based on the quickstart get a smaller decoder, and those of published models a tiny random checkpoint of the same
architecture.
"""

import json

import numpy as np
import pytest
from tests.core.training.test_role_models import exported
from tests.core.training.tiny import TINY
from tests.model.gguf_files import tokenizer_metadata, write_folder
from tests.sampled import sampled
from tests.tiny_folder import GEMMA2, LLAMA, QWEN2, write

from dovetail.config import load
from dovetail.run.summary import series
from dovetail.shipped import find, folder
from dovetail.training.loop import train
from dovetail_memory.cost import estimate

BRIEF = ("sft.steps=0", "train.steps=2", "eval.every=2", "critic.warmup_steps=1", "model.decoder.layers=1")
PUBLISHED = {"gsm8k_gemma2_2b": GEMMA2, "gsm8k_qwen2_5_0_5b": QWEN2}
TAUGHT = ("distillation",)
"""Recipes with a teacher, which is another run's model."""
EPISODES = ("calculation", "faulty_tool", "frozen_lake", "guess_number", "local_search")
"""Recipes of several turns, which have their own tasks."""
SMOLLM2 = ("smollm2_arithmetic", "smollm2_gsm8k")
APART = {"gsm8k_scratch", *SMOLLM2, *PUBLISHED, *TAUGHT, *EPISODES}
RECIPES = sorted(path.stem for path in folder().glob("*.gin") if path.stem not in APART)
SIZES = ("train.prompts", "train.group_size", "train.epochs", "train.mini_batch_size", "train.micro_batch_size")
SIZES += ("train.max_prompt_tokens", "sampling.max_tokens")
"""The settings that make up a step; a test that sets one of them tests another recipe."""
SMALLER = [override for override in TINY if not override.startswith(SIZES)]
SMALL = ("mesh.tp=1", "train.steps=2", "eval.examples=2", "eval.batch_size=2", "eval.every=2", "run.sinks=()")
SMALL += ("sampling.max_tokens=32",)
"""For a longer completion a program is compiled for each size of the cache."""


def gsm8k(data):
    """Write a few problems into a folder, and return the setting that names it."""
    data.mkdir()
    for name in ("train", "test"):
        rows = [{"question": f"What is {i} + {i}?", "answer": f"Twice {i}.\n#### {2 * i}"} for i in range(4)]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"task.gsm8k.path={data}"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains(recipe, tmp_path):
    last = train(load(find(recipe), [*SMALLER, *BRIEF]), tmp_path)
    assert np.isfinite(last["policy_loss/loss"])
    assert np.isfinite(last["optimizer/grad_norm"])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TAUGHT)
def test_a_recipe_with_a_teacher_trains(recipe, tmp_path):
    teacher = exported(tmp_path / "teacher", of=find("quickstart"))
    last = train(load(find(recipe), [*SMALLER, *BRIEF, f"teacher/model.pretrained.path={str(teacher)!r}"]), tmp_path)
    assert last["loss_term/gkd/mean"] > 0
    assert np.isfinite(last["optimizer/grad_norm"])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sampled(EPISODES, every=len(EPISODES), slow=len(EPISODES)))
def test_a_recipe_of_episodes_trains(recipe, tmp_path):
    own = ("train.task", "train.rewards", "eval.success", "tokenizer")
    small = [override for override in SMALLER if not override.startswith(own)]
    last = train(load(find(recipe), [*small, *BRIEF, "sft.steps=100", "sft.lr=2e-2", "sft.batch_size=16"]), tmp_path)
    assert np.isfinite(last["optimizer/grad_norm"])
    turns = [value for _, value in series(tmp_path, "episode/turns_mean")]
    assert max(turns) > 1, "the warm start has shown how a turn ends"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sampled(sorted(PUBLISHED), every=len(PUBLISHED), slow=2))
def test_a_recipe_of_a_published_model_trains_a_tiny_one(recipe, tmp_path):
    model = tmp_path / "model"
    write(model, PUBLISHED[recipe])
    paths = [f"model.pretrained.path={model}", f"tokenizer.huggingface.path={model}"]
    last = train(load(find(recipe), [*paths, gsm8k(tmp_path / "gsm8k"), *SMALL]), tmp_path / "run")
    assert [step for step, _ in series(tmp_path / "run", "policy_loss/loss")] == [1, 2]
    assert np.isfinite(last["optimizer/grad_norm"])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SMOLLM2)
def test_a_recipe_of_smollm2_trains_a_tiny_llama_from_a_gguf_file(recipe, tmp_path):
    write(tmp_path / "tiny", LLAMA)
    file = write_folder(tmp_path / "tiny.gguf", tmp_path / "tiny", **tokenizer_metadata(tmp_path / "tiny"))
    paths = [f"{key}.path={str(file)!r}" for key in ("model.pretrained", "tokenizer.huggingface")]
    data = [gsm8k(tmp_path / "gsm8k")] if recipe == "smollm2_gsm8k" else []
    last = train(load(find(recipe), [*paths, *SMALL, *data]), tmp_path / "run")
    assert [step for step, _ in series(tmp_path / "run", "policy_loss/loss")] == [1, 2]
    assert np.isfinite(last["optimizer/grad_norm"])


@pytest.mark.parametrize(
    ("recipe", "parameters", "trained"),
    [
        ("gsm8k_gemma2_2b", 2.614e9, 0.083e9),
        ("gsm8k_qwen2_5_0_5b", 0.494e9, 0.494e9),
    ],
)
@pytest.mark.slow
def test_a_published_model_is_planned_without_weights(recipe, parameters, trained):
    """Sizes are from the model cards; the adapter's is by hand: rank x (inputs + outputs) of seven matrices per layer."""
    cost = estimate(load(find(recipe), ["train.micro_batch_size=1"]))  # tests of `fit` let it choose
    adapter = trained if trained < parameters else 0
    assert cost.parameters - adapter == pytest.approx(parameters, rel=2e-3)
    assert cost.trained == pytest.approx(trained, rel=2e-3)
    assert {"parameters", "optimizer"} <= cost.memory.keys()
    assert {"update of the policy", "sampling"} <= cost.moments.keys()
    assert ("reference" in cost.memory) is (recipe == "gsm8k_gemma2_2b"), "the other has no KL term"
    assert cost.flops["update"] > 2 * cost.flops["rollout"]
