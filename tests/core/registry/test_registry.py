"""Names, aliases, owners."""

import pytest

from dovetail.errors import PluginError, UnknownNameError
from dovetail.kinds import Kind
from dovetail.registry import Origin, Registry, Section

OURS = Origin("dovetail", "0.1", "ours")
ACME = Origin("acme-rl", "1.0", "acme")
VERIFIER = Kind(name="verifier", summary="completion -> proof")


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind(Kind(name="loss_agg", summary="weights"), OURS)
    made.add_kind(Kind(name="policy_loss", summary="losses"), OURS)
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
    with pytest.raises(PluginError, match="is not a Python identifier"):
        registry.add("policy_loss", name, "acme:x", origin=ACME)


def test_a_refused_registration_leaves_nothing_behind(registry):
    with pytest.raises(PluginError):
        registry.add("policy_loss", "fresh", "ours:x", origin=OURS, aliases=("grpo",))
    assert not registry.has("policy_loss", "fresh")


def test_a_target_is_module_and_attribute(registry):
    with pytest.raises(PluginError, match="write 'package.module:attribute'"):
        registry.add("policy_loss", "x", "acme.x", origin=ACME)


def test_a_third_party_opens_a_kind_once(registry):
    registry.add_kind(VERIFIER, ACME)
    registry.add("verifier", "lean", "acme:lean", origin=ACME)
    assert registry.names("verifier") == ("lean",)
    assert registry.kinds["verifier"].origin == ACME
    with pytest.raises(PluginError, match="kind 'verifier' of dovetail exists already: acme-rl opened it"):
        registry.add_kind(VERIFIER, OURS)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "2fast"}, "kind of acme-rl: '2fast' is not a Python identifier"),
        ({"stage": "corection"}, "kind 'doubter': unknown stage 'corection'. Did you mean 'corrections'? Stages: adv"),
        (
            {"writes": ("doubt",), "stage": "corrections", "moved": {"train.kl_in": {"reward": "rewards"}}},
            "kind 'doubter': unknown stage 'rewards'. Did you mean 'token_rewards'?",
        ),
        (
            {"stage": "corrections"},
            "kind 'doubter' is called at stage 'corrections' and writes no field, so calling it would change nothing; say",
        ),
        ({"stage": "corrections", "writes": ("doubt")}, "'doubter': writes='doubt' is not a tuple of names of fields"),
        ({"stage": "loss_terms", "writes": ("doubt",)}, "what is called at stage 'loss_terms' is a term, and nothing"),
        ({"stage": "corrections", "term": True}, "what is called at stage 'loss_terms' is a term, and nothing else is"),
        (
            {"writes": ("doubt",)},
            "kind 'doubter' writes doubt, and has no stage at which it is called; stages: advanta",
        ),
        (
            {"stage": "corrections", "writes": ("doubt",)},
            "kind 'doubter' has the stage 'corrections', at which nothing but what reads fields is called; say reads='fie",
        ),
        ({"stage": "after_step"}, "kind 'doubter' has the stage 'after_step', at which nothing but what reads fields"),
        ({"stage": "scored", "reads": "columns"}, "kind 'doubter' has the stage 'scored', at which nothing but what"),
        (
            {"stage": "scored", "reads": "fields"},
            "is called at stage 'scored' only to write fields; say writes=('FIELD'",
        ),
        (
            {"stage": "loss_terms", "reads": "fields", "term": True, "coefficient": "acme.weight"},
            "kind 'doubter': no controller knows acme.weight; say parameters={'coef': 1.0} in place of coefficient",
        ),
        (
            {"setting": "train.verifier"},
            "kind 'doubter' of acme-rl is chosen by 'train.verifier', which chooses the kind 'verifier' of dovetail; say"
            " setting='train.OTHER'",
        ),
    ],
)
def test_a_kind_that_cannot_be_carried_out_is_refused(registry, record, message):
    registry.add_kind(Kind(name="verifier", summary="", stage="corrections", reads="fields", writes=("proof",)), OURS)
    with pytest.raises(PluginError) as caught:
        registry.add_kind(Kind(**{"name": "doubter", "summary": "mask -> doubt"} | record), ACME)
    assert message in str(caught.value)
    assert "doubter" not in registry.kinds


def test_what_decides_over_groups_need_not_write_a_field(registry):
    registry.add_kind(Kind(name="sieve", summary="scores -> kept", stage="filtered", reads="fields"), ACME)
    assert registry.kinds["sieve"].path == "train.sieve"
    assert registry.kinds["policy_loss"].path is None


def test_what_a_plugin_calls_itself_needs_no_stage(registry):
    registry.add_kind(Kind(name="launcher", summary="servers -> addresses", setting="train.launcher"), ACME)
    assert registry.kinds["launcher"].path == "train.launcher"


def test_a_section_is_opened_once(registry):
    registry.add_section(Section(name="acme", target="acme:Acme", origin=ACME))
    with pytest.raises(PluginError, match="section 'acme' of dovetail exists already as a section: acme-rl opened it"):
        registry.add_section(Section(name="acme", target="ours:Ours", origin=OURS))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a b", "section of acme-rl: 'a b' is not a Python identifier"),
        ("policy_loss", "section 'policy_loss' of acme-rl has the name of a kind"),
        ("roles", "section 'roles' of acme-rl has the name of a section that the engine makes of model roles"),
        ("reference", "section 'reference' of acme-rl has the name of a section that the engine makes of model roles"),
    ],
)
def test_a_section_has_a_name_of_its_own(registry, name, message):
    with pytest.raises(PluginError, match=message):
        registry.add_section(Section(name=name, target="acme:Acme", origin=ACME))
    assert name not in registry.sections


def test_a_kind_is_not_called_as_a_section_is(registry):
    registry.add_section(Section(name="verifier", target="ours:Ours", origin=OURS))
    with pytest.raises(PluginError, match="kind 'verifier' of acme-rl exists already as a section: dovetail opened it"):
        registry.add_kind(VERIFIER, ACME)


def test_removing_a_distribution_forgets_all_of_it(registry):
    registry.add("policy_loss", "gspo", "acme:gspo", origin=ACME)
    registry.add_kind(VERIFIER, ACME)
    registry.add_section(Section(name="acme", target="acme:Acme", origin=ACME))
    registry.remove("acme-rl")
    assert registry.get("policy_loss", "gspo").origin == OURS
    assert "verifier" not in registry.kinds
    assert registry.sections == {}


def test_a_kind_of_which_others_have_components_stays_for_them(registry):
    registry.add_kind(VERIFIER, ACME)
    registry.add("verifier", "lean", "ours:lean", origin=OURS)
    registry.remove("acme-rl")
    assert registry.names("verifier") == ("lean",)
