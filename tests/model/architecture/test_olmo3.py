from tests.model.folders import config_of

from dovetail_model.huggingface.config import FILE, HuggingFaceConfig
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.layers.rope import Rope


def spec_of(**changes):
    return read_spec(HuggingFaceConfig(FILE, config_of("olmo3") | changes))


def test_every_fourth_layer_sees_everything_with_scaled_positions():
    layers = spec_of(layer_types=None).layers
    assert [layer.window for layer in layers] == [4, 4, 4, None]
    assert [layer.rope.stretch is None for layer in layers] == [True, True, True, False]
    assert {layer.rope.theta for layer in layers} == {30.0}


def test_old_and_new_spellings_of_the_positions_say_the_same():
    scaling = config_of("olmo3")["rope_parameters"]["full_attention"]
    assert spec_of(rope_parameters=None, rope_theta=30.0, rope_scaling=scaling) == spec_of()


def test_a_file_without_positions_has_the_default_base_in_both_kinds_of_layers():
    assert {layer.rope for layer in spec_of(rope_parameters=None).layers} == {Rope(theta=500_000.0)}
    assert spec_of(rope_parameters={}).layers == spec_of(rope_parameters=None).layers
