"""Every shipped recipe trains the tiny model for two steps; so do random mixtures of components."""

import random

import numpy as np
import pytest
from tests.core.train.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.shipped import find, folder
from dovetail.train.loop import train

BRIEF = ("sft.steps=0", "train.steps=2", "eval.every=2", "critic.warmup_steps=1", "model.decoder.layers=1")
RECIPES = sorted(path.stem for path in folder().glob("*.gin") if path.stem != "gsm8k_scratch")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains(recipe, tmp_path):
    config = load(find(recipe), [*TINY, *BRIEF])
    small = () if config.train.mini_batch_size is None else ("train.mini_batch_size=8",)
    last = train(load(find(recipe), [*TINY, *BRIEF, *small]), tmp_path)
    assert np.isfinite(last["policy_loss/loss"])
    assert np.isfinite(last["optimizer/grad_norm"])


NEEDED = {
    "sequence_mean_token_scale": "loss_agg.sequence_mean_token_scale.normalizer=6.0",
}
ROLES = ("advantage", "policy_loss", "loss_agg", "kl")


def mixtures(count: int) -> list[dict[str, str]]:
    chance = random.Random(0)
    return [
        {
            **{role: chance.choice(dovetail.names(role)) for role in ROLES},
            "kl_in": chance.choice(["loss", "reward"]),
            "epochs": chance.choice(["1", "2"]),
        }
        for _ in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mixture", mixtures(12), ids=lambda m: "-".join(m.values()))
def test_components_mix_freely(mixture, tmp_path):
    chosen = [f"train.{role}={name}" for role, name in mixture.items()]
    needed = [NEEDED[name] for name in mixture.values() if name in NEEDED]
    reads = {read for role in ROLES for read in dovetail.get(role, mixture[role]).reads}
    needed += ["train.correction=tis_token"] if "is_weights" in reads else []
    options = (
        "train.kl_coef=0.05",
        "eval.examples=1",
        "train.steps=1",
        "train.mini_batch_size=8",
        "critic.warmup_steps=0",
    )
    last = train(load(None, [*TINY, *BRIEF, *options, *chosen, *needed]), tmp_path)
    assert np.isfinite(last["policy_loss/loss"])
    assert np.isfinite(last["optimizer/grad_norm"])
