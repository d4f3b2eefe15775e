import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.config import Config, dump, explain_origin, load
from dovetail.registry import Origin, Registry

LoadText = Callable[..., Config]

TEXTS = [
    "",
    "a b",
    "it's",
    '"',
    "'''",
    "\\",
    "line\nbreak",
    "\t",
    "é√",
    "\u2028",
    "\ud7ff",
    "# no comment",
    "%lr",
    "@x",
    "\0",
]


def number(rng: random.Random) -> float:
    return rng.choice([float("inf"), float("-inf"), float("nan"), -0.0, 1e-300, rng.uniform(-9, 9), rng.gauss(0, 1e20)])


def whole(rng: random.Random) -> int:
    return rng.choice([0, -1, 2**63 - 1, rng.randint(-99, 99)])


def anything(rng: random.Random, depth: int = 3) -> Any:
    kinds: list[Callable[[], Any]] = [lambda: None, lambda: rng.random() < 0.5, lambda: number(rng), lambda: whole(rng)]
    kinds.append(lambda: rng.choice(TEXTS))
    if depth:
        kinds.append(lambda: tuple(anything(rng, depth - 1) for _ in range(rng.randrange(3))))
        kinds.append(lambda: [anything(rng, depth - 1) for _ in range(rng.randrange(3))])
        kinds.append(lambda: {rng.choice(TEXTS): anything(rng, depth - 1) for _ in range(rng.randrange(3))})
    return rng.choice(kinds)()


def random_gin(rng: random.Random) -> str:
    """Return bindings with all types of values, written with `repr`."""
    values = {
        "train.rewards": rng.choice([("assorted", "length"), ["length", "assorted"]]),
        "train.kl_coef": rng.choice([float("inf"), -0.0, abs(rng.gauss(0, 1))]),
        "train.mini_batch_size": rng.choice([None, 2**63 - 1, rng.randint(1, 99)]),
        "eval.pass_at": tuple(whole(rng) for _ in range(rng.randrange(3))),
        "eval.success": rng.choice([None, "assorted", "check-answer"]),
        "run.folder": rng.choice([None, *TEXTS]),
        "run.seed": whole(rng),
        "reward.assorted.number": rng.choice([number(rng), whole(rng)]),
        "reward.assorted.flag": rng.random() < 0.5,
        "reward.assorted.text": rng.choice(TEXTS),
        "reward.assorted.choice": rng.choice(["a", "b"]),
        "reward.assorted.pair": (whole(rng), rng.choice(TEXTS)),
        "reward.assorted.floats": [number(rng) for _ in range(rng.randrange(3))],
        "reward.assorted.nested": [(rng.choice([None, number(rng)]), {rng.choice(TEXTS): whole(rng)})],
        "reward.assorted.table": {rng.choice(TEXTS): number(rng)},
        "reward.assorted.anything": anything(rng),
        "optimizer.adamw.b2": number(rng),
        "critic/optimizer.adamw.b2": number(rng),
        "sft/optimizer.adamw.b2": number(rng),
        "field.probe.chunk": whole(rng),
    }
    return "".join(f"{key} = {value!r}\n" for key, value in values.items() if rng.random() < 0.7)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_dumped_loads_as_an_equal_config(seed: int, load_text: LoadText):
    config = load_text("train.rewards = assorted\n" if seed == 0 else random_gin(random.Random(seed)))
    again = load_text(dump(config))
    assert again == config
    assert dump(again) == dump(config)
    assert not again.unused


def test_every_default_is_spelled_out_and_nothing_else_is_written(load_text: LoadText):
    config = load_text("train.policy_loss = gspo\npolicy_loss.grpo.epsilon_low = 0.1\nrate = 2\ntrain.lr = %rate\n")
    lines = dump(config).splitlines()
    assert "train.lr = 2.0" in lines
    assert "train.steps = 100" in lines
    assert "policy_loss.gspo.epsilon_high = 0.0004" in lines
    assert not [line for line in lines if "policy_loss.grpo" in line or "rate" in line]


def test_a_scope_is_written_only_where_it_differs(load_text: LoadText):
    config = load_text("critic/optimizer.adamw.b2 = 0.95\ncritic/value_loss.ppo.clip = 0.1\n")
    optimizer = [line for line in dump(config).splitlines() if "adamw." in line or "ppo." in line]
    assert optimizer == [
        "optimizer.adamw.b1 = 0.9",
        "optimizer.adamw.b2 = 0.999",
        "optimizer.adamw.k = 1",
        "optimizer.adamw.decay = 0.0",
        "critic/optimizer.adamw.b2 = 0.95",
        "value_loss.ppo.clip = 0.1",
        "value_loss.ppo.half = True",
    ]


def test_the_eval_task_keeps_its_parameters(load_text: LoadText):
    config = load_text("train.task = jsonl\ntask.jsonl.path = 'a'\neval/task.jsonl.path = 'b'\n")
    assert load_text(dump(config)) == config
    assert "eval/task.jsonl.path = 'b'" in dump(config).splitlines()


def test_components_of_one_name_from_two_distributions_are_told_apart(load_text: LoadText, registry: Registry):
    def other(lr: Any, *, b2: float = 0.5, z: int = 1) -> Any:
        return lr, b2, z

    registry.add("optimizer", "adamw", other, origin=Origin("acme-rl", "2.0", "tests"))
    names = "train.optimizer = dovetail/adamw\nsft.optimizer = acme-rl/adamw\ncritic.optimizer = acme-rl/adamw\n"
    config = load_text(f"{names}critic/optimizer.adamw.z = 2\n")
    assert load_text(dump(config)) == config


def test_origins_are_told_for_every_value(load_text: LoadText):
    config = load_text(
        "train.steps = 3\nkl.k3.clamp = 2\ncritic/optimizer.adamw.b2 = 0.95\ntrain.kl = k3\n", "train.lr=1"
    )
    origins = {entry.key: (entry.value, entry.origin) for entry in explain_origin(config)}
    assert origins["train.steps"] == (3, "x.gin:1")
    assert origins["train.lr"] == (1.0, "--set train.lr=1")
    assert origins["train.prompts"][1] == "default"
    assert origins["kl.low_var.clamp"] == (2.0, "x.gin:2")
    assert origins["critic/optimizer.adamw.b2"] == (0.95, "x.gin:3")


def test_the_dump_is_plain_utf8(load_text: LoadText, registry: Registry, tmp_path: Path):
    config = load_text("run.folder = 'é√'\n")
    path = tmp_path / "config.gin"
    path.write_text(dump(config), encoding="utf-8")
    assert load(path, registry=registry) == config
