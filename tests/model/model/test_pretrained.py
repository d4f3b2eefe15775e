import json
import math
import subprocess
import sys
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from tests.devices import EIGHT
from tests.model.folders import ARCHITECTURES, FIXTURES, arrays_of, config_of, write

import dovetail
from dovetail.errors import ConfigError
from dovetail.registry import current
from dovetail_model.attention.view import views
from dovetail_model.huggingface.config import HuggingFaceConfig, common
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.layers.rope import Rope, Stretch, Yarn
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.spec import Layer

VOCAB = 32


def make(folder, vocab=VOCAB, **settings):
    return Pretrained(path=str(folder), **settings).make(vocab, rngs=nnx.Rngs(0))


def spec_of(**values):
    return read_spec(HuggingFaceConfig(Path("config.json"), values))


# The configs of published models, as their folders have them, less what no decoder reads.
GEMMA2_2B = {
    "model_type": "gemma2",
    "attention_bias": False,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
GEMMA3_1B = {
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27},
}
GEMMA3_12B = GEMMA3_4B | {
    "text_config": GEMMA3_4B["text_config"]
    | {
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
    }
}
GEMMA3_27B = GEMMA3_4B | {
    "text_config": GEMMA3_4B["text_config"]
    | {
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "query_pre_attn_scalar": 168,
    }
}
LLAMA32_1B = {
    "model_type": "llama",
    "attention_bias": False,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
MISTRAL_7B = {
    "model_type": "mistral",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN25_05B = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_window_layers": 21,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_06B = {
    **QWEN25_05B,
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "sliding_window": None,
}
SMOLLM3_3B = {
    "model_type": "smollm3",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "no_rope_layer_interval": 4,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 4,
    "rope_theta": 5000000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
OLMO2_1B = {
    "model_type": "olmo2",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 16,
    "num_key_value_heads": 16,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "vocab_size": 100352,
}
OLMO3_7B = {
    "model_type": "olmo3",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 65536,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "rope_scaling": {
        "attention_factor": 1.2079441541679836,
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "yarn",
    },
    "rope_theta": 500000,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 100278,
}
PHI4_MINI = {
    "model_type": "phi3",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_attention_heads": 24,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    "sliding_window": 262144,
    "tie_word_embeddings": True,
    "vocab_size": 200064,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (GEMMA2_2B, 2_614_341_888),
        (GEMMA3_1B, 999_885_952),
        (GEMMA3_4B, 3_880_263_168),
        (GEMMA3_12B, 11_766_034_176),
        (GEMMA3_27B, 27_009_346_304),
        (LLAMA32_1B, 1_235_814_400),
        (MISTRAL_7B, 7_241_732_096),
        (QWEN25_05B, 494_032_768),
        (QWEN3_06B, 596_049_920),
        (PHI4_MINI, 3_836_021_760),
        (SMOLLM3_3B, 3_075_098_624),
        (OLMO2_1B, 1_484_916_736),
        (OLMO3_7B, 7_298_011_136),
        (QWEN3_30B_A3B, 30_532_122_624),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_published_models_have_as_many_parameters_as_published(config, parameters, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    abstract = Pretrained(path=str(tmp_path)).abstract(None)
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(abstract))) == parameters


def test_layers_of_published_models():
    near, far = Layer(Rope(theta=10_000.0), 512), Layer(Rope(theta=1_000_000.0))
    assert spec_of(**GEMMA3_1B).layers == ((near,) * 5 + (far,)) * 4 + (near, near)
    near, far = Layer(Rope(theta=10_000.0), 1024), Layer(Rope(theta=1_000_000.0, factor=8.0))
    assert spec_of(**GEMMA3_4B).layers == ((near,) * 5 + (far,)) * 5 + (near,) * 4
    assert spec_of(**GEMMA3_27B).query_scale == 168**-0.5
    sliding, full = Layer(Rope(theta=10_000.0), 4096), Layer(Rope(theta=10_000.0))
    assert spec_of(**GEMMA2_2B).layers == (sliding, full) * 13
    assert spec_of(**MISTRAL_7B).layers == (sliding,) * 32
    stretch = Stretch(factor=32.0, low=1.0, high=4.0, original=8192)
    assert set(spec_of(**LLAMA32_1B).layers) == {Layer(Rope(theta=500_000.0, stretch=stretch))}
    assert {layer.window for layer in spec_of(**QWEN25_05B).layers} == {None}
    windows = [layer.window for layer in spec_of(**QWEN25_05B | {"use_sliding_window": True}).layers]
    assert windows == [None] * 21 + [32768] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": "896"}, "hidden_size = '896'; it must be of type int"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0; it must be at least 1"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1; it must be of type bool"),
        ({"num_key_value_heads": 3}, "num_attention_heads = 14 is not a multiple of num_key_value_heads = 3"),
        ({"hidden_size": 900}, "hidden_size = 900 is not a multiple of num_attention_heads = 14; give head_dim"),
        ({"head_dim": 63}, "63 units per head; rotary positions rotate pairs, so it must be even"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'; supported are gelu_pytorch_tanh, silu, swish"),
        (
            {"rope_scaling": {"type": "proportional"}},
            "rope_type = 'proportional'; supported are default, dynamic, linear, llama3, yarn",
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'original_max_position_embeddings' is missing"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 0.5}, "max_position_embeddings": 32768},
            "factor = 0.5; YaRN stretches, so it must be at least 1",
        ),
        ({"rope_scaling": {"type": "linear"}}, "'factor' is missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not 1"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for num_hidden_layers = 24"),
        ({"layer_types": ["chunked"] * 24}, "layer_types = 'chunked'; supported are full_attention$"),
        ({"quantization_config": {"bits": 4}}, "the weights are quantised"),
    ],
)
def test_configs_that_cannot_be_read_are_refused(changes, message):
    with pytest.raises(ConfigError, match=f"^config.json: {message}"):
        spec_of(**QWEN25_05B | changes)


def rope_of(**scaling):
    values = QWEN25_05B | {"max_position_embeddings": 4096, "rope_scaling": scaling}
    (rope,) = {layer.rope for layer in spec_of(**values).layers}
    return rope


def test_yarn_reads_what_files_say_and_leave_out():
    given = rope_of(type="yarn", factor=4.0, original_max_position_embeddings=1024)
    assert given.stretch == Yarn(factor=4.0, original=1024)
    assert given.magnitude == pytest.approx(1 + 0.1 * math.log(4))
    assert rope_of(rope_type="yarn", original_max_position_embeddings=1024) == given  # 4096 / 1024
    both = rope_of(rope_type="yarn", factor=4.0, mscale=0.5, mscale_all_dim=2.0)
    assert both.magnitude == pytest.approx((1 + 0.05 * math.log(4)) / (1 + 0.2 * math.log(4)))
    assert rope_of(rope_type="yarn", factor=4.0, attention_factor=0.7).magnitude == 0.7


def test_dynamic_scaling_is_none_up_to_the_original_length_and_refused_beyond():
    rope = rope_of(rope_type="dynamic", factor=2.0)
    assert rope == Rope(theta=1_000_000.0, limit=4096)
    layers = [Layer(attrs.evolve(rope, limit=5))]
    views(layers, 8, jnp.ones((1, 5), bool), None, None)
    with pytest.raises(ConfigError, match="rows of up to 6 tokens; beyond 5 the rotary"):
        views(layers, 8, jnp.ones((1, 6), bool), None, None)


def test_an_unsupported_architecture_is_refused_with_those_there_are():
    with pytest.raises(ConfigError) as error:
        spec_of(model_type="qwen4")
    assert str(error.value) == (
        "config.json: model_type = 'qwen4' is not supported. Did you mean 'qwen3'?"
        f" Supported: {', '.join(dovetail.names('architecture'))};"
        ' a plugin adds one with register("architecture", \'qwen4\', "package.module:function")'
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "qwen2_5_vl", "hidden_size": 8, "vision_config": {}}, "'qwen2_5_vl' is not supported. "),
        (
            {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2_5_vl_text"}, "vision_config": {}},
            "'qwen2_5_vl' ('qwen2_5_vl_text') is not supported. ",
        ),
        (
            {"model_type": "llama4", "text_config": {"model_type": "llama4_text"}, "vision_config": {}},
            "'llama4' ('llama4_text') is not supported. ",
        ),
        (
            {"model_type": "mistral3", "text_config": {"model_type": "mistral"}, "vision_config": {}},
            "'mistral3' ('mistral') is not supported inside it; a folder of this tower alone, with model_type ="
            " 'mistral', is. ",
        ),
    ],
)
def test_a_model_of_several_parts_is_refused_by_its_text_tower(config, message):
    with pytest.raises(ConfigError) as error:
        spec_of(**config)
    name = config["model_type"]
    assert str(error.value) == (
        f"config.json: the text tower of model_type = {message}"
        f"Supported: {', '.join(dovetail.names('architecture'))};"
        f' a plugin adds one with register("architecture", {name!r}, "package.module:function")'
    )


def test_a_plugin_adds_an_architecture(tmp_path):
    def my_llama(config):
        names = {ours: theirs.replace("model.layers", "transformer.h") for ours, theirs in common(config).names.items()}
        return attrs.evolve(common(config), names=names, norm_epsilon=config.get("eps", float))

    if not current().has("architecture", "my_llama"):
        dovetail.register("architecture", "my_llama", my_llama)
    config = config_of("qwen3") | {"model_type": "my-llama", "eps": 0.5}
    arrays = {
        name.replace("model.layers", "transformer.h"): array
        for name, array in arrays_of(FIXTURES / "qwen3").items()
        if "_norm" not in name
    }
    model = make(write(tmp_path, arrays, config))
    assert model.spec.norm_epsilon == 0.5
    np.testing.assert_array_equal(
        model.blocks[1].ffn.up.kernel[...], arrays["transformer.h.1.mlp.up_proj.weight"].T.astype(np.float32)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_abstract_model_is_the_model_without_arrays(architecture):
    maker = Pretrained(path=str(FIXTURES / architecture), param_dtype="bfloat16")
    loaded, abstract = maker.make(VOCAB, rngs=nnx.Rngs(0)), maker.abstract(VOCAB)
    assert nnx.graphdef(loaded) == nnx.graphdef(abstract)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), nnx.state(each)) for each in (loaded, abstract)]
    assert shapes[0] == shapes[1]
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(nnx.state(abstract)))
    with pytest.raises(ConfigError, match="the tokenizer has 33 ids"):
        maker.abstract(33)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_random_weights_need_the_config_alone(architecture, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_of(architecture)))
    model, loaded = make(tmp_path, random=True), make(FIXTURES / architecture)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), nnx.state(each)) for each in (model, loaded)]
    assert shapes[0] == shapes[1]
    assert nnx.graphdef(model) == nnx.graphdef(loaded)
    assert jnp.std(model.embedding[...]) == pytest.approx(0.2, rel=0.2)


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_weights_are_cast(param_dtype):
    model = make(FIXTURES / "qwen2", param_dtype=param_dtype, dtype="bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.state(model))} == {param_dtype}
    stored = arrays_of(FIXTURES / "qwen2")["model.layers.0.mlp.down_proj.weight"]
    assert stored.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(model.blocks[0].ffn.down.kernel[...]), stored.T.astype(param_dtype))
    hidden, _ = model(jnp.ones((1, 3), jnp.int32), jnp.ones((1, 3), bool))
    assert hidden.dtype == jnp.bfloat16


def test_parts_with_an_index_equal_one_file(tmp_path):
    whole = make(FIXTURES / "qwen3")
    parts = make(write(tmp_path, arrays_of(FIXTURES / "qwen3"), config_of("qwen3"), shard_bytes=4000))
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    jax.tree.map(np.testing.assert_array_equal, nnx.state(whole), nnx.state(parts))


def test_nothing_refers_to_the_file_once_loaded(tmp_path):
    model = make(write(tmp_path, arrays_of(FIXTURES / "qwen3"), config_of("qwen3")))
    before = jax.tree.map(np.array, nnx.state(model))
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.write(b"\x7f" * 10_000)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(model), before)


def test_missing_extra_and_misshapen_tensors_are_all_named(tmp_path):
    arrays = arrays_of(FIXTURES / "qwen3")
    del arrays["model.norm.weight"], arrays["model.layers.1.self_attn.q_norm.weight"]
    arrays["model.layers.2.mlp.up_proj.weight"] = arrays["model.layers.1.mlp.up_proj.weight"]
    arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)  # old folders have it
    arrays["lm_head.weight"] = arrays["lm_head.weight"][:-1]
    with pytest.raises(ConfigError) as error:
        make(write(tmp_path, arrays, config_of("qwen3")))
    assert str(error.value) == (
        f"{tmp_path}: the tensors do not fit config.json;"
        " missing: model.layers.1.self_attn.q_norm.weight, model.norm.weight;"
        " unexpected: model.layers.2.mlp.up_proj.weight;"
        " of the wrong shape: lm_head.weight is [31, 16] and should be [32, 16]"
    )


def test_a_copy_of_a_tied_embedding_is_accepted_and_another_table_is_not(tmp_path):
    arrays = arrays_of(FIXTURES / "qwen2")
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    make(write(tmp_path, arrays, config_of("qwen2")))
    arrays["lm_head.weight"][0, 0] += 1
    with pytest.raises(ConfigError, match='another table for them; set "tie_word_embeddings": false'):
        make(write(tmp_path, arrays, config_of("qwen2")))


def test_a_tokenizer_must_fit_into_the_embedding():
    model = make(FIXTURES / "llama", vocab=20)
    assert model.vocab_size == VOCAB
    assert model.logits(jnp.ones((1, 16))).shape == (1, VOCAB)
    with pytest.raises(ConfigError, match="the tokenizer has 33 ids and the embedding 32 rows; use the tokenizer of"):
        make(FIXTURES / "llama", vocab=33)


def test_a_reward_model_has_blocks_and_no_logits():
    model = make(FIXTURES / "qwen3_reward")
    head = arrays_of(FIXTURES / "qwen3_reward")["score.weight"]
    with np.load(FIXTURES / "qwen3_reward" / "reference.npz") as reference:
        tokens, mask = jnp.asarray(reference["leftpad/input_ids"]), jnp.asarray(reference["leftpad/attention_mask"])
        hidden, _ = model(tokens.astype(jnp.int32), mask.astype(bool))
        np.testing.assert_allclose(hidden[:, -1] @ head[0], reference["leftpad/scores"], atol=1e-5)
    with pytest.raises(ConfigError, match="a reward model or critic without logits, so it cannot generate text"):
        model.logits(hidden)


def test_folders_without_a_model_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"nowhere: is not a folder; a model is a folder with config.json and \*.safetensors"
    ):
        make(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no config.json; a model is a folder"):
        make(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config.json: not valid JSON: Expecting"):
        make(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"config.json: holds a list, not an object"):
        make(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama")))
    with pytest.raises(ConfigError, match=r"has neither model.safetensors nor model.safetensors.index.json"):
        make(tmp_path)


SHARDED = """
import sys
import attrs
import jax
import numpy as np
from flax import nnx
from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail_model.model.pretrained import Pretrained

def load(place):
    return Pretrained(path=sys.argv[1]).make(32, rngs=nnx.Rngs(0), place=place)

alone = load(None)
devices = Devices.open(Mesh(fsdp=2, tp=4))
spread = load(devices.place)
for (path, here), (_, there) in zip(nnx.to_flat_state(nnx.state(spread)), nnx.to_flat_state(nnx.state(alone)), strict=True):
    np.testing.assert_array_equal(here[...], there[...])
    assert here.get_value().sharding == devices.place(here.axes, here.shape), path
kernel = spread.blocks[0].attention.queries.kernel.get_value()
assert {shard.data.shape for shard in kernel.addressable_shards} == {(8, 6)}, kernel.sharding
print("same")
"""


def test_tensors_go_straight_to_their_devices():
    command = [sys.executable, "-c", SHARDED, str(FIXTURES / "gemma2")]
    done = subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_is_registered():
    component = dovetail.get("model", "pretrained")
    assert set(component.params) == {"path", "dtype", "param_dtype", "remat", "attention", "random"}
    variants = {"qwen2_yarn"}
    assert set(dovetail.names("architecture")) >= set(ARCHITECTURES) - variants
