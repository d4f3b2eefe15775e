"""What we write, `transformers` and `peft` load, and compute with it what we do. Skipped where they are not installed."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import ARCHITECTURES, FIXTURES
from tests.model.huggingface.test_export import adapted, load

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
@pytest.mark.parametrize("architecture", ["qwen2", "gemma2"])
def test_an_adapter(architecture, modules, tmp_path):
    model = adapted(load(FIXTURES / architecture), modules=modules)
    save_adapter(tmp_path, model, base=str(FIXTURES / architecture))
    np.testing.assert_allclose(ours(model), theirs(FIXTURES / architecture, tmp_path), atol=1e-4)
