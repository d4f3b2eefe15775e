"""Settings of other libraries with mistakes: `import-config` refuses the file, or leaves the setting with the reason."""

import itertools
import json
from importlib import import_module

import pytest
from tests.hostile.case import Case, attempt
from tests.sampled import sampled

from dovetail.config import parse
from dovetail_lab.cli.import_config import PEERS
from dovetail_lab.importing.sheet import Sheet
from dovetail_lab.importing.writing import written


def verl(text: str | bytes, pattern: str, name: str = "e.yaml", **others) -> Case:
    """Return a case of one file with verl's settings."""
    return Case(f"import-config verl {name}", pattern, files={name: text}, **others)


def piped(folder) -> None:
    (folder / "e.yaml").symlink_to("/dev/zero")


def doubled(times: int) -> str:
    """Return a script whose variable has 2 to the nth characters."""
    return "a=xx\n" + "a=$a$a\n" * times + "run data.path=$a\n"


CASES = {
    "a file that is not there": Case("import-config trl e.yaml", r"e\.yaml: No such file"),
    "a folder": Case("import-config trl e.yaml", r"e\.yaml: it is not a file", files={"e.yaml": None}),
    "a device": Case("import-config trl e.yaml", r"e\.yaml: it is not a file", prepare=piped),
    "another ending": Case("import-config trl e.toml", r"\.json, \.py, .*not from '\.toml'", files={"e.toml": ""}),
    "an empty file": verl("", "there are no settings in it"),
    "nothing but comments": verl("# trainer.nnodes: 1\n", "there are no settings in it"),
    "a list": verl("- data\n- model\n", "there are no settings in it"),
    "a text": verl("data\n", "there are no settings in it"),
    "bytes": verl(b"\xff\xfe\x00\x80", "e.yaml: .*codec can't decode"),
    "a file that is too large": verl("#" * 10_000_001, "it has 10,000,001 bytes.* at most 10,000,000"),
    "a tag that makes an object": verl("data: !!python/object/apply:os.system [id]\n", "could not determine a constr"),
    "a tag that is a name": verl("data: !!python/name:os.system\n", "could not determine a constructor"),
    "a tag that nobody knows": verl("data: !include other.yaml\n", "could not determine a constructor"),
    "two documents": verl("a: 1\n---\nb: 2\n", "expected a single document"),
    "an anchor that is missing": verl("data: *nobody\n", "undefined alias 'nobody'"),
    "a merge of a number": verl("<<: 3\n", "expected a mapping"),
    "a key twice": verl("data:\n  gen_batch_size: 8\n  gen_batch_size: 16\n", "'data.gen_batch_size' is set twice"),
    "a key over a merged one": verl("a: &a {b: 1}\nc: {<<: *a, b: 2}\n", "", status=0),
    "a tab": verl("data:\n\tgen_batch_size: 8\n", "found character"),
    "YAML 10,000 deep": verl("[" * 10_000, "nested too deeply"),
    "JSON that is cut off": verl('{"data": {', "e.json: ", "e.json"),
    "JSON with a key twice": verl('{"a": 1, "a": 2}', "'a' is set twice", "e.json"),
    "a script whose variables double": verl(doubled(40), r"more than 100,000 characters", "e.sh"),
    "a script of brackets": verl(f"run data.path={'[' * 50_000}\n", "", "e.sh", status=0),
    "Python that is not": Case("import-config trl e.py", r"e\.py: ", files={"e.py": "GRPOConfig(\n"}),
    "Python with a null byte": Case("import-config trl e.py", r"e\.py: .*null", files={"e.py": "GRPOConfig(a=1)\0"}),
    "Python that is nested": Case(
        "import-config trl e.py", "nested too deeply", files={"e.py": f"GRPOConfig(a={'-' * 100_000}1)\n"}
    ),
    "Python without a config": Case("import-config trl e.py", "is read for calls of", files={"e.py": "x = 1\n"}),
    "a result that is there": Case(
        "import-config trl e.yaml", "'e.gin' exists already", files={"e.yaml": "beta: 0.1\n", "e.gin": "x"}
    ),
    "a result in a folder that is not there": Case(
        "import-config trl e.yaml --out d/e.gin", r"'d/e\.gin' cannot be written: No such", files={"e.yaml": "a: 1\n"}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_file(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)


ODD = ([1], {"a": {}}, [[]], None, True, -1, 0, 1.5, 10**400, float("nan"), float("inf"), "", "x" * 5000, "²", "\ud800")
INJECTED = 'a\'\nimport os\n"b" # %x @y \\\u2028\r'
BEGUN = {  # settings without which others are not looked at
    "trl": (
        {"loss_type": "dr_grpo", "use_vllm": True, "sync_ref_model": True, "use_adaptive_entropy": True},
        {"loss_type": "vespo", "model_name_or_path": "m", "max_steps": 10, "multi_objective_aggregation": "n"},
    ),
    "verl": (
        {
            "algorithm.use_kl_in_reward": True,
            "algorithm.filter_groups.enable": True,
            "algorithm.use_pf_ppo": True,
            "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
            "actor_rollout_ref.model.path": "m",
            "actor_rollout_ref.rollout.multi_turn.enable": True,
            "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
            "reward_model.overlong_buffer.enable": True,
        },
        {"actor_rollout_ref.actor.use_kl_loss": True, "actor_rollout_ref.actor.policy_loss.loss_mode": "clip_cov"},
    ),
    "tunix": (
        {"ppo_config.gamma": 1.0},
        {"grpo_config.off_policy_steps": 1, "model_config.model_id": "m", "model_config.mesh.shape": "(1, 2)"},
    ),
}


def asked_for(peer: str, begun, folder, monkeypatch) -> list[str]:
    """Return the settings that a translation reads."""
    asked: set[str] = set()
    value = Sheet.value

    def noted(self, name, default=None):
        asked.add(name)
        return value(self, name, default)

    with monkeypatch.context() as patched:
        patched.setattr(Sheet, "value", noted)
        translate(peer, begun, folder)
    return sorted(asked)


def translate(peer: str, settings, folder) -> tuple[Sheet, str]:
    file = folder / "e.json"
    file.write_text(json.dumps(settings))
    sheet = import_module(f"dovetail_lab.importing.{peer}").translate(file)
    return sheet, written(sheet, "e.json")


BEGINNINGS = [pytest.param(peer, begun) for peer in PEERS for begun in BEGUN[peer]]


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "begun"), BEGINNINGS)
def test_values_of_all_kinds(peer, begun, tmp_path, monkeypatch):
    """What is written can be read again, with the settings that the sheet has and no other."""
    for name, odd in itertools.product(asked_for(peer, begun, tmp_path, monkeypatch), ODD):
        _, text = translate(peer, begun | {name: odd}, tmp_path)
        assert text.encode(), (name, odd)


@pytest.mark.parametrize(("peer", "begun"), sampled(BEGINNINGS, every=3))
def test_nothing_is_injected(peer, begun, tmp_path, monkeypatch):
    """Line breaks and quotation marks in values and in names end neither a text nor a comment."""
    file = tmp_path / "e.gin"
    for name in (*asked_for(peer, begun, tmp_path, monkeypatch), INJECTED, f"x.{INJECTED}"):
        sheet, text = translate(peer, begun | {name: INJECTED}, tmp_path)
        file.write_text(text, encoding="utf-8", newline="")
        reading = parse.read(file)
        assert reading.complete, name
        assert [binding.key for binding in reading.bindings] == [line.target for line in sheet.lines if line.target]


@pytest.mark.parametrize(
    ("peer", "settings", "left", "carried"),
    [
        ("trl", {"num_generations": [1], "epsilon_high": 0.3}, "num_generations", "policy_loss.grpo.epsilon_high"),
        ("trl", {"save_steps": [5], "num_iterations": 0}, "save_steps", "train.epochs"),
        ("verl", {"trainer.nnodes": None, "trainer.test_freq": 5}, "trainer.nnodes", "eval.every"),
        ("tunix", {"batch_size": "many", "grpo_config.beta": 0.1}, "batch_size", "train.kl_coef"),
    ],
)
def test_what_does_not_fit_is_left_alone(peer, settings, left, carried, tmp_path):
    sheet, text = translate(peer, settings, tmp_path)
    assert left in sheet.left
    assert carried in [line.target for line in sheet.lines]
    assert f"#   {left} = " in text
