"""`dovetail describe` and `search`: what a word of a config means."""

from __future__ import annotations

import pytest

from dovetail.errors import UnknownNameError
from dovetail.registry import current
from dovetail_kit.lookup import _entries, found, hits
from dovetail_kit.peers import PEERS
from dovetail_kit.settings import sections, settings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.kl_coef",), "train.kl_coef = 0.0  (float >= 0)\n\ncoefficient of the KL penalty"),
        (("train", "kl_coef"), "train.kl_coef = 0.0"),
        (("sampling",), "sampling.top_p = None"),
        (("train.lr_schedule",), "one of `dovetail names lr_schedule`: constant, "),
        (("lr_schedule",), "chosen by train.lr_schedule or critic.lr_schedule or sft.lr_schedule"),
        (
            ("advantage",),
            "protocol dovetail.protocols.StatefulAdvantage, of a class that reads 'state':\n\n    Kind `adv",
        ),
        (("advantage",), "    init(roles: int) -> Any\n        Return the initial state, a pytree of arrays"),
        (("advantage",), "    update(*fields: Any) -> Any\n        Return the next state"),
        (("kl_controller",), "    update(state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict["),
        (
            ("entropy_controller",),
            "    update(state: dict[str, jax.Array], entropy: jax.Array, samples: jax.Array) -> ",
        ),
        (("model",), "dovetail.protocols.LanguageModel:\n\n    A decoder"),
        (("model",), "    init_cache(batch: int, length: int) -> Any\n"),
        (
            ("tool",),
            "    __call__(*arguments: Any, state: Any = None) -> str | float | list[Any] | Mapping[str, Any] | Re",
        ),
        (("tool",), "dovetail.protocols.Result:\n"),
        (("sampler",), "`dovetail_lab.sweep.distributions.Distribution`"),
        (("optimizer",), "    __call__(learning_rate: Float[Array, '']) -> optax.GradientTransformation\n"),
        (("lr_schedule",), "    __call__(step: Int[Array, ''], total_steps: Int[Array, '']) -> Float[Array, '']\n"),
        (("early_stopping",), "a function that is called as dovetail_lab.kinds.EarlyStopping is, and keyword-only"),
        (
            ("early_stopping",),
            "    __call__(curve: list[tuple[int, float]], others: list[list[tuple[int, float]]], total_",
        ),
        (("loss_agg",), "    sums_to_one             the weights add up to 1 if there is any policy token\n"),
        (("loss_agg",), "as any kind may: settings, expected_failures, "),
        (
            ("loss_mask",),
            "metrics may follow its value, `value, {'name': array}`: for each token, for each completion, or a single number\n",
        ),
        (
            ("reward",),
            "metrics may follow its list, `numbers, {'name': [...]}`: one for each completion, NaN where there is none\n",
        ),
        (("architecture",), "what it may claim, with @dovetail.declares, as any kind may: settings, "),
        (("sampler",), "dovetail_lab.kinds.Study:\n\n    "),
        (("sampler",), "    ask() -> Proposal | None\n"),
        (("rollout",), "dovetail.protocols.RolloutEngine:"),
        (("policy_loss",), "a function: its positional parameters name fields of the batch"),
        (("gspo",), "policy_loss.gspo\n\nGroup sequence policy optimisation"),
        (("policy_loss", "gspo"), "origin:  dovetail"),
        (("policy_loss.gspo",), "origin:  dovetail"),
        (("kl.k3",), "claims:  non_negative, unbiased_value"),
        (("rollout.vllm",), "claims:  vocabulary_logps = False, versions"),
        (("policy_loss.gspo.epsilon_low",), "policy_loss.gspo.epsilon_low = 0.0003  (float >= 0)\n\nε_low"),
    ],
)
def test_every_word_of_a_config_can_be_looked_up(words, said):
    assert said in found(current(), *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.stpes",), "no setting 'train.stpes'. Did you mean 'steps'? `dovetail search stpes`"),
        (("gpso",), "no setting, section, kind or component 'gpso'. Did you mean 'gspo'?"),
        (("trian", "lr"), "no section or kind 'trian'. Did you mean 'train'?"),
        (("policy_loss.gspo.epsilonlow",), "has no parameter 'epsilonlow'. Did you mean 'epsilon_low'?"),
    ],
)
def test_a_word_that_means_nothing(words, said):
    with pytest.raises(UnknownNameError) as caught:
        found(current(), *words)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("learning_rate", "train.lr "),
        ("num_generations", "train.group_size "),
        ("gradient_accumulation_steps", "train.micro_batch_size "),
        ("gradient checkpointing", "model.pretrained.remat "),
        ("save_steps", "run.checkpoint_every "),
        ("report_to", "run.sinks "),
        ("dual clip", "policy_loss.ppo.clip_c "),
        ("max_completion_length", "sampling.max_tokens "),
        ("DPOConfig", "rollout.recorded.columns "),
        ("direct preference optimization", "loss_term.dpo "),
    ],
)
def test_other_libraries_words_are_found(words, first):
    assert hits(current(), words.split())[0].startswith(first)


def test_words_in_other_alphabets_are_words_and_signs_are_none():
    (name, *_), *_ = (line.split() for line in hits(current(), ["λ"]))
    assert "lam" in name
    assert hits(current(), ["???", "_"]) == []
    with pytest.raises(UnknownNameError) as refused:
        found(current(), "???")
    assert "dovetail search" not in str(refused.value)


def test_nothing_is_found_if_a_word_is_missing():
    assert hits(current(), ["learning", "xylophone"]) == []


def test_every_setting_says_what_it_is_for():
    registry = current()
    every = [each for section in sections(registry) for each in settings(registry, section)]
    assert [each.path for each in every if not each.meaning] == []
    paths = {each.path for each in every}
    assert {path for path in PEERS if path.split(".")[0] in sections(registry)} <= paths


def test_no_setting_or_parameter_is_without_a_description():
    """Also not those that a class inherits, or that the kind adds."""
    assert [name for name, _, told in _entries(current()) if not told] == []
    (line,) = hits(current(), ["agent_loop.react.max_turns"])[:1]
    assert line.endswith("maximum number of turns")
    assert "what the result is multiplied by" in found(current(), "process_reward.equations.coef")
