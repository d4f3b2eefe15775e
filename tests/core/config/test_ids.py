import re
from collections.abc import Callable

import attrs
import pytest

from dovetail.config import Config, config_id, dump, run_id, versions
from dovetail.registry import Origin, Registry

LoadText = Callable[..., Config]
PLAIN = "train.policy_loss = gspo\ntrain.kl = low_var\nkl.low_var.clamp = 3\n"


def test_an_id_is_short_and_the_run_id_adds_the_seed(load_text: LoadText):
    config = load_text("run.seed = 7\n")
    assert re.fullmatch("[0-9a-f]{10}", config_id(config))
    assert run_id(config) == f"{config_id(config)}-s7"


@pytest.mark.parametrize(
    "text",
    [
        "# a note\n\n" + PLAIN,
        "kl.low_var:\n  clamp = 3\ntrain.kl = 'k3'\ntrain.policy_loss = 'gspo'\n",
        "c = 3.0\ntrain.policy_loss = dovetail/gspo\ntrain.kl = k3\nkl.k3.clamp = %c\n",
        PLAIN + "train.lr = 1e-4\npolicy_loss.grpo.epsilon_low = 0.9\n",
        PLAIN + "run.seed = 3\nrun.folder = 'x'\nrun.sinks = []\n",
    ],
    ids=["comments", "order", "spelling", "no effect", "run section"],
)
def test_what_changes_no_run_changes_no_id(load_text: LoadText, text: str):
    assert config_id(load_text(text)) == config_id(load_text(PLAIN))


@pytest.mark.parametrize(
    "override",
    ["train.steps=7", "kl.k3.clamp=4", "train.policy_loss=grpo", "critic/optimizer.adamw.b2=0.5", "eval.examples=None"],
)
def test_what_changes_a_run_changes_the_id(load_text: LoadText, override: str):
    assert config_id(load_text(PLAIN, override)) != config_id(load_text(PLAIN))


def test_a_path_is_part_of_the_id(load_text: LoadText):
    ids = {config_id(load_text("train.task = jsonl\n", f"task.jsonl.path={path}")) for path in ("/a/x", "/b/x", "/b/x")}
    assert len(ids) == 2


@attrs.frozen
class Sink:
    def open(self, folder, total_steps, start_step):
        raise NotImplementedError


def test_versions_of_the_owners_are_part_of_the_id(load_text: LoadText, registry: Registry):
    config = load_text(PLAIN)
    assert config_id(config, lambda _: {"dovetail": "1"}) != config_id(config, lambda _: {"dovetail": "2"})
    assert set(versions(config)) == {"dovetail"}
    registry.add("sink", "mine", Sink, origin=Origin("acme-sinks", "3.0", "tests"))
    registry.add("policy_loss", "theirs", lambda mask: mask, origin=Origin("acme-rl", "2.0", "tests"))
    assert versions(load_text("train.policy_loss = theirs\nrun.sinks = mine\n"))["acme-rl"] == "2.0"
    assert "acme-sinks" not in versions(load_text("train.policy_loss = theirs\nrun.sinks = mine\n"))


def test_a_dump_has_the_id_of_its_config(load_text: LoadText):
    config = load_text(PLAIN, "run.seed=5")
    assert run_id(load_text(dump(config))) == run_id(config)
