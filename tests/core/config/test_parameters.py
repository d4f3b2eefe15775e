import re
from collections.abc import Callable
from typing import Annotated, Any

import attrs
import pytest
from annotated_types import Gt

from dovetail.config import Config, config_id, dump, load
from dovetail.errors import ConfigError
from dovetail.kinds import Kind
from dovetail.registry import Chooses, Origin, Registry

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]
ACME = Origin("acme-rl", "2.0", "tests")


def momentum(lr: Any, *, b1: float = 0.5, nesterov: bool = False) -> Any:
    return lr, b1, nesterov


def broken_default(mask: Any, *, size: int = None) -> Any:  # noqa: RUF013  # pyright: ignore[reportArgumentType]
    return mask, size


def probing(logps: Any, probe: Any, mask: Any) -> Any:
    return logps, probe, mask


def params(config: Config, role: str) -> dict[str, Any]:
    return dict(config.choice(role).params)


def test_defaults_are_spelled_out_and_typed(load_text: LoadText):
    choice = load_text("train.kl = low_var").choice("train.kl")
    assert repr(choice.params) == "{'clamp': 10.0}"
    assert choice.origins == {"clamp": "default"}


def test_a_binding_sets_a_parameter_under_name_alias_or_dash(load_text: LoadText):
    for name in ("low_var", "k3"):
        config = load_text(f"train.kl = low_var\nkl.{name}.clamp = 3\n")
        assert params(config, "train.kl") == {"clamp": 3.0}
        assert config.choice("train.kl").origins == {"clamp": "x.gin:2"}
    assert params(load_text("train.kl = low-var", "kl.low-var.clamp=3"), "train.kl") == {"clamp": 3.0}


def test_a_scope_sets_a_role_apart_whatever_the_order(load_text: LoadText):
    config = load_text("critic/optimizer.adamw.b2 = 0.95\noptimizer.adamw.b2 = 0.9\noptimizer.adamw.k = 2\n")
    assert [config.choice(f"{role}.optimizer").params["b2"] for role in ("train", "critic", "sft")] == [0.9, 0.95, 0.9]
    assert config.choice("critic.optimizer").params["k"] == 2
    assert config.choice("critic.optimizer").scope == "critic"


def test_eval_task_is_the_training_task_with_its_own_parameters(load_text: LoadText):
    config = load_text("train.task = jsonl\ntask.jsonl.path = 'a'\ntask.jsonl.limit = 3\n", "eval/task.jsonl.path=b")
    assert config.eval.task is None
    assert params(config, "train.task") == {"path": "a", "limit": 3, "share": 0.5}
    assert params(config, "eval.task") == {"path": "b", "limit": 3, "share": 0.5}
    assert config.choice("eval.task").scope == "eval"


def test_a_required_parameter_may_come_from_the_scopes_alone(load_text: LoadText):
    config = load_text("eval.task = jsonl\neval/task.jsonl.path = 'b'\n")
    assert params(config, "eval.task")["path"] == "b"


def test_a_missing_required_parameter_is_named(complaints: Complaints):
    assert complaints("\ntrain.task = jsonl\n") == ["x.gin:2: task.jsonl.path has no default: set it"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy_los.gspo.x = 1", "unknown kind 'policy_los'. Did you mean 'policy_loss'? Kinds: "),
        ("train.policy_loss.x = 1", "'train' is a section; write section.field = value or kind.name.parameter = value"),
        ("policy_loss.gpso.x = 1", "unknown policy_loss 'gpso'. Did you mean 'gspo'? Known: dr_grpo, grpo, gspo."),
        (
            "policy_loss.gspo.epsilon_lo = 1",
            "policy_loss.gspo has no parameter 'epsilon_lo'. Did you mean 'epsilon_low'? Parameters: epsilon_high, epsilon_low",
        ),
        ("policy_loss.grpo.epsilon = 1", "policy_loss.grpo has no parameter 'epsilon'."),
        ("policy_loss.dr_grpo.x = 1", "policy_loss.dr_grpo has no parameter 'x'. Parameters: (none)"),
        ("policy_loss.gspo.mask = 1", "'mask' is a field that policy_loss.gspo reads, not a parameter"),
        (
            "critc/optimizer.adamw.b1 = 1",
            "unknown scope 'critc'. Did you mean 'critic'? Scopes: critic, eval, reference, sft",
        ),
        ("a/critic/optimizer.adamw.b1 = 1", "unknown scope 'a/critic'. Did you mean 'critic'?"),
        ("critic/policy_loss.gspo.epsilon_low = 1", "scope 'critic' chooses no policy_loss, only: "),
        ("policy_loss.gspo.epsilon_low = 'x'", "policy_loss.gspo.epsilon_low: expected float, got 'x'."),
        ("policy_loss.grpo.epsilon_low = True", "policy_loss.grpo.epsilon_low: expected float, got True."),
    ],
)
def test_what_is_wrong_is_said_in_one_line_be_the_component_chosen_or_not(complaints: Complaints, text: str, said: str):
    (line,) = complaints(f"{text}\ntrain.policy_loss = grpo\n")
    assert line.startswith(f"x.gin:1: {said}")


def test_one_parameter_under_two_names_is_bound_twice(complaints: Complaints):
    assert complaints("kl.k3.clamp = 3\nkl.low_var.clamp = 4\n") == [
        "x.gin:2: kl.low_var.clamp is already bound at x.gin:1; keep one of the two"
    ]


def test_a_later_file_and_an_override_win(load_text: LoadText, write: Callable[..., Any]):
    write("kl.k3.clamp = 3\n", "base.gin")
    text = "train.kl = k3\ninclude 'base.gin'\nkl.low_var.clamp = 4\n"
    assert params(load_text(text), "train.kl") == {"clamp": 4.0}
    assert params(load_text(text, "kl.k3.clamp=5"), "train.kl") == {"clamp": 5.0}


def test_good_bindings_of_what_is_not_chosen_are_listed(load_text: LoadText):
    config = load_text("policy_loss.grpo.epsilon_low = 0.1\n", "train.policy_loss=gspo")
    assert [str(unused) for unused in config.unused] == [
        "policy_loss.grpo.epsilon_low (x.gin:1) has no effect: train.policy_loss is 'gspo'"
    ]


def test_what_no_role_falls_back_on_is_listed(load_text: LoadText):
    config = load_text(
        "optimizer.adamw.b1 = 0.1\ncritic/optimizer.adamw.b1 = 0.2\nsft.optimizer = sgd\ntrain.optimizer = sgd\n"
    )
    assert [str(unused) for unused in config.unused] == [
        "optimizer.adamw.b1 (x.gin:1) has no effect: critic/optimizer.adamw sets its own"
    ]


def test_an_overridden_binding_is_used_enough(load_text: LoadText):
    assert not load_text("train.kl = k3\nkl.k3.clamp = 3\n", "kl.k3.clamp=4").unused


def test_a_component_that_cannot_be_imported_fails_only_who_chooses_it(
    registry: Registry, load_text: LoadText, complaints: Complaints
):
    registry.add("rollout", "engine", "no_such_package:engine", origin=ACME)
    config = load_text("rollout.engine.size = 3\n")
    assert [unused.key for unused in config.unused] == ["rollout.engine.size"]
    assert "cannot be imported" in config.unused[0].reason
    (line,) = complaints("rollout.engine.size = 3\ntrain.rollout = engine\n")
    assert line.startswith("x.gin:2: rollout.engine of acme-rl 2.0 cannot be imported")


def test_a_field_may_be_configured_without_being_chosen(registry: Registry, load_text: LoadText):
    registry.add("policy_loss", "probing", probing, origin=ACME)
    config = load_text("train.policy_loss = probing\nfield.probe.chunk = 3\n")
    assert not config.unused
    assert config.component("field", "probe").params == {"chunk": 3}
    assert load_text("").component("field", "probe").params == {"chunk": 64}


def test_a_configured_field_that_nothing_reads_is_listed(load_text: LoadText):
    config = load_text("field.probe.chunk = 3\n")
    assert [str(unused) for unused in config.unused] == [
        "field.probe.chunk (x.gin:1) has no effect: no chosen component reads this field"
    ]
    assert "field.probe" not in config.choices
    assert config == load_text("")


def test_a_component_of_a_kind_that_no_setting_chooses_may_be_configured(registry: Registry, load_text: LoadText):
    registry.add_kind(Kind(name="verifier", summary="completion -> proof"), ACME)
    registry.add("verifier", "lean", momentum, origin=ACME)
    config = load_text("verifier.lean.b1 = 1\n")
    assert config.component("verifier", "lean").params == {"b1": 1.0, "nesterov": False}
    assert config.choices["verifier.lean"].origins["b1"] == "x.gin:1"


def test_a_name_that_two_distributions_own_is_ambiguous_for_the_planner(registry: Registry, complaints: Complaints):
    registry.add_kind(Kind(name="verifier", summary="completion -> proof"), ACME)
    registry.add("verifier", "lean", momentum, origin=ACME)
    registry.add("verifier", "lean", momentum, origin=Origin("beta-rl", "1.0", "beta"))
    (line,) = complaints("verifier.lean.b1 = 1\n")
    assert line.startswith("x.gin:1: verifier 'lean' is registered by acme-rl 2.0 (tests) and beta-rl 1.0 (beta)")


def test_components_of_one_name_are_told_apart_by_what_is_chosen(registry: Registry, load_text: LoadText):
    registry.add("optimizer", "adamw", momentum, origin=ACME)
    names = "train.optimizer = dovetail/adamw\nsft.optimizer = dovetail/adamw\ncritic.optimizer = acme-rl/adamw\n"
    config = load_text(
        f"{names}optimizer.adamw.b1 = 0.3\noptimizer.adamw.k = 2\ncritic/optimizer.adamw.nesterov = True\n"
    )
    assert config.choice("train.optimizer").params["b1"] == 0.3
    assert config.choice("train.optimizer").params["k"] == 2
    assert params(config, "critic.optimizer") == {"b1": 0.3, "nesterov": True}


def test_components_of_one_name_and_scope_are_refused(registry: Registry, complaints: Complaints):
    registry.add("reward", "length", momentum, origin=ACME)
    (line,) = complaints("train.rewards = (dovetail/length, acme-rl/length)\n")
    assert line == (
        "x.gin:1: acme-rl/length and dovetail/length are both configured as 'reward.length'; choose one of them"
    )


def test_a_range_is_checked_whether_a_function_or_a_class_states_it(complaints: Complaints):
    text = "optimizer.adamw.b1 = 1.5\ntrain.task = jsonl\ntask.jsonl.path = 'a'\ntask.jsonl.share = 2\n"
    assert complaints(text, "critic/optimizer.adamw.b1=-1") == [
        "x.gin:1: optimizer.adamw.b1: expected 0 <= float < 1, got 1.5.",
        "x.gin:4: task.jsonl.share: expected 0 <= float <= 1, got 2.",
        "--set critic/optimizer.adamw.b1=-1: critic/optimizer.adamw.b1: expected 0 <= float < 1, got -1.",
    ]


def test_a_default_out_of_its_own_range_is_the_plugins_fault(registry: Registry, complaints: Complaints):
    def sloppy(lr: Any, *, momentum: Annotated[float, Gt(0)] = 0.0) -> Any:
        return lr, momentum

    registry.add("optimizer", "sloppy", sloppy, origin=ACME)
    (line,) = complaints("train.optimizer = sloppy")
    assert line.startswith("x.gin:1: default of optimizer.sloppy.momentum of acme-rl 2.0")
    assert line.endswith("expected float > 0, got 0.0.")


def test_a_class_judges_its_values(complaints: Complaints):
    text = "train.task = jsonl\ntask.jsonl.path = 'a'\ntask.jsonl.limit = 0\n"
    assert complaints(text) == ["x.gin:2, x.gin:3: task.jsonl: 'limit' must be >= 1: 0"]


def test_a_class_that_refuses_its_own_defaults_is_reported_by_role(registry: Registry, complaints: Complaints):
    @attrs.frozen(kw_only=True)
    class Impossible:
        size: int = 3

        def __attrs_post_init__(self) -> None:
            raise ConfigError("needs a graphics card")

    registry.add("rollout", "impossible", Impossible, origin=ACME)
    assert complaints("train.rollout = impossible") == ["train.rollout: rollout.impossible: needs a graphics card"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("size"), FileNotFoundError(2, "no such file", "w.bin")])
def test_a_class_that_raises_is_reported_with_its_line(
    registry: Registry, complaints: Complaints, error: BaseException
):
    @attrs.frozen(kw_only=True)
    class Raising:
        size: int = 2

        def __attrs_post_init__(self) -> None:
            raise error

    registry.add("rollout", "raising", Raising, origin=ACME)
    (line,) = complaints("train.rollout = raising\nrollout.raising.size = 3\n")
    said = re.escape(f"x.gin:2: rollout.raising raised {type(error).__name__}: {error}")
    assert re.fullmatch(rf"{said} \[.*test_parameters\.py:\d+\]", line)


def test_a_default_that_does_not_fit_is_the_plugins_fault(registry: Registry, complaints: Complaints):
    registry.add("advantage", "broken", broken_default, origin=ACME)
    (line,) = complaints("train.advantage = broken")
    assert line.startswith("x.gin:1: default of advantage.broken.size of acme-rl 2.0")
    assert line.endswith("expected int, got None.")


def test_bindings_alone_need_no_file(registry: Registry):
    config = load(None, ["train.policy_loss=gspo", "policy_loss.gspo.epsilon_low=1"], registry=registry)
    assert config.choice("train.policy_loss").params["epsilon_low"] == 1.0


class Openable:
    """The methods that kind `rollout` requires."""

    check = open = open_folder = print


@attrs.frozen(kw_only=True)
class Wraps(Openable):
    """An engine that wraps another engine, chosen by a hyperparameter."""

    inner: Annotated[Any, Chooses("rollout")] = "plain"
    factor: float = 2.0


@attrs.frozen(kw_only=True)
class Plain(Openable):
    """The wrapped engine."""

    slots: int = 4


def test_a_hyperparameter_may_choose_a_component_with_parameters_of_its_own(
    registry: Registry, load_text: LoadText, complaints: Complaints
):
    for name, target in (("wraps", Wraps), ("plain", Plain), ("other", Plain)):
        registry.add("rollout", name, target, origin=ACME)
    config = load_text("train.rollout = wraps\nrollout.plain.slots = 9\n")
    assert config.choice("train.rollout").bind() == Wraps(inner=Plain(slots=9))
    assert config.choice("train.rollout.inner").params == {"slots": 9}
    assert load_text(dump(config)) == config
    assert "rollout.wraps.inner = 'acme-rl/plain'" in dump(config)
    other = load_text("train.rollout = wraps\nrollout.wraps.inner = 'other'\nrollout.plain.slots = 9\n")
    assert other.choice("train.rollout").bind() == Wraps(inner=Plain(slots=4))
    assert [each.key for each in other.unused] == ["rollout.plain.slots"]
    assert config_id(other) != config_id(config)
    (line,) = complaints("train.rollout = wraps\nrollout.wraps.inner = 'othr'\n")
    assert line.startswith("x.gin:2: rollout.wraps.inner: unknown rollout 'othr'. Did you mean 'other'?")
    (line,) = complaints("train.rollout = wraps\nrollout.wraps.inner = 'wraps'\n")
    assert line == "x.gin:2: rollout.wraps.inner: it would be built inside itself"


@attrs.frozen(kw_only=True)
class Launches(Openable):
    """An engine that starts servers somewhere."""

    launcher: Annotated[Any, Chooses("launcher")] = "near"


def near(servers: Any, *, cores: int = 1) -> Any:
    return servers, cores


def test_a_component_that_only_hyperparameters_choose_is_one_choice(registry: Registry, load_text: LoadText):
    registry.add_kind(Kind(name="launcher", summary="servers -> addresses"), ACME)
    registry.add("launcher", "near", near, origin=ACME)
    registry.add("rollout", "launches", Launches, origin=ACME)
    config = load_text("train.rollout = launches\nlauncher.near.cores = 2\n")
    assert {path: dict(c.params) for path, c in config.choices.items() if c.component.kind == "launcher"} == {
        "train.rollout.launcher": {"cores": 2}
    }


@attrs.frozen(kw_only=True)
class Shapeless:
    """A model without the method that the engine calls before any weights exist."""

    def make(self, vocab_size: int, *, rngs: Any, place: Any) -> Any:
        return vocab_size, rngs, place

    def export(self, model: Any, folder: Any, *, adapter: bool, dtype: Any = None) -> Any:
        return model, folder, adapter, dtype


def test_a_component_without_a_method_of_its_kind_is_refused(registry: Registry, complaints: Complaints):
    registry.add("model", "shapeless", Shapeless, origin=ACME)
    (line,) = complaints("train.model = shapeless")
    assert line.startswith("x.gin:1: model.shapeless has no abstract(vocab_size), which kind 'model' needs [")


@attrs.frozen(kw_only=True)
class Abstracted(Shapeless):
    """A model with that method, under nearly its name."""

    def abstrakt(self, vocab_size: int) -> Any:
        return vocab_size


def test_a_method_of_nearly_the_right_name_is_named(registry: Registry, complaints: Complaints):
    registry.add("model", "abstracted", Abstracted, origin=ACME)
    (line,) = complaints("train.model = abstracted")
    assert "has no abstract(vocab_size), which kind 'model' needs. Did you mean 'abstrakt'? [" in line


@attrs.frozen(kw_only=True)
class Shaped(Shapeless):
    """A model as it has to be."""

    value_heads: int = 1

    def abstract(self, vocab_size: int) -> Any:
        return vocab_size


@attrs.frozen(kw_only=True)
class Headed(Shaped):
    """A model whose optional method is misspelt, so that nothing would ever call it."""

    def value_haed(self) -> Any:
        return None


@attrs.frozen(kw_only=True)
class Wordy(Shaped):
    """A model with the optional method, and with some of its own beside it."""

    def value_head(self) -> Any:
        return None

    def value_heads_of(self) -> Any:
        return None

    def tokens(self) -> Any:
        return ()


def test_an_optional_method_that_is_misspelt_is_refused_and_one_of_its_own_is_not(
    registry: Registry, complaints: Complaints, load_text: LoadText
):
    for each in (Shaped, Headed, Wordy):
        registry.add("model", each.__name__.lower(), each, origin=ACME)
    (line,) = complaints("train.model = headed")
    assert line.startswith(
        "x.gin:1: model.headed of acme-rl 2.0 (tests) has 'value_haed', which nothing calls. Did you mean 'value_head'? Kind"
        " 'model' may have check_tokenizer, value_head; begin names of your own with '_' ["
    )
    for name in ("shaped", "wordy"):
        assert load_text(f"train.model = {name}").choice("train.model").component.name == name


@attrs.frozen(kw_only=True)
class Forgetful:
    """An estimator that reads a state, and has none to begin with."""

    def __call__(self, state: Any, scores: Any, mask: Any) -> Any:
        return state, scores, mask


def test_an_estimator_that_reads_a_state_has_methods_that_make_it(registry: Registry, complaints: Complaints):
    registry.add("advantage", "forgetful", Forgetful, origin=ACME)
    (line,) = complaints("train.advantage = forgetful")
    assert "advantage.forgetful has no init(roles) or update(fields), which kind 'advantage' needs [" in line


@attrs.frozen(kw_only=True)
class Opens:
    """A sink that takes two of the three things that it is given."""

    def open(self, folder: Any, total_steps: Any) -> Any:
        return folder, total_steps


@attrs.frozen(kw_only=True)
class Answers:
    """An interaction that draws nothing."""

    columns: tuple[str, ...] = ()

    def reset(self, example: Any, rng: Any) -> Any:
        return example, rng

    def step(self, state: Any, turn: Any) -> Any:
        return state, turn


@attrs.frozen(kw_only=True)
class Adjusts:
    """A controller that takes more than it needs to, and would take more still."""

    def init(self, coef: Any, *more: Any) -> Any:
        return coef, more

    def coef(self, state: Any, often: bool = False) -> Any:
        return state, often

    update = staticmethod(lambda state, kl, samples: state)


def test_a_method_with_other_parameters_than_it_is_called_with_is_refused(
    registry: Registry, complaints: Complaints, load_text: LoadText
):
    registry.add("sink", "opens", Opens, origin=ACME)
    registry.add("interaction", "answers", Answers, origin=ACME)
    registry.add("kl_controller", "adjusts", Adjusts, origin=ACME)
    (line,) = complaints("run.sinks = ['opens']")
    asked = "open(folder, total_steps), and it is called with (folder, total_steps, start_step)"
    assert re.fullmatch(rf"x.gin:1: sink.opens of .* has {re.escape(asked)} \[.*test_parameters.py:\d+\]", line)
    (line,) = complaints("train.interaction = answers")
    asked = "step(state, turn), and it is called with (state, turn, rng)"
    assert re.fullmatch(rf"x.gin:1: interaction.answers of .* has {re.escape(asked)} \[.*:\d+\]", line)
    assert load_text("train.kl_controller = adjusts").choice("train.kl_controller").component.target is Adjusts


def plateau(step: Any, total_steps: Any, loss: Any) -> Any:
    return step, total_steps, loss


def test_a_schedule_that_reads_what_is_not_there_is_refused(registry: Registry, complaints: Complaints):
    """The caller of a learning rate's schedule has the step and nothing of the training."""
    registry.add("lr_schedule", "plateau", plateau, origin=ACME)
    (line,) = complaints("train.lr_schedule = plateau")
    assert line.startswith("x.gin:1: lr_schedule.plateau of acme")
    assert " reads 'loss'; there are step, total_steps. [" in line
