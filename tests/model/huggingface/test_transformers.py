"""What we write, `transformers` and `peft` load, and compute with it what we do. Skipped where they are not installed."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import ARCHITECTURES, FIXTURES
from tests.model.huggingface.test_export import adapted, load

from dovetail.training.models import split
from dovetail_model.adapter.lora import linears
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
@pytest.mark.parametrize("decomposed", [False, True])
def test_an_adapter(architecture, modules, decomposed, tmp_path):
    model = adapted(load(FIXTURES / architecture), modules=modules, weight_decomposed=decomposed)
    save_adapter(tmp_path, model, base=str(FIXTURES / architecture))
    np.testing.assert_allclose(ours(model), theirs(FIXTURES / architecture, tmp_path), atol=1e-4)


def adapted_by_peft(folder, **settings):
    """Their model with an adapter that is not zero, of several ranks and scales, which is written to a folder."""
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(
        FIXTURES / "qwen2", dtype=torch.float32, attn_implementation="eager"
    )
    settings = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]} | settings
    settings |= {"rank_pattern": {"layers.0.*q_proj": 2}, "alpha_pattern": {"layers.1.*down_proj": 9}}
    model = peft.get_peft_model(base, peft.LoraConfig(**settings, init_lora_weights=False))
    for name, parameter in model.named_parameters():
        if "lora_magnitude_vector" in name:
            parameter.data *= 1 + 0.3 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"use_dora": True}], ids=str)
def test_an_adapter_of_theirs_is_trained_on(settings, tmp_path):
    adapted_by_peft(tmp_path, **settings)
    found = Peft(path=str(tmp_path)).apply(load(FIXTURES / "qwen2"), rngs=nnx.Rngs(0))
    np.testing.assert_allclose(ours(found), theirs(FIXTURES / "qwen2", tmp_path), atol=1e-4)
    assert np.abs(ours(found) - ours(load(FIXTURES / "qwen2"))).max() > 0.1


class Masked(torch.nn.Module):
    """Their dropout, with what ours has drawn."""

    def __init__(self, mask):
        super().__init__()
        self.mask = torch.tensor(np.asarray(mask))

    def forward(self, x):
        return x * self.mask.reshape(x.shape)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_of_a_dora_adapter(dropout, tmp_path):
    theirs = adapted_by_peft(tmp_path, use_dora=True, lora_dropout=dropout).train()
    model = Peft(path=str(tmp_path), dropout=dropout).apply(load(FIXTURES / "qwen2"), rngs=nnx.Rngs(0))
    tokens = jnp.asarray(TOKENS, jnp.int32)
    keys = jax.random.split(jax.random.key(0), tokens.shape) if dropout else None
    modules = {name.removeprefix("base_model.model."): module for name, module in theirs.named_modules()}
    for name, linear in linears(model).items() if dropout else ():
        if linear.change is not None:
            mask = linear.change.dropped(jnp.ones((tokens.size, linear.inputs)), keys.reshape(-1))
            modules[name].lora_dropout["default"] = Masked(mask)

    def loss(model):
        hidden, _ = model(tokens, jnp.ones_like(tokens, bool), **({} if keys is None else {"keys": keys}))
        return jnp.sum(jnp.sin(model.logits(hidden)))

    graphdef, weights = split(model)
    found = jax.jit(jax.grad(lambda trained: loss(nnx.merge(graphdef, trained, weights.frozen))))(weights.trained)
    total = torch.sin(theirs(torch.tensor(TOKENS)).logits).sum()
    total.backward()
    assert float(loss(model)) == pytest.approx(total.item(), abs=1e-2)
    gradients = linears(nnx.merge(graphdef, found, weights.frozen))
    for name, linear in gradients.items():
        if linear.change is not None:
            module = modules[name]
            for ours, others in ((linear.change.a, module.lora_A), (linear.change.b, module.lora_B)):
                np.testing.assert_allclose(ours[...].T, others["default"].weight.grad, atol=1e-3)
            magnitude = module.lora_magnitude_vector["default"].weight
            np.testing.assert_allclose(linear.change.growth[...], magnitude.grad, atol=1e-3)


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
