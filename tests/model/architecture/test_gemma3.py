import json

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import FIXTURES, arrays_of, config_of, write
from tests.model.huggingface.test_export import adapted, load

from dovetail.errors import ConfigError
from dovetail_model.adapter.lora import linears
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.safetensors import open_file
from dovetail_model.source.folder import Folder

FOLDER = FIXTURES / "gemma3"
STORED = "language_model.model."
MODULES = "model.language_model."


def spec_of(**changes):
    return read_spec(HuggingFaceConfig("config.json", config_of("gemma3") | changes))


def text(**changes):
    return {"text_config": config_of("gemma3")["text_config"] | changes}


def as_modules(arrays):
    """The same tensors under the names that they have in `transformers`."""
    inside = ((STORED, MODULES), ("language_model.lm_head.", "lm_head."), ("", "model."))

    def renamed(name):
        old, new = next(pair for pair in inside if name.startswith(pair[0]))
        return f"{new}{name.removeprefix(old)}"

    return {renamed(name): array for name, array in arrays.items()}


def same(here, there):
    jax.tree.map(np.testing.assert_array_equal, nnx.state(here), nnx.state(there))


@pytest.mark.parametrize("tied", [True, False])
def test_folders_with_either_names_hold_the_same_tower(tied, tmp_path):
    arrays, config = arrays_of(FOLDER), config_of("gemma3") | {"tie_word_embeddings": tied}
    if not tied:
        arrays["language_model.lm_head.weight"] = arrays[f"{STORED}embed_tokens.weight"] * 2
    old = load(write(tmp_path / "old", arrays, config))
    same(old, load(write(tmp_path / "new", as_modules(arrays), config)))
    assert old.spec.tied is tied
    if not tied:
        np.testing.assert_array_equal(old.unembedding[...], 2 * old.embedding[...])


@pytest.mark.parametrize("layout", [dict, as_modules])
def test_what_is_missing_or_belongs_to_neither_part_is_named_as_in_the_folder(layout, tmp_path):
    arrays = layout(arrays_of(FOLDER))
    begin = STORED if layout is dict else MODULES
    del arrays[f"{begin}norm.weight"]
    arrays[f"{begin}layers.7.mlp.up_proj.weight"] = arrays["audio_tower.bias"] = np.ones(3, np.float32)
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, arrays, config_of("gemma3")))
    assert str(error.value) == (
        f"{tmp_path}: the tensors do not fit config.json; missing: {begin}norm.weight;"
        f" unexpected: audio_tower.bias, {begin}layers.7.mlp.up_proj.weight"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": None}, "'text_config' is missing"),
        ({"text_config": [1]}, "text_config = .*; it must be of type dict"),
        (text(model_type="gemma2"), "text_config: model_type = 'gemma2'; supported are gemma3_text"),
        (text(hidden_size=0), "text_config: hidden_size = 0; it must be at least 1"),
        (text(use_bidirectional_attention=True), "text_config: use_bidirectional_attention is true"),
        (
            text(rope_parameters={"full_attention": {"rope_type": "linear"}}),
            "text_config: 'factor' is missing",
        ),
        ({"quantization_config": {"bits": 4}}, "the weights are quantised"),
    ],
)
def test_a_tower_that_cannot_be_read_is_refused_with_the_field(changes, message):
    with pytest.raises(ConfigError, match=f"^config.json: {message}"):
        spec_of(**changes)


def test_a_tower_may_leave_out_its_family():
    assert spec_of(**text(model_type=None)) == spec_of(**{})


def test_what_is_said_outside_of_the_tower_counts():
    assert spec_of(**text(tie_word_embeddings=True), tie_word_embeddings=False).tied is False
    assert spec_of(architectures=["Gemma3ForSequenceClassification"]).has_logits is False
    written = spec_of(eos_token_id=[1, 106]).tower.config
    assert written["eos_token_id"] == [1, 106]
    assert written["architectures"] == ["Gemma3ForCausalLM"]


def test_an_export_is_a_folder_of_the_tower_alone(tmp_path):
    model = load(FOLDER, param_dtype="bfloat16")
    save_pretrained(tmp_path, model, source=Folder(FOLDER))
    there, here = arrays_of(FOLDER), arrays_of(tmp_path)
    tower = {name.removeprefix("language_model."): array for name, array in there.items() if name.startswith(STORED)}
    assert here.keys() == tower.keys()
    for name, array in tower.items():
        np.testing.assert_array_equal(here[name], array, err_msg=name)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("gemma3_text", ["Gemma3ForCausalLM"])
    assert not {"text_config", "vision_config", "image_token_index"} & config.keys()
    again = load(tmp_path, param_dtype="bfloat16")
    assert attrs.evolve(model.spec, tower=None) == again.spec
    same(again, model)
    save_pretrained(tmp_path / "again", again, source=Folder(tmp_path))
    save_pretrained(tmp_path / "from_the_whole", again, source=Folder(FOLDER))
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == config


def test_an_adapter_names_the_modules_beside_the_image_encoder(tmp_path):
    model = adapted(load(FOLDER), modules=r".*\.(q_proj|down_proj)")
    assert "model.layers.1.self_attn.q_proj" in linears(model), "an expression names the tower's own modules"
    save_adapter(tmp_path, model, base=str(FOLDER))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    modules = [f"layers.{number}.{name}" for number in (0, 1) for name in ("mlp.down_proj", "self_attn.q_proj")]
    assert config["target_modules"] == [f"{MODULES}{name}" for name in modules]
    stored = open_file(tmp_path / "adapter_model.safetensors").keys()
    assert stored == {f"base_model.model.{MODULES}{name}.lora_{one}.weight" for name in modules for one in "AB"}
