import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import FIXTURES, arrays_of, config_of, write
from tests.model.huggingface.test_export import adapted, load

from dovetail.errors import ConfigError
from dovetail_model.huggingface.config import FILE, HuggingFaceConfig
from dovetail_model.huggingface.export import save_adapter, save_pretrained
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.huggingface.spellings import with_old_spellings
from dovetail_model.source.folder import Folder

PHI3 = FIXTURES / "phi3"
ROPE = config_of("phi3")["rope_parameters"]


def spec_of(**changes):
    return read_spec(HuggingFaceConfig(FILE, config_of("phi3") | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias is true; Phi-3's matrices have no biases"),
        ({"rope_parameters": ROPE | {"rope_type": "yarn"}}, "rope_type = 'yarn'; supported are default, longrope, su"),
        ({"rope_parameters": ROPE | {"short_factor": [1.0]}}, "short_factor = .*; it needs a positive number for each"),
        # four units would be turned, which are two pairs
        ({"rope_parameters": ROPE | {"partial_rotary_factor": 0.6}}, "short_factor = .* for each of the 2 pairs"),
        (
            {"rope_parameters": ROPE | {"partial_rotary_factor": 0.4}},
            "partial_rotary_factor = 0.4; it must turn an even",
        ),
    ],
)
def test_configs_that_cannot_be_read_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        spec_of(**changes)


def test_older_spellings_say_the_same():
    values = with_old_spellings(config_of("phi3"))
    assert values["rope_scaling"].keys() == {"type", "short_factor", "long_factor"}
    del values["rope_parameters"]
    assert read_spec(HuggingFaceConfig(FILE, values)) == spec_of()


def test_rows_beyond_the_original_length_are_refused():
    tokens = jnp.zeros((1, 33), jnp.int32)
    with pytest.raises(ConfigError, match="rows of up to 33 tokens; beyond 32 the rotary positions"):
        load(PHI3)(tokens, jnp.ones_like(tokens, bool))


def test_an_adapter_is_merged_into_what_is_stored_together(tmp_path):
    model = adapted(load(PHI3))
    save_pretrained(tmp_path, model, source=Folder(PHI3))
    assert arrays_of(tmp_path).keys() == arrays_of(PHI3).keys()
    tokens = jnp.arange(6)[None]
    here, there = (nnx.jit(lambda m: m(tokens, jnp.ones_like(tokens, bool))[0])(m) for m in (model, load(tmp_path)))
    np.testing.assert_allclose(here, there, atol=1e-4)
    assert not jax.tree.all(jax.tree.map(np.array_equal, arrays_of(PHI3), arrays_of(tmp_path)))


def test_an_adapter_alone_is_refused_where_matrices_are_stored_together(tmp_path):
    with pytest.raises(ConfigError, match="k_proj and others as one matrix, .*; write the model whole"):
        save_adapter(tmp_path, adapted(load(PHI3)), base=str(PHI3))
    save_adapter(tmp_path, adapted(load(PHI3), modules=r".*\.(o|down)_proj"), base=str(PHI3))


def test_a_tensor_that_is_not_as_large_as_its_parts_is_refused(tmp_path):
    arrays = arrays_of(PHI3)
    name = "model.layers.1.self_attn.qkv_proj.weight"
    arrays[name] = arrays[name][:-1]
    with pytest.raises(ConfigError, match=rf"missing: .*q_proj.weight.*; unexpected: {name}"):
        load(write(tmp_path, arrays, config_of("phi3")))
