"""The components that the package registers, and the low cost of listing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dovetail
from dovetail.config import load

ALIASES = {
    "policy_loss": {"gspo_token": "gspo", "geo_mean": "gmpo", "gpg": "reinforce"},
    "loss_agg": {
        "seq_mean_token_mean": "sequence_mean_token_mean",
        "seq-mean-token-sum": "sequence_mean_token_sum",
        "sequence-mean-token-scale": "sequence_mean_token_scale",
    },
    "loss_mask": {
        "overlong_filtering": "drop_truncated",
        "mask_truncated_completions": "drop_truncated",
    },
    "kl": {
        "kl": "k1",
        "kl_plus": "k1_plus",
        "mse": "k2",
        "mse_kl": "k2",
        "k2_plus": "k2",
        "low_var_kl": "k3",
        "low_var_kl_plus": "k3_plus",
    },
}


@pytest.mark.parametrize(("kind", "alias"), [(kind, alias) for kind, aliases in ALIASES.items() for alias in aliases])
def test_peers_spellings_are_aliases(kind: str, alias: str) -> None:
    assert dovetail.get(kind, alias) is dovetail.get(kind, ALIASES[kind][alias])


@pytest.mark.parametrize(
    "kind", ["policy_loss", "value_loss", "loss_agg", "kl", "kl_controller", "entropy_controller", "loss_mask", "field"]
)
def test_every_component_loads_and_says_what_it_is(kind: str) -> None:
    for name in dovetail.names(kind):
        component = dovetail.get(kind, name)
        assert component.summary.endswith("."), component.label


@pytest.mark.parametrize(
    "binding",
    [
        "train.loss_agg = 'seq-mean-token-sum-norm'",
        "train.loss_agg = 'sequence_mean_token_sum_norm'",
        "train.loss_agg = 'token_sum'\nloss_agg.seq_mean_token_sum_norm.normalizer = 5.0",
        "train.loss_agg = 'token_sum'\nloss_agg.sequence_mean_token_sum_norm.normalizer = 5.0",
    ],
)
def test_a_spelling_that_means_two_things_is_refused_with_both(binding: str, tmp_path: Path) -> None:
    file = tmp_path / "run.gin"
    file.write_text(binding + "\n")
    with pytest.raises(dovetail.DovetailError) as caught:
        load(file)
    for words in ("verl", "'sequence_mean_token_scale'", "tunix", "'token_sum'", "'sequence_mean_token_sum'"):
        assert words in str(caught.value), words


@pytest.mark.parametrize("kind", sorted(dovetail.registry.current().kinds))
def test_seq_and_sequence_are_one_word(kind: str) -> None:
    """Writing one for the other gives the same component or an error, but never another algorithm."""
    words = {
        word: component.name
        for component in dovetail.registry.current().components(kind)
        for word in (component.name, *component.aliases)
    }
    for word, name in words.items():
        assert words.get(word.replace("sequence_", "seq_"), name) == name, word


def test_reads_and_params_are_the_signature() -> None:
    loss = dovetail.get("policy_loss", "gspo")
    assert loss.reads == ("logps", "old_logps", "advantages", "mask")
    assert dict(loss.params) == {"epsilon_low": 3e-4, "epsilon_high": 4e-4}
    assert dovetail.get("policy_loss", "reinforce").reads == ("logps", "advantages", "mask")
    assert dovetail.get("kl", "k3").reads == ("logps", "ref_logps")
    assert dovetail.get("value_loss", "ppo").reads == ("values", "old_values", "returns", "mask")


def test_announcing_the_components_imports_no_jax() -> None:
    code = "import sys, dovetail_loss; dovetail_loss.dovetail_components(lambda *a, **k: None); print('jax' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
