"""Qwen3-MoE beyond what every architecture is tested for: both layouts of experts, gradients, adapters, refusals."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.devices import EIGHT
from tests.model.folders import FIXTURES, arrays_of, config_of, write
from tests.model.huggingface.test_export import adapted, load

from dovetail.errors import ConfigError
from dovetail.field.logps import logps
from dovetail_model.huggingface.config import FILE, HuggingFaceConfig
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.spellings import with_old_spellings
from dovetail_model.source.folder import Folder

MOE = FIXTURES / "qwen3_moe"
TOKENS = jnp.arange(6)[None]


def spec_of(**changes):
    return read_spec(HuggingFaceConfig(FILE, config_of("qwen3_moe") | changes))


def fused(arrays):
    """The layout that transformers 5 writes with save_original_format=False."""
    found = {name: array for name, array in arrays.items() if ".experts." not in name}
    for layer in (0, 2):
        prefix = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            np.stack([arrays[f"{prefix}.{expert}.{name}_proj.weight"] for expert in range(4)])
            for name in ("gate", "up", "down")
        )
        found |= {f"{prefix}.gate_up_proj": np.concatenate([gate, up], axis=1), f"{prefix}.down_proj": down}
    return found


def hidden(model):
    return nnx.jit(lambda model: model(TOKENS, jnp.ones_like(TOKENS, bool))[0])(model)


@pytest.mark.slow
def test_gradients_are_those_of_transformers():
    with np.load(MOE / "reference.npz") as stored:
        arrays = {name.removeprefix("leftpad/"): array for name, array in stored.items()}
    tokens, mask = jnp.asarray(arrays["input_ids"], jnp.int32), jnp.asarray(arrays["attention_mask"], bool)

    @nnx.jit
    @nnx.grad
    def gradients(model):
        scored = logps(model.logits(model(tokens, mask)[0])[:, :-1], tokens[:, 1:])
        return jnp.sum(jnp.where(mask[:, :-1], scored, 0.0))

    found = gradients(load(MOE)).blocks
    for layer in (0, 2):
        expected = arrays[f"gradient/model.layers.{layer}.mlp.gate.weight"]
        np.testing.assert_allclose(found[layer].ffn.router[...], expected, atol=1e-4)
    experts = found[0].ffn.experts
    both = jnp.concatenate([experts.gate.kernel[...], experts.up.kernel[...]], axis=2)
    for ours, name in ((both, "gate_up_proj"), (experts.down.kernel[...], "down_proj")):
        expected = arrays[f"gradient/model.layers.0.mlp.experts.{name}"]
        np.testing.assert_allclose(ours.swapaxes(1, 2), expected, atol=1e-4)


def test_experts_stored_as_one_tensor_are_the_same_model(tmp_path):
    other = load(write(tmp_path / "fused", fused(arrays_of(MOE)), config_of("qwen3_moe")))
    assert jax.tree.all(jax.tree.map(np.array_equal, nnx.state(load(MOE)), nnx.state(other)))
    save_pretrained(tmp_path / "out", other, source=Folder(tmp_path / "fused"), dtype="bfloat16")
    written, original = arrays_of(tmp_path / "out"), arrays_of(MOE)
    assert written.keys() == original.keys()
    assert all(np.array_equal(written[name], array) for name, array in original.items())


@pytest.mark.slow
def test_an_adapter_on_experts_is_merged(tmp_path):
    model = adapted(load(MOE), modules=r".*\.experts\.(up|down)_proj")
    save_pretrained(tmp_path, model, source=Folder(MOE))
    assert np.abs(hidden(model) - hidden(load(MOE))).max() > 0.1
    np.testing.assert_allclose(hidden(model), hidden(load(tmp_path)), atol=1e-4)


def test_what_experts_do_not_support_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="experts.down_proj and others have an adapter for each expert"):
        save_adapter(tmp_path, adapted(load(MOE)), base=str(MOE))
    save_adapter(tmp_path, adapted(load(MOE), modules=r".*\.(q|down)_proj(?<!experts.down_proj)"), base=str(MOE))
    with pytest.raises(ConfigError, match="quantise_base is not supported on experts"):
        adapted(load(MOE), quantise_base="nf4")
    with pytest.raises(ConfigError, match="dropout is not supported on experts"):
        adapted(load(MOE), dropout=0.1)
    with pytest.raises(ConfigError, match=r"weight_decomposed is not supported on experts; .* such as '\(\?!\.\*exp"):
        adapted(load(MOE), weight_decomposed=True)
    model = adapted(load(MOE), weight_decomposed=True, modules="(?!.*experts).*")
    save_pretrained(tmp_path / "whole", model, source=Folder(MOE))
    np.testing.assert_allclose(hidden(model), hidden(load(tmp_path / "whole")), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.layers.0.mlp.experts.2.up_proj.weight", r"up_proj.weight is \[3, 8, 16\] and should be \[4, 8, 16\]"),
        ("model.layers.2.mlp.gate.weight", "missing: model.layers.2.mlp.gate.weight"),
    ],
)
def test_a_folder_that_lacks_a_tensor_is_refused(name, message, tmp_path):
    arrays = arrays_of(MOE)
    del arrays[name]
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, arrays, config_of("qwen3_moe")))


def test_which_layers_have_experts():
    assert spec_of().sparsity.layers == (0, 2)
    assert spec_of(decoder_sparse_step=2, mlp_only_layers=[]).sparsity.layers == (1,)
    assert spec_of(mlp_only_layers=[0, 1, 2]).sparsity is None


def test_older_spellings_say_the_same():
    values = with_old_spellings(config_of("qwen3_moe"))
    assert values.pop("num_local_experts") == values["num_experts"]
    assert read_spec(HuggingFaceConfig(FILE, values)) == spec_of()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 5}, r"num_experts_per_tok = 5, but there are only 4 experts \(num_local_experts\)"),
        ({"mlp_only_layers": [3]}, "mlp_only_layers has 3; there are the layers 0 to 2"),
        ({"num_local_experts": None}, "'num_local_experts' is missing"),
    ],
)
def test_configs_that_cannot_be_read_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        spec_of(**changes)


@pytest.mark.slow
def test_loss_and_gradients_do_not_depend_on_the_mesh():
    command = [sys.executable, "-m", "tests.model.architecture.sharded_experts"]
    done = subprocess.run(
        command, env=EIGHT, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
