"""A model in a GGUF file is the model in the folder that it was made from."""

import json

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import FIXTURES, arrays_of, write
from tests.model.gguf_files import (
    ARCHITECTURES,
    config_that_fits,
    metadata_of,
    tensors_of,
    write_fixture,
    write_gguf,
)

from dovetail.errors import ConfigError
from dovetail_model.layers.rope import Rope, Stretch
from dovetail_model.model.pretrained import Pretrained

VOCAB = 32


def make(path, **settings):
    return Pretrained(path=str(path), **settings).make(VOCAB, rngs=nnx.Rngs(0))


@pytest.fixture(params=ARCHITECTURES)
def pair(request, tmp_path):
    """The same model as a folder and as a GGUF file."""
    folder = write(tmp_path / "folder", arrays_of(FIXTURES / request.param), config_that_fits(request.param))
    return folder, write_fixture(tmp_path / "model.gguf", request.param)


def test_sizes_and_weights_are_the_folder_s(pair):
    folder, file = map(make, pair)
    assert file.spec == folder.spec
    jax.tree.map(np.testing.assert_array_equal, nnx.state(file), nnx.state(folder))


def test_what_is_exported_is_the_folder_s_model(pair, tmp_path):
    maker = Pretrained(path=str(pair[1]), param_dtype="bfloat16")
    maker.export(make(pair[1], param_dtype="bfloat16"), tmp_path / "out", adapter=False)
    again, folder = make(tmp_path / "out"), make(pair[0])
    assert again.spec == folder.spec
    jax.tree.map(np.testing.assert_array_equal, nnx.state(again), nnx.state(folder))


def test_an_abstract_model_needs_no_tensor(pair):
    abstract = Pretrained(path=str(pair[1])).abstract(VOCAB)
    assert nnx.graphdef(abstract) == nnx.graphdef(make(pair[0]))


def test_llama_3_s_stretched_positions_are_found_again(tmp_path):
    plain = 500_000.0 ** (-np.arange(0, 64, 2) / 64)
    rule = Stretch(factor=32.0, low=1.0, high=4.0, original=8192)
    sizes = {"embedding_length": 16, "attention.key_length": 64, "rope.freq_base": 500_000.0}
    factors = (plain / rule(plain)).astype(np.float32)
    tensors = {"token_embd.weight": np.zeros((VOCAB, 16), np.float32), "rope_freqs.weight": factors}
    file = write_gguf(tmp_path / "llama.gguf", "llama", tensors, metadata_of(FIXTURES / "llama") | sizes)
    assert Pretrained(path=str(file)).spec().layers[0].rope == Rope(theta=500_000.0, stretch=rule)
    tensors["rope_freqs.weight"] = factors**2
    file = write_gguf(tmp_path / "other.gguf", "llama", tensors, metadata_of(FIXTURES / "llama") | sizes)
    with pytest.raises(ConfigError, match="rope_freqs.weight does not follow Llama 3.1's rule for rotary positions"):
        Pretrained(path=str(file)).spec()


def test_positions_may_be_stretched_by_a_factor(tmp_path):
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    spec = Pretrained(path=str(write_fixture(tmp_path / "g.gguf", "gemma3_text", **scaling, block_count=6))).spec()
    near, far = spec.layers[0].rope, spec.layers[5].rope
    assert (near.factor, far.factor, near.theta, far.theta) == (1.0, 8.0, 10_000.0, 1_000_000.0)
    with pytest.raises(ConfigError, match=r"g\.gguf: qwen2\.rope\.scaling\.type = 'yarn'; supported are linear, none"):
        Pretrained(
            path=str(write_fixture(tmp_path / "g.gguf", "qwen2", **scaling | {"rope.scaling.type": "yarn"}))
        ).spec()


@pytest.mark.parametrize(
    ("metadata", "config"),
    [
        ({}, {}),
        ({"rope.freq_base_swa": 500.0}, {"rope_local_base_freq": 500.0}),
        ({"final_logit_softcapping": 30.0}, {"final_logit_softcapping": 30.0}),
        (
            {"block_count": 62, "attention.head_count": 2, "attention.head_count_kv": 1},
            {
                "num_hidden_layers": 62,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "query_pre_attn_scalar": 8,
            },
        ),
    ],
)
def test_a_file_of_a_larger_gemma_3_describes_the_text_tower_of_its_folder(metadata, config, tmp_path):
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "block_count": 34}
    file = write_fixture(tmp_path / "g.gguf", "gemma3_text", **scaling | metadata)
    plain = config_that_fits("gemma3_text")
    sizes = {name: plain[name] for name in plain if not name.startswith(("rope", "_", "layer_types"))}
    text = sizes | {"num_hidden_layers": 34, "rope_scaling": {"rope_type": "linear", "factor": 8.0}} | config
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    folder = attrs.evolve(Pretrained(path=str(tmp_path)).spec(), tower=None)
    assert Pretrained(path=str(file)).spec() == folder


def test_the_largest_gemma_scales_queries_by_its_width(tmp_path):
    file = write_fixture(tmp_path / "g.gguf", "gemma2", block_count=46)
    assert Pretrained(path=str(file)).spec().query_scale == (16 / 4) ** -0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": 8}, "llama.expert_count is not 0; mixtures of experts are not supported"),
        ({"attention.value_length": 8}, "keys and values have different lengths"),
        ({"attention.head_count": 0}, "llama.attention.head_count = 0; it must be a whole number of at least 1"),
        ({"attention.head_count": ["4", "4"]}, "llama.attention.head_count = '4'; it must be a whole number"),
        ({"attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv differs from layer to layer"),
        ({"rope.dimension_count": 4}, "partial_rotary_factor is not 1"),
        ({"attention.head_count": 4.0}, "llama.attention.head_count = 4.0; it must be of type int"),
        ({"split.count": 3}, "one of 3 parts of a model; join them with `llama-gguf-split --merge`"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_file(changes, message, tmp_path):
    file = write_fixture(tmp_path / "model.gguf", "llama", **changes)
    with pytest.raises(ConfigError, match=f"^{file}: {message}"):
        Pretrained(path=str(file)).spec()


def test_another_architecture_is_refused_with_those_there_are(tmp_path):
    file = write_gguf(tmp_path / "bert.gguf", "gemma", {}, {})
    with pytest.raises(ConfigError) as error:
        Pretrained(path=str(file)).spec()
    assert str(error.value) == (
        f"{file}: general.architecture = 'gemma' is not supported. Did you mean 'gemma3'?"
        " Supported: gemma2, gemma3, llama, qwen2, qwen3"
    )


def test_tensors_that_are_missing_or_unknown_are_named(tmp_path):
    tensors = tensors_of(FIXTURES / "qwen2")
    tensors["blk.0.ssm_a"] = tensors.pop("blk.1.attn_v.bias")
    file = write_gguf(tmp_path / "m.gguf", "qwen2", tensors, metadata_of(FIXTURES / "qwen2"))
    with pytest.raises(ConfigError) as error:
        make(file)
    assert str(error.value) == (
        f"{file}: the tensors do not fit its metadata; missing: model.layers.1.self_attn.v_proj.bias;"
        " unexpected: blk.0.ssm_a"
    )
    del tensors["token_embd.weight"]
    with pytest.raises(ConfigError, match="it has no tensor token_embd.weight; is it a whole model"):
        make(write_gguf(file, "qwen2", tensors, metadata_of(FIXTURES / "qwen2")))


def test_a_file_that_changes_is_read_again(tmp_path):
    file = write_fixture(tmp_path / "m.gguf", "qwen2")
    first = Pretrained(path=str(file)).spec()
    write_fixture(file, "qwen2", **{"rope.freq_base": 77.0, "general.name": "another"})
    assert Pretrained(path=str(file)).spec() == attrs.evolve(
        first, layers=tuple(attrs.evolve(layer, rope=Rope(theta=77.0)) for layer in first.layers)
    )
