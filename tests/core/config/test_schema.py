"""The schema of a configuration follows from the open sections and kinds, a plugin's as well as the built-in ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
from annotated_types import Ge

from dovetail.config import Config, config_id, dump, load, versions
from dovetail.config.schema import schema
from dovetail.config.settings import chosen
from dovetail.errors import PluginError
from dovetail.kinds import Kind
from dovetail.ranges import in_range
from dovetail.registry import Origin, Registry, Section
from dovetail_kit.rendered import render_show

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]
ACME = Origin("acme-rl", "2.0", "tests")


@attrs.frozen(kw_only=True)
class Acme:
    """A plugin's settings."""

    rounds: Annotated[int, Ge(1)] = attrs.field(default=3, validator=in_range)
    judge: str | None = chosen("reward", None)


def lean(mask: Any, *, depth: int = 2) -> Any:
    return mask, depth


def open_section(registry: Registry, purpose: Any = "what", target: Any = Acme) -> None:
    registry.add_section(Section(name="acme", target=target, purpose=purpose, origin=ACME))


def open_kind(registry: Registry, **options: Any) -> None:
    """Open the kind `verifier`, called before corrections are over, with a component of it."""
    defaults = {"stage": "corrections", "writes": ("doubt",), "reads": "fields"}
    registry.add_kind(Kind(name="verifier", summary="mask -> doubt", **(defaults | options)), ACME)
    registry.add("verifier", "lean", lean, origin=ACME)


def test_slots_come_from_the_sections_and_from_the_records_of_the_kinds(registry: Registry):
    found = schema(registry)
    assert found.slots["train.policy_loss"].kind == "policy_loss"
    assert found.slots["train.rewards"].many
    assert not found.slots["train.group_filter"].many
    assert found.slots["critic.optimizer"].scope == "critic"
    assert set(found.scopes) == {"critic", "sft", "eval", "reference"}
    assert [slot.path for slot in found.slots_of("optimizer")] == [
        "train.optimizer",
        "critic.optimizer",
        "sft.optimizer",
    ]
    assert [slot.path for slot in found.slots_of("optimizer", "sft")] == ["sft.optimizer"]


def test_every_kind_that_is_called_is_chosen_somewhere(registry: Registry):
    found = schema(registry)
    called = [kind.name for kind in registry.kinds.values() if kind.stage]
    assert [name for name in called if not found.slots_of(name)] == []


# --- sections


def test_a_plugins_section_is_read_checked_dumped_and_hashed(
    registry: Registry, load_text: LoadText, complaints: Complaints
):
    open_section(registry)
    config = load_text("acme.rounds = 5\nacme.judge = assorted\nreward.assorted.number = 2\n")
    assert config.sections["acme"] == Acme(rounds=5, judge="assorted")
    assert config.setting("acme.rounds") == 5
    assert config.choice("acme.judge").params["number"] == 2.0
    assert "acme.rounds = 5" in dump(config).splitlines()
    assert load_text(dump(config)) == config
    assert config_id(config) != config_id(load_text("acme.judge = assorted\nreward.assorted.number = 2\n"))
    assert complaints("acme.rounds = 0") == ["x.gin:1: acme.rounds: expected int >= 1, got 0."]
    assert complaints("acme.round = 2") == ["x.gin:1: acme has no setting 'round'. Did you mean 'rounds'?"]


def test_the_owner_of_a_section_that_says_what_is_computed_is_part_of_the_id(registry: Registry, load_text: LoadText):
    open_section(registry)
    assert versions(load_text(""))["acme-rl"] == "2.0"


def test_a_section_about_where_a_run_happens_is_dumped_and_not_hashed(registry: Registry, load_text: LoadText):
    before = config_id(load_text(""))
    open_section(registry, "where")
    config = load_text("acme.rounds = 5\nacme.judge = assorted\n")
    assert "acme.rounds = 5" in dump(config).splitlines()
    assert config_id(config) == before
    assert "acme-rl" not in versions(config)


def test_a_section_of_an_experiment_may_stand_in_a_file_and_is_in_no_runs_config(
    registry: Registry, load_text: LoadText, complaints: Complaints
):
    open_section(registry, "experiment")
    config = load_text("acme.rounds = 5\nacme.judge = assorted\n")
    assert "acme" not in config.sections
    assert "acme.judge" not in config.choices
    assert "acme" not in dump(config)
    assert config == load_text("")
    assert complaints("acme.rounds = 0") == ["x.gin:1: acme.rounds: expected int >= 1, got 0."]


def test_what_the_validator_of_a_section_refuses_has_its_place(registry: Registry, complaints: Complaints):
    @attrs.frozen(kw_only=True)
    class Checked:
        low: int = 1
        high: int = attrs.field(default=2)

        @high.validator
        def _above(self, attribute: object, value: int) -> None:
            if value <= self.low:
                raise ValueError(f"acme.high = {value} is not above acme.low = {self.low}")

    open_section(registry, target=Checked)
    (complaint,) = complaints("train.steps = 3\nacme.low = 5\n")
    assert complaint == "x.gin:2: acme.high = 2 is not above acme.low = 5"


def test_a_section_that_cannot_be_had_is_its_plugins_fault(registry: Registry, write: Callable[..., Any]):
    open_section(registry, target="no_such_package.settings:Acme")
    with pytest.raises(PluginError, match=r"section 'acme' of acme-rl 2.0 cannot be imported from 'no_such_package"):
        load(write(""), registry=registry)


def test_a_section_whose_module_exits_is_its_plugins_fault(
    registry: Registry, write: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "acme_leaves.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    open_section(registry, target="acme_leaves:Acme")
    with pytest.raises(PluginError, match=r"from 'acme_leaves:Acme': SystemExit: 0 \[.*acme_leaves.py:1\]"):
        load(write(""), registry=registry)


def test_a_section_is_an_attrs_class(registry: Registry, write: Callable[..., Any]):
    open_section(registry, target=dict)
    with pytest.raises(
        PluginError, match=r"section 'acme' of acme-rl 2.0 has the settings .*write a class with @attrs"
    ):
        load(write(""), registry=registry)


# --- kinds


def test_a_kind_with_a_stage_gets_a_setting(registry: Registry, load_text: LoadText, complaints: Complaints):
    open_kind(registry)
    assert load_text("").setting("train.verifier") is None
    config = load_text("train.verifier = lean\nverifier.lean.depth = 3\n")
    assert config.setting("train.verifier") == "acme-rl/lean"
    assert config.choice("train.verifier").params == {"depth": 3}
    assert load_text(dump(config)) == config
    assert versions(config)["acme-rl"] == "2.0"
    (line,) = complaints("train.verifier = laen")
    assert line.startswith("x.gin:1: unknown verifier 'laen'. Did you mean 'lean'?")
    (line,) = complaints("verifier = lean")
    assert line == "x.gin:1: macro 'verifier' is used nowhere. Did you mean train.verifier?"


def test_what_a_plugins_kind_writes_is_in_the_plan(registry: Registry, load_text: LoadText):
    def doubting(logps: Any, doubt: Any, mask: Any) -> Any:
        return logps, doubt, mask

    open_kind(registry)
    registry.add("policy_loss", "doubting", doubting, origin=ACME)
    plan = load_text("train.verifier = lean\ntrain.policy_loss = doubting\n").plan
    assert plan is not None
    assert [call.label for call in plan.at("corrections")] == ["train.verifier = acme-rl/lean"]
    (entry,) = [entry for entry in plan.entries if entry.field == "doubt"]
    assert (entry.stage, entry.provider) == ("corrections", "train.verifier = acme-rl/lean")


def test_a_kind_of_which_several_are_chosen_and_one_with_a_default(registry: Registry, load_text: LoadText):
    open_kind(registry, many=True, setting="train.verifiers", default=("lean",))
    assert load_text("").setting("train.verifiers") == ("acme-rl/lean",)
    (choice,) = load_text("").several("train.verifiers")
    assert choice.params == {"depth": 2}
    without = load_text("train.verifiers = []")
    assert without.several("train.verifiers") == ()
    assert load_text(dump(without)) == without
    assert config_id(without) != config_id(load_text(""))


def test_a_default_makes_the_setting_required(registry: Registry, load_text: LoadText, complaints: Complaints):
    open_kind(registry, default="lean")
    assert load_text("").choice("train.verifier").component.name == "lean"
    assert complaints("train.verifier = None") == ["x.gin:1: train.verifier: expected str, got None."]


def test_an_installed_kind_that_is_not_used_changes_neither_file_nor_id(registry: Registry, load_text: LoadText):
    before = load_text("train.policy_loss = gspo")
    text, id_ = dump(before), config_id(before)
    open_kind(registry)
    registry.add_kind(
        Kind(
            name="judge",
            summary="mask -> doubts",
            stage="corrections",
            many=True,
            reads="fields",
            default=(),
            writes=("doubts",),
        ),
        ACME,
    )
    after = load_text("train.policy_loss = gspo")
    assert dump(after) == text
    assert config_id(after) == id_
    assert "train.verifier = None" in render_show(after)


def test_a_setting_of_the_engines_own_is_taken(registry: Registry, write: Callable[..., Any]):
    open_kind(registry, setting="train.lr")
    with pytest.raises(PluginError) as caught:
        load(write(""), registry=registry)
    assert str(caught.value) == (
        "kind 'verifier' of acme-rl 2.0 (tests) is chosen by 'train.lr', which is a setting of the engine; say"
        " setting='train.OTHER'"
    )


def test_a_section_of_the_plugins_own_may_choose_its_kind(registry: Registry, load_text: LoadText):
    @attrs.frozen(kw_only=True)
    class Own:
        verifier: str | None = chosen("verifier", None)

    open_section(registry, target=Own)
    open_kind(registry, setting="acme.verifier")
    config = load_text("acme.verifier = lean")
    assert config.choice("acme.verifier").component.name == "lean"
    assert config.plan is not None
    assert [call.path for call in config.plan.at("corrections")] == ["acme.verifier"]


@pytest.mark.parametrize("setting", ["acme.verifier", "acme.judge", "verifier"])
def test_a_setting_elsewhere_has_to_be_there_and_to_choose_that_kind(
    registry: Registry, write: Callable[..., Any], setting: str
):
    open_section(registry)
    open_kind(registry, setting=setting)
    with pytest.raises(
        PluginError, match=f"kind 'verifier' of acme-rl 2.0 .tests. is chosen by '{setting}', which is not"
    ):
        load(write(""), registry=registry)


# --- parameters that all components of a kind have


def test_a_common_parameter_is_configured_as_any_other(load_text: LoadText, complaints: Complaints):
    text = "train.loss_terms = nll\nloss_term.nll.coef = 2\nloss_term.nll.margin = 0.5\n"
    config = load_text(text)
    (choice,) = config.several("train.loss_terms")
    assert choice.params == {"margin": 0.5, "coef": 2.0, "scheduled": False}
    assert "loss_term.nll.coef = 2.0" in dump(config).splitlines()
    assert load_text(dump(config)) == config
    assert config_id(config) != config_id(load_text(text, "loss_term.nll.coef=3"))
    assert complaints("loss_term.nll.coef = much") != []
    assert complaints("loss_term.nll.coeff = 1") == [
        "x.gin:1: loss_term.nll has no parameter 'coeff'. Did you mean 'coef'? Parameters: coef, margin, scheduled"
    ]


def test_a_component_does_not_see_the_parameters_of_its_kind(load_text: LoadText):
    (choice,) = load_text("train.loss_terms = nll\nloss_term.nll.coef = 2\n").several("train.loss_terms")
    assert choice.bind()("logps", "mask") == ("logps", "mask", 0.0)


def test_a_component_cannot_have_a_parameter_of_its_kind_for_its_own(registry: Registry, complaints: Complaints):
    def own(logps: Any, *, coef: float = 3.0) -> Any:
        return logps, coef

    registry.add("loss_term", "own", own, origin=ACME)
    (line,) = complaints("train.loss_terms = own")
    assert "loss_term.own of acme-rl 2.0 (tests) has a parameter 'coef', which the engine gives every component" in line
