"""Names, aliases, owners."""

import pytest

from dovetail.errors import PluginError, UnknownNameError
from dovetail.registry import Origin, Registry

OURS = Origin("dovetail", "0.1", "ours")
ACME = Origin("acme-rl", "1.0", "acme")


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind("loss_agg", "weights", OURS)
    made.add_kind("policy_loss", "losses", OURS)
    made.add("policy_loss", "grpo", "ours:grpo", origin=OURS)
    made.add("policy_loss", "gspo", "ours:gspo", origin=OURS, aliases=("sequence-ratio",))
    made.add("loss_agg", "token_mean", "ours:token_mean", origin=OURS)
    return made


def test_a_hyphen_is_an_underscore(registry):
    assert registry.get("loss_agg", "token-mean").name == "token_mean"


def test_an_alias_reaches_the_component_and_is_not_listed(registry):
    assert registry.get("policy_loss", "sequence_ratio").name == "gspo"
    assert registry.names("policy_loss") == ("grpo", "gspo")


def test_a_typo_gets_the_nearest_name_and_the_list(registry):
    with pytest.raises(UnknownNameError) as caught:
        registry.get("policy_loss", "gpso")
    assert str(caught.value) == "unknown policy_loss 'gpso'. Did you mean 'gspo'? Known: grpo, gspo."


def test_a_name_of_another_kind_is_said_to_be_one(registry):
    with pytest.raises(UnknownNameError, match="It is a loss_agg"):
        registry.get("policy_loss", "token_mean")


def test_an_unknown_kind_is_refused_both_ways(registry):
    with pytest.raises(UnknownNameError, match="unknown kind 'policy_los'. Did you mean 'policy_loss'"):
        registry.get("policy_los", "grpo")
    with pytest.raises(PluginError, match="'x' of acme-rl has the unknown kind 'los_agg'. Did you mean 'loss_agg'"):
        registry.add("los_agg", "x", "acme:x", origin=ACME)


def test_a_name_with_two_owners_must_say_whose(registry):
    registry.add("policy_loss", "gspo", "acme:gspo", origin=ACME)
    with pytest.raises(UnknownNameError) as caught:
        registry.get("policy_loss", "gspo")
    assert "dovetail 0.1 (ours) and acme-rl 1.0 (acme)" in str(caught.value)
    assert "'dovetail/gspo' or 'acme-rl/gspo'" in str(caught.value)
    assert registry.get("policy_loss", "acme-rl/gspo").origin == ACME
    assert registry.get("policy_loss", "Acme_RL/gspo").origin == ACME
    assert registry.get("policy_loss", "dovetail/gspo").origin == OURS


def test_one_distribution_cannot_register_a_name_twice(registry):
    with pytest.raises(PluginError, match="policy_loss 'gspo' is registered twice by dovetail"):
        registry.add("policy_loss", "gspo", "ours:other", origin=OURS)
    with pytest.raises(PluginError, match="policy_loss 'grpo' is registered twice by dovetail"):
        registry.add("policy_loss", "newer", "ours:newer", origin=OURS, aliases=("grpo",))


@pytest.mark.parametrize("name", ["2fast", "a b", "class", "a.b"])
def test_a_name_is_an_identifier(registry, name):
    with pytest.raises(PluginError, match="is no Python identifier"):
        registry.add("policy_loss", name, "acme:x", origin=ACME)


def test_a_refused_registration_leaves_nothing_behind(registry):
    with pytest.raises(PluginError):
        registry.add("policy_loss", "fresh", "ours:x", origin=OURS, aliases=("grpo",))
    assert not registry.has("policy_loss", "fresh")


def test_a_target_is_module_and_attribute(registry):
    with pytest.raises(PluginError, match="write 'package.module:attribute'"):
        registry.add("policy_loss", "x", "acme.x", origin=ACME)


def test_a_third_party_opens_a_kind_once(registry):
    registry.add_kind("verifier", "completion -> proof", ACME)
    registry.add("verifier", "lean", "acme:lean", origin=ACME)
    assert registry.names("verifier") == ("lean",)
    with pytest.raises(PluginError, match="kind 'verifier' of dovetail exists already: acme-rl opened it"):
        registry.add_kind("verifier", "", OURS)


def test_removing_a_distribution_forgets_all_of_it(registry):
    registry.add("policy_loss", "gspo", "acme:gspo", origin=ACME)
    registry.remove("acme-rl")
    assert registry.get("policy_loss", "gspo").origin == OURS
