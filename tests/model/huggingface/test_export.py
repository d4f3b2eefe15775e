import json
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import ARCHITECTURES, FIXTURES, arrays_of, config_of

from dovetail.errors import ConfigError, DovetailWarning
from dovetail_model.adapter.lora import LoRA, linears
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.huggingface.safetensors import open_file
from dovetail_model.layers.decomposed import Decomposed
from dovetail_model.model.decoder import Decoder
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.source.folder import Folder


def load(folder, **settings):
    return Pretrained(path=str(folder), **settings).make(1, rngs=nnx.Rngs(0))


def adapted(model, **settings):
    """The model with an adapter that is not zero."""
    model = LoRA(rank=2, alpha=3.0, **settings).apply(model, rngs=nnx.Rngs(1))
    for linear in linears(model).values():
        if linear.change is not None:
            linear.change.b[...] = jax.random.normal(jax.random.key(0), linear.change.b.shape)
            if isinstance(linear.change, Decomposed):
                linear.change.growth[...] = 0.3 * jax.random.normal(jax.random.key(2), linear.change.growth.shape)
    return model


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "gemma3"])
def test_what_is_written_is_what_was_read(architecture, param_dtype, tmp_path):
    source = FIXTURES / architecture
    save_pretrained(tmp_path, load(source, param_dtype=param_dtype), source=Folder(source))
    there, here = arrays_of(source), arrays_of(tmp_path)
    assert here.keys() == there.keys()
    for name, array in there.items():
        assert here[name].dtype == param_dtype
        np.testing.assert_array_equal(here[name], array.astype(param_dtype), err_msg=name)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.items() >= (config_of(architecture) | {"dtype": param_dtype, "torch_dtype": param_dtype}).items()


def test_parameters_return_bit_for_bit_through_several_files(tmp_path):
    model = load(FIXTURES / "gemma3_text")
    nnx.update(model, jax.tree.map(lambda leaf: leaf * 1.001, nnx.state(model)))
    files = save_pretrained(tmp_path, model, source=Folder(FIXTURES / "gemma3_text"), shard_bytes=8000)
    assert len(files) > 2
    jax.tree.map(np.testing.assert_array_equal, nnx.state(load(tmp_path)), nnx.state(model))


def test_an_export_that_is_interrupted_leaves_no_mixture_of_two_models(tmp_path, monkeypatch):
    model = load(FIXTURES / "qwen2")
    first, *others = save_pretrained(tmp_path, model, source=Folder(FIXTURES / "qwen2"), shard_bytes=8000)
    assert others
    before = first.read_bytes()
    nnx.update(model, jax.tree.map(lambda leaf: leaf * 2, nnx.state(model)))
    replace, done = os.replace, []

    def killed_at_the_second(*files):
        if done:
            raise KeyboardInterrupt
        done.append(replace(*files))

    monkeypatch.setattr(os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        save_pretrained(tmp_path, model, source=Folder(FIXTURES / "qwen2"), shard_bytes=8000)
    assert first.read_bytes() != before
    with pytest.raises(ConfigError, match="has no config.json"):
        load(tmp_path)


def test_the_tokenizer_s_files_come_along(tmp_path):
    source = tmp_path / "source"
    save_pretrained(source, load(FIXTURES / "qwen2"), source=Folder(FIXTURES / "qwen2"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "notes.txt"):
        (source / name).write_text(name)
    save_pretrained(tmp_path / "again", load(source), source=Folder(source))
    copied = {file.name for file in (tmp_path / "again").iterdir()}
    assert copied == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    }
    save_pretrained(source, load(source), source=Folder(source))  # over itself
    assert (source / "tokenizer.json").read_text() == "tokenizer.json"


@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_given_by_its_sizes_is_a_llama(tied, tmp_path):
    model = Decoder(width=16, layers=2, heads=4, kv_heads=2, ffn=24, tied=tied).make(11, rngs=nnx.Rngs(0))
    save_pretrained(tmp_path, model)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"
    jax.tree.map(np.testing.assert_array_equal, nnx.state(load(tmp_path)), nnx.state(model))


def test_makers_export_what_they_made(tmp_path):
    maker = Pretrained(path=str(FIXTURES / "qwen2"))
    model = adapted(maker.make(1, rngs=nnx.Rngs(0)))
    maker.export(model, tmp_path / "whole", adapter=False)
    maker.export(model, tmp_path / "adapter", adapter=True)
    assert arrays_of(tmp_path / "whole").keys() == arrays_of(FIXTURES / "qwen2").keys()
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(FIXTURES / "qwen2")
    maker = Decoder(width=16, layers=1, heads=2, kv_heads=1)
    model = adapted(maker.make(11, rngs=nnx.Rngs(0)))
    maker.export(model, tmp_path / "sizes", adapter=False)
    with pytest.raises(ConfigError, match="has no folder that an adapter could refer to; export it whole"):
        maker.export(model, tmp_path / "sizes-adapter", adapter=True)
    assert load(tmp_path / "sizes").spec.width == 16
    with pytest.raises(ConfigError, match="Linear is not a decoder of dovetail_model"):
        maker.export(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), tmp_path, adapter=False)


def test_another_model_s_config_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"qwen3/config.json: does not describe the model to write \(.*names.*\)"):
        save_pretrained(tmp_path / "out", load(FIXTURES / "gemma2"), source=Folder(FIXTURES / "qwen3"))
    with pytest.raises(ConfigError, match=r"the model is not a Llama \(.*qk_norm.*\); name the folder it comes from"):
        save_pretrained(tmp_path / "out", load(FIXTURES / "qwen3"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("decomposed", [False, True])
def test_adapters_are_merged(decomposed, tmp_path):
    model = adapted(load(FIXTURES / "llama"), modules=".*_proj", weight_decomposed=decomposed)
    save_pretrained(tmp_path, model, source=Folder(FIXTURES / "llama"))
    name = "model.layers.1.mlp.gate_proj"
    linear = linears(model)[name]
    by_hand = linear.kernel[...] + 3.0 / 2 * linear.change.a[...] @ linear.change.b[...]
    if decomposed:
        magnitude = jnp.linalg.norm(linear.kernel[...], axis=0) + linear.change.growth[...]
        by_hand *= (magnitude / jnp.linalg.norm(by_hand, axis=0))[None, :]
    np.testing.assert_allclose(arrays_of(tmp_path)[f"{name}.weight"], by_hand.T, atol=1e-6)
    tokens = jnp.array([[3, 1, 4, 1, 5]])
    whole, merged = (each.logits(each(tokens, jnp.ones_like(tokens, bool))[0]) for each in (model, load(tmp_path)))
    np.testing.assert_allclose(merged, whole, atol=1e-4)


def small_change(model):
    """The model with an adapter whose change is far below the spacing of bfloat16 at most weights."""
    model = adapted(model)
    for linear in linears(model).values():
        linear.change.b[...] *= 1e-4
    return model


def test_a_merge_that_rounds_the_adapter_away_is_measured_and_said(tmp_path):
    source = FIXTURES / "qwen2"
    maker = Pretrained(path=str(source), param_dtype="bfloat16")
    model = small_change(maker.make(1, rngs=nnx.Rngs(0)))
    with pytest.warns(DovetailWarning, match=r"rounding to bfloat16 loses \d+ % of the adapter") as said:
        maker.export(model, tmp_path / "same", adapter=False)
    assert "--dtype float32" in str(said[0].message)
    before, after = arrays_of(source), arrays_of(tmp_path / "same")
    lost = change = 0.0
    for name, linear in linears(model).items():
        trained = np.asarray(linear.change.product()).T
        kept = after[f"{name}.weight"].astype("f4") - before[f"{name}.weight"].astype("bfloat16").astype("f4")
        lost, change = lost + np.sum((kept - trained) ** 2), change + np.sum(trained**2)
    share = int(re.search(r"(\d+) %", str(said[0].message)).group(1))
    assert share == pytest.approx(100 * np.sqrt(lost / change), abs=1)
    assert share > 50

    maker.export(model, tmp_path / "wide", adapter=False, dtype="float32")
    assert {array.dtype.name for array in arrays_of(tmp_path / "wide").values()} == {"float32"}
    assert json.loads((tmp_path / "wide" / "config.json").read_text())["dtype"] == "float32"
    for name, linear in linears(model).items():
        merged = np.asarray(linear.kernel[...]).astype("f4") + np.asarray(linear.change.product())
        np.testing.assert_allclose(arrays_of(tmp_path / "wide")[f"{name}.weight"], merged.T, rtol=1e-6)


def test_an_adapter_that_has_learnt_nothing_loses_nothing(tmp_path):
    model = LoRA(rank=2).apply(load(FIXTURES / "qwen2", param_dtype="bfloat16"), rngs=nnx.Rngs(1))
    save_pretrained(tmp_path, model, source=Folder(FIXTURES / "qwen2"))


def test_a_type_may_be_asked_for_without_an_adapter(tmp_path):
    maker = Decoder(width=16, layers=1, heads=2, kv_heads=1)
    model = maker.make(11, rngs=nnx.Rngs(0))
    maker.export(model, tmp_path, adapter=False, dtype="bfloat16")
    assert {array.dtype.name for array in arrays_of(tmp_path).values()} == {"bfloat16"}
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"
    maker = Pretrained(path=str(FIXTURES / "qwen2"))
    with pytest.raises(ConfigError, match="an adapter is written in float32, as it is trained"):
        maker.export(adapted(load(FIXTURES / "qwen2")), tmp_path / "a", adapter=True, dtype="bfloat16")


def test_a_quantised_base_is_written_dense(tmp_path):
    model = adapted(load(FIXTURES / "qwen2", param_dtype="bfloat16"), quantise_base="nf4")
    save_pretrained(tmp_path, model, source=Folder(FIXTURES / "qwen2"))
    written = arrays_of(tmp_path)
    assert {name: array.shape for name, array in written.items()} == {
        name: array.shape for name, array in arrays_of(FIXTURES / "qwen2").items()
    }
    assert {array.dtype.name for array in written.values()} == {"bfloat16"}


def test_an_adapter_alone_is_written_as_peft_has_it(tmp_path):
    model = adapted(load(FIXTURES / "qwen2"), modules=r".*\.(q_proj|down_proj)")
    save_adapter(tmp_path, model, base=str(FIXTURES / "qwen2"))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config == {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(FIXTURES / "qwen2"),
        "r": 2,
        "lora_alpha": 3.0,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": ["down_proj", "q_proj"],
    }
    stored = open_file(tmp_path / "adapter_model.safetensors")
    assert len(stored) == 2 * 2 * 2
    down = linears(model)["model.layers.1.mlp.down_proj"].change
    prefix = "base_model.model.model.layers.1.mlp.down_proj"
    np.testing.assert_array_equal(stored[f"{prefix}.lora_A.weight"].read(), down.a[...].T)
    np.testing.assert_array_equal(stored[f"{prefix}.lora_B.weight"].read(), down.b[...].T)


def test_an_adapter_with_magnitudes_has_a_third_tensor_for_each_matrix(tmp_path):
    model = adapted(load(FIXTURES / "qwen2"), modules=r".*\.(q|down)_proj", weight_decomposed=True)
    save_adapter(tmp_path, model, base=str(FIXTURES / "qwen2"))
    assert json.loads((tmp_path / "adapter_config.json").read_text())["use_dora"] is True
    stored = open_file(tmp_path / "adapter_model.safetensors")
    assert len(stored) == 3 * 2 * 2
    down = linears(model)["model.layers.1.mlp.down_proj"]
    found = stored["base_model.model.model.layers.1.mlp.down_proj.lora_magnitude_vector"].read()
    magnitude = jnp.linalg.norm(down.kernel[...], axis=0) + down.change.growth[...]
    np.testing.assert_allclose(found, magnitude, rtol=1e-6)


def test_an_adapter_of_some_layers_names_them(tmp_path):
    save_adapter(tmp_path, adapted(load(FIXTURES / "qwen2"), modules=r".*\.1\..*q_proj"), base=str(FIXTURES / "qwen2"))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["model.layers.1.self_attn.q_proj"]


def test_a_model_without_an_adapter_has_none_to_write(tmp_path):
    with pytest.raises(ConfigError, match="the model has no adapter; write it whole"):
        save_adapter(tmp_path, load(FIXTURES / "qwen2"), base=str(FIXTURES / "qwen2"))
