"""Reward `model`: a decoder of the fixtures with a head of our own, and a tokenizer that splits at white space."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.errors import ConfigError, DataError
from dovetail_model.huggingface.safetensors import open_folder, write_file
from dovetail_reward.reward._reward_model import open_model
from dovetail_reward.reward.model import RewardModel

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
WIDTH = 24
HEAD = np.linspace(-1, 1, WIDTH, dtype=np.float32)[None]
BIAS = np.array([0.5], np.float32)
CHAT = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} w1 {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


class Array:
    """What `write_file` takes."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self) -> np.ndarray:
        return self.values


def write(folder: Path, tensors: dict[str, np.ndarray], *, template: str | None = None) -> str:
    shutil.copy(MODELS / "qwen2" / "config.json", folder)
    kept = {k: t for k, t in open_folder(MODELS / "qwen2").items() if k != "lm_head.weight"}
    write_file(folder / "model.safetensors", kept | {name: Array(values) for name, values in tensors.items()})
    words = {f"w{i}": i for i in range(30)} | {"user": 30, "assistant": 31}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "w1"} | ({"chat_template": template} if template else {}))
    )
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, {"score.weight": HEAD, "score.bias": BIAS}, template=CHAT)


def words(ids) -> str:
    return " ".join(f"w{i}" for i in ids)


def test_the_score_is_the_head_on_the_last_hidden_state(folder):
    """The hidden states of `transformers` for these ids are in the fixture; the last id is the end of the turn here."""
    with np.load(MODELS / "qwen2" / "reference.npz") as arrays:
        ids, mask, hidden = (arrays[f"leftpad/{name}"] for name in ("input_ids", "attention_mask", "hidden_2"))
    expected = hidden[:, -1] @ HEAD[0] + BIAS[0]
    rows = [row[kept.astype(bool)].tolist() for row, kept in zip(ids, mask, strict=True)]
    opened = open_model(Path(folder), "float32")
    np.testing.assert_allclose(opened.scores(rows, 8), expected, rtol=1e-4, atol=1e-4)


def test_prompt_completion_and_end_are_read(folder):
    reward = RewardModel(path=folder)
    scores, metrics = reward(["w4 w5", "w6"], ["w2 w3 ", "w2 "], [{}, {}])
    assert scores == open_model(Path(folder), "float32").scores([[2, 3, 4, 5, 1], [2, 6, 1]], 8)
    assert metrics == {"too_long": [0.0, 0.0]}
    assert reward([], [], []) == ([], {"too_long": []})


def test_a_conversation_is_read_in_the_models_own_template(folder):
    reward = RewardModel(path=folder, question_column="question")
    cells = [{"question": "w2"}, {"question": [{"role": "user", "content": "w2"}]}]
    scores, _ = reward(["w3", "w3"], ["", ""], cells)
    assert scores == open_model(Path(folder), "float32").scores([[30, 2, 1, 31, 3, 1]] * 2, 8)


def test_a_score_does_not_depend_on_the_batch(folder):
    texts = [words(np.arange(n) % 29) for n in (1, 40, 3, 2, 5, 33, 4, 31)]
    prompts, examples = [""] * len(texts), [{}] * len(texts)
    reward = RewardModel(path=folder, batch_size=3)
    together, _ = reward(texts, prompts, examples)
    assert together == [reward([text], [""], [{}])[0][0] for text in texts]
    assert together[::-1] == reward(texts[::-1], prompts, examples)[0]


def test_it_computes_on_the_devices_of_the_mesh_at_hand(folder):
    alone, _ = RewardModel(path=folder)(["w3 w4"], ["w2 "], [{}])
    devices = Devices.open(Mesh(), {"reward": Mesh(tp=1)}).of("reward")
    with devices.use():
        there, _ = RewardModel(path=folder)(["w3 w4"], ["w2 "], [{}])
        placed = jax.tree.leaves(open_model(folder, "float32").score.args[0])
    assert there == alone
    assert all(leaf.sharding.mesh == devices.mesh for leaf in placed)


def test_what_is_too_long_has_no_score(folder):
    scores, metrics = RewardModel(path=folder, max_tokens=4)(["w2 w3", "w2 w3 w4"], ["w2 ", "w2 "], [{}, {}])
    assert scores[0] is not None
    assert scores[1] is None
    assert metrics == {"too_long": [0.0, 1.0]}


def test_it_pickles(folder):
    assert pickle.loads(pickle.dumps(RewardModel(path=folder))) == RewardModel(path=folder)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "has no score.weight, the head of a reward model"),
        (
            {"score.weight": np.zeros((2, WIDTH), np.float32)},
            r"score.weight is \[2, 24\]; a reward model has one label",
        ),
        (
            {"score.weight": np.zeros((1, 3), np.float32)},
            r"score.weight is \[1, 3\]; a reward model has one label, \[1, 24\]",
        ),
    ],
)
def test_a_folder_without_a_head_is_refused_when_built(tmp_path, tensors, message):
    with pytest.raises(ConfigError, match=message):
        RewardModel(path=write(tmp_path, tensors))


def test_a_missing_chat_template_is_refused_when_built(tmp_path):
    path = write(tmp_path, {"score.weight": HEAD})
    assert RewardModel(path=path)(["w2"], [""], [{}])[0][0] is not None
    with pytest.raises(DataError, match="question_column needs a chat template, and the tokenizer has none"):
        RewardModel(path=path, question_column="question")
