"""What we write, `transformers` and `peft` load, and compute with it what we do. Skipped where they are not installed."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import ARCHITECTURES, FIXTURES
from tests.model.huggingface.test_export import adapted, load

from dovetail_model.adapter.peft import Peft
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.source.folder import Folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.slow,  # `make test-slow` installs them
    pytest.mark.filterwarnings("ignore"),  # what they deprecate is not ours to mend
]

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])


def theirs(folder, adapter=None):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if adapter is not None:
        model = pytest.importorskip("peft").PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        return model.eval()(torch.tensor(TOKENS)).logits.numpy()


def ours(model):
    tokens = jnp.asarray(TOKENS, jnp.int32)
    return nnx.jit(lambda model: model.logits(model(tokens, jnp.ones_like(tokens, bool))[0]))(model)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_merged_model(architecture, tmp_path):
    model = adapted(load(FIXTURES / architecture))
    save_pretrained(tmp_path, model, source=Folder(FIXTURES / architecture), shard_bytes=8000)
    assert np.abs(ours(model) - theirs(FIXTURES / architecture)).max() > 0.1
    np.testing.assert_allclose(ours(model), theirs(tmp_path), atol=1e-4)


@pytest.mark.parametrize("modules", [".*", r".*\.1\..*(q|down)_proj"])
@pytest.mark.parametrize("architecture", ["qwen2", "gemma2", "gemma3"])
def test_an_adapter(architecture, modules, tmp_path):
    model = adapted(load(FIXTURES / architecture), modules=modules)
    save_adapter(tmp_path, model, base=str(FIXTURES / architecture))
    np.testing.assert_allclose(ours(model), theirs(FIXTURES / architecture, tmp_path), atol=1e-4)


@pytest.mark.parametrize("stabilized", [False, True])
def test_an_adapter_of_theirs_is_trained_on(stabilized, tmp_path):
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(FIXTURES / "qwen2", dtype=torch.float32)
    settings = {"r": 4, "lora_alpha": 6, "use_rslora": stabilized, "target_modules": ["q_proj", "down_proj"]}
    settings |= {"rank_pattern": {"layers.0.*q_proj": 2}, "alpha_pattern": {"layers.1.*down_proj": 9}}
    model = peft.get_peft_model(base, peft.LoraConfig(**settings, init_lora_weights=False))
    model.save_pretrained(tmp_path)
    found = Peft(path=str(tmp_path)).apply(load(FIXTURES / "qwen2"), rngs=nnx.Rngs(0))
    np.testing.assert_allclose(ours(found), theirs(FIXTURES / "qwen2", tmp_path), atol=1e-4)
    assert np.abs(ours(found) - ours(load(FIXTURES / "qwen2"))).max() > 0.1


PUBLISHED = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "model_type": "gemma3_text",
    "num_hidden_layers": 7,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 4,
}
"""As much as the `text_config` of the published Gemma 3 4B says, with other sizes."""


def test_what_a_published_gemma_3_leaves_out(tmp_path):
    file = tmp_path / "whole" / "config.json"
    values = json.loads((FIXTURES / "gemma3" / "config.json").read_text()) | {"text_config": PUBLISHED}
    config = transformers.AutoConfig.for_model(**values)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(file.parent)
    file.write_text(json.dumps(values))
    model = load(file.parent)
    assert model.spec.vocab_size == 262_208
    np.testing.assert_allclose(ours(model), theirs(file.parent), atol=1e-5)
    save_pretrained(tmp_path / "out", model, source=Folder(file.parent))
    alone = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(alone).__name__ == "Gemma3ForCausalLM"
    np.testing.assert_allclose(theirs(tmp_path / "out"), theirs(file.parent), atol=1e-5)
