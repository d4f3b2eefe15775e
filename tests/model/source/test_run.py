"""A run on a model from the hub, from its GGUF file to the folder that is exported."""

import pytest
from tests.core.training.tiny import TINY
from tests.model.gguf_files import tokenizer_metadata, write_folder
from tests.model.source.conftest import forget
from tests.tiny_folder import write

from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.training.loop import train
from dovetail_lab.evaluation.policy import open_policy
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.tokenizer.huggingface import HuggingFace

MODEL = "acme/tiny/m.gguf"


def sets(path=MODEL, tokenizer=MODEL):
    return [
        *TINY,
        "train.model=pretrained",
        f"model.pretrained.path={path!r}",
        "train.tokenizer=huggingface",
        f"tokenizer.huggingface.path={tokenizer!r}",
        "train.adapter=lora",
        "adapter.lora.rank=2",
        "task.arithmetic.chat=True",
        "task.arithmetic.system='Add.'",
        "train.max_prompt_tokens=64",
        "sft.steps=0",
        "train.steps=2",
        "run.checkpoint_every=1",
        "eval.every=2",
    ]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "tiny")
    return tmp_path / "tiny"


def gguf_of(folder, file, **changes):
    return write_folder(file, folder, **tokenizer_metadata(folder), **changes).read_bytes()


@pytest.mark.slow
def test_a_run_goes_on_with_the_model_that_it_began_with_and_exports_it(hub, folder, tmp_path):
    hub.add("acme/tiny", {"m.gguf": gguf_of(folder, tmp_path / "m.gguf")})
    config = load(None, sets())
    train(config, tmp_path / "run")
    hub.add("acme/tiny", {"m.gguf": gguf_of(folder, tmp_path / "n.gguf", **{"rope.freq_base": 77.0})})
    forget()
    policy = open_policy(config, tmp_path / "run")
    policy.export(tmp_path / "out", adapter=False)
    theta = Pretrained(path=str(folder)).spec().layers[0].rope.theta
    assert Pretrained(path=str(tmp_path / "out")).spec().layers[0].rope.theta == theta
    exported = HuggingFace(path=str(tmp_path / "out")).make([])
    question = [{"role": "user", "content": "7 * 6?"}]
    assert exported.render(question) == HuggingFace(path=str(folder)).make([]).render(question)
    forget()
    assert Pretrained(path=MODEL).spec().layers[0].rope.theta == 77.0


@pytest.mark.slow
def test_a_policy_with_the_tokenizer_of_another_model_is_refused(folder, tmp_path):
    write(tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    file.write_text(file.read_text().replace('"<|im_start|>"', '"<|start|>"'))
    template = tmp_path / "other" / "tokenizer_config.json"
    template.write_text(template.read_text().replace("<|im_start|>", "<|start|>"))
    config = load(None, sets(path=str(folder), tokenizer=str(tmp_path / "other")))
    with pytest.raises(
        ConfigError,
        match=rf"^train.model: {folder}: its tokenizer is not the run's: '<\|start\|>' is id \d+ in the run and not in its",
    ):
        train(config, tmp_path / "run")
