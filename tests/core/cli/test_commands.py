"""The commands as a user types them: their output, and one line for each mistake."""

from pathlib import Path

import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.kinds import STAGES
from dovetail.registry.compatibility import engine_version

ROOT = Path(__file__).parents[3]


def sets(*overrides):
    return [part for override in overrides for part in ("--set", override)]


@pytest.fixture
def empty(tmp_path) -> str:
    (tmp_path / "empty.gin").write_text("")
    return str(tmp_path / "empty.gin")


def test_plugins_lists_distributions_and_kinds(capsys):
    assert main(["plugins"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dovetail ")
    assert "policy_loss" in out


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dovetail {engine_version()}\n"


def test_names_shows_aliases(capsys):
    assert main(["names", "kl"]) == 0
    assert "k3  (= low_var_kl)" in capsys.readouterr().out


def test_describe_shows_formula_fields_and_parameters(capsys):
    assert main(["describe", "policy_loss", "gspo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("policy_loss.gspo\n")
    assert "reads:   logps, old_logps, advantages, mask" in out
    assert "epsilon_low = 0.0003" in out
    assert "origin:  dovetail" in out


def test_explain_prints_the_plan(capsys):
    assert main(["explain", "quickstart", *sets("train.kl_coef=0.1", "train.epochs=2")]) == 0
    stages, fields = (table.splitlines() for table in capsys.readouterr().out.split("\n\n")[1:3])
    ran = dict(line.split(maxsplit=1) for line in stages[1:])
    assert list(ran) == [stage.name for stage in STAGES]
    assert set(ran["passes"].split("; ")) == {
        "reference on completions: logps",
        "policy at collection on completions: logps",
    }
    assert "train.advantage = grpo -> advantages" in ran["advantages"]
    assert {"train.policy_loss = grpo", "train.kl = k3"} <= set(ran["loss_terms"].split("; "))
    assert ran["corrections"] == "-"
    (row,) = [line for line in fields if line.startswith("ref_logps ")]
    assert "forward pass: reference on completions" in row
    assert row.endswith("train.kl = k3")


def test_explain_says_where_the_models_beside_the_policy_begin_and_how_they_follow(capsys):
    overrides = ["train.kl_coef=0.1", "roles.reference=ema", "roles.teacher=frozen", "teacher.model=decoder"]
    assert main(["explain", "quickstart", *sets(*overrides, "train.loss_terms=['reverse_kl']")]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    found = {line[0]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}
    assert found["reference"] == ["roles.reference = ema", "the policy when reinforcement learning begins"]
    assert found["teacher"] == ["roles.teacher = frozen", "teacher.model = decoder"]
    assert main(["explain", "quickstart"]) == 0
    assert "begins as" not in capsys.readouterr().out


def test_explain_says_how_completions_are_packed(capsys):
    main(["explain", "quickstart", *sets("train.packing=True", "sampling.max_tokens=64", "train.group_size=8")])
    said = "up to 4 of a prompt packed in a row, in rows of 63 positions, 82% full if lengths are uniform\n"
    assert f"completions in an update: {said}" in capsys.readouterr().out


AHEAD = ("train.correction=['tis_token']", "train.staleness=2")
IN_FLIGHT = (*AHEAD, "train.rollout=vllm", "train.in_flight=True")
KEPT = "each batch is written to messages.bin before it is trained on, for `dovetail replay`"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((), []),
        (AHEAD, ["batch n is sampled and scored with the weights of max(0, n - 2) updates, beside the trainer"]),
        ((*AHEAD, "run.keep_messages=True"), ["batch n is sampled and scored", KEPT]),
        (IN_FLIGHT, ["batch n is sampled beside the trainer with the weights of max(0, n - 2) updates or newer ones", KEPT]),
        ((*IN_FLIGHT, "run.keep_messages=False"), ["batch n is sampled beside", "no batch is kept (run.keep_messages"]),
        (
            (*AHEAD[:1], "train.group_filter=nonzero_variance", "train.prompts=8", "train.oversample=3"),
            ["a round samples 11 prompts for a step of 8; groups that pass train.group_filter"],
        ),
    ],
    ids=["in turn", "ahead", "kept", "in flight", "in flight and not kept", "oversampled"],
)  # fmt: skip
def test_explain_says_which_weights_sample_a_batch_and_what_becomes_of_it(overrides, said, capsys):
    assert main(["explain", "quickstart", *sets(*overrides)]) == 0
    before_the_plan, _, _ = capsys.readouterr().out.partition("stage ")
    lines = [line for line in before_the_plan.splitlines()[1:] if line]
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_explain_warns_of_a_loss_without_gradient(capsys):
    main(["config", "explain", "quickstart", *sets("train.kl=k1", "train.kl_coef=0.1")])
    assert "warning: train.kl = k1 has zero expected gradient" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("advantage", "warned"), [("rloo", True), ("maxrl", True), ("opo", True), ("reinforce", False)]
)
def test_explain_warns_of_a_group_of_one(advantage, warned, capsys):
    main(["explain", "quickstart", *sets("train.group_size=1", f"train.advantage={advantage}")])
    assert (f"advantage '{advantage}' compares the completions of a group" in capsys.readouterr().out) == warned


def test_show_says_where_values_come_from(capsys):
    assert main(["config", "show", "quickstart", *sets("train.lr=1e-5")]) == 0
    lines = {line.split(" = ")[0]: line for line in capsys.readouterr().out.splitlines() if " = " in line}
    assert lines["train.lr"].endswith("# --set train.lr=1e-5")
    assert "quickstart.gin:" in lines["train.group_size"]
    assert lines["train.epochs"].endswith("# default")


def test_diff_prints_what_differs(tmp_path, capsys):
    (tmp_path / "a.gin").write_text("train.lr = 1e-3\n")
    (tmp_path / "b.gin").write_text("train.lr = 1e-4\ntrain.policy_loss = 'gspo'\n")
    assert main(["config", "diff", str(tmp_path / "a.gin"), str(tmp_path / "b.gin")]) == 1
    out = capsys.readouterr().out
    assert "train.lr = 0.001 -> 0.0001" in out
    assert "train.policy_loss = 'grpo' -> 'gspo'" in out
    assert main(["config", "diff", str(tmp_path / "a.gin"), str(tmp_path / "a.gin")]) == 0


@pytest.mark.slow
def test_train_ends_with_a_summary(tmp_path, empty, capsys):
    folder = tmp_path / "run"
    arguments = sets(*TINY, "sft.steps=1", "train.steps=1", "run.sinks=('console',)")
    assert main(["train", empty, "--folder", str(folder), *arguments]) == 0
    out = capsys.readouterr().out
    assert "phase=sft step=1" in out
    assert f"folder       {folder}" in out


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "gin").glob("*.gin")), ids=lambda p: p.stem)
def test_every_shipped_config_loads_and_plans(path, capsys):
    assert main(["explain", path.stem]) == 0
    assert "provided by" in capsys.readouterr().out


def sum_of_squares(logps, pi_squared, advantages, mask):
    """Reads a field that nobody provides."""
    return -logps * pi_squared * advantages


BAD = {
    "unknown component": (["train.policy_loss=gpso"], "--set train.policy_loss=gpso: unknown policy_loss 'gpso'. Did you mean 'gspo'?"),
    "unknown parameter": (["policy_loss.grpo.epsilom_low=1"], "has no parameter 'epsilom_low'. Did you mean 'epsilon_low'?"),
    "unknown setting": (["train.step=3"], "Did you mean 'steps'?"),
    "wrong type": (["train.steps=many"], "train.steps"),
    "range": (["train.steps=-3"], "train.steps"),
    "macro": (["train.lr=%rate"], "rate"),
    "long prompts policy": (["train.long_prompts='drop'"], "'filter'"),
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "message"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_line_on_stderr(empty, capsys, overrides, message):
    assert main(["explain", empty, *sets(*overrides)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_mistakes_in_a_file_carry_file_and_line(tmp_path, capsys):
    path = tmp_path / "mine.gin"
    path.write_text("train.lr = 1e-3\ntrain.policy_loss = gpso\n")
    assert main(["explain", str(path)]) == 1
    assert f"{path}:2: " in capsys.readouterr().err


def test_a_field_that_nobody_provides_is_refused_before_anything_is_loaded(empty, capsys):
    import dovetail

    dovetail.register("policy_loss", "sum_of_squares", sum_of_squares)
    assert main(["train", empty, *sets("train.policy_loss=sum_of_squares")]) == 1
    assert "reads the field 'pi_squared', which nobody provides" in capsys.readouterr().err


def test_a_missing_config_may_be_a_file_here(capsys, tmp_path):
    (tmp_path / "mine.gin").write_text("")
    assert main(["train", str(tmp_path / "minee.gin")]) == 1
    assert f"minee.gin'. Did you mean '{tmp_path}/mine.gin'?" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "mine.gni")]) == 1
    assert f"mine.gni'. Did you mean '{tmp_path}/mine.gin'?" in capsys.readouterr().err


def test_a_missing_config_names_the_shipped_ones(capsys):
    assert main(["train", "quikstart"]) == 1
    assert "there is no config file 'quikstart'. Did you mean 'quickstart'?" in capsys.readouterr().err


def test_explain_warns_of_a_model_folder_that_is_not_there(capsys):
    assert main(["explain", "quickstart", *sets("train.model=pretrained", "model.pretrained.path=none-here")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("warning: none-here: is not a folder; a model is a folder with config.json")
