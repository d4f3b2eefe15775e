import pytest
from tests.model.folders import config_of

from dovetail.errors import ConfigError
from dovetail_model.huggingface.config import FILE, HuggingFaceConfig
from dovetail_model.huggingface.lookup import read_spec


def layers_of(**changes):
    return read_spec(HuggingFaceConfig(FILE, config_of("smollm3") | {"layer_types": None} | changes)).layers


def test_the_list_and_the_interval_say_which_layers_have_no_rotary_positions():
    listed = layers_of(num_hidden_layers=4, no_rope_layers=[0, 1, 1, 0])
    assert [layer.rope is None for layer in listed] == [True, False, False, True]
    counted = layers_of(num_hidden_layers=8, no_rope_layers=None, no_rope_layer_interval=4)
    assert [layer.rope is None for layer in counted] == [False, False, False, True] * 2


def test_only_layers_without_rotary_positions_have_a_window():
    windows = [layer.window for layer in layers_of(use_sliding_window=True, sliding_window=4)]
    assert windows == [None, 4]
    assert [layer.window for layer in layers_of(use_sliding_window=False, sliding_window=4)] == [None, None]


@pytest.mark.parametrize("listed", [[1], [1, 2]])
def test_a_list_that_does_not_fit_is_refused(listed):
    with pytest.raises(ConfigError, match=r"no_rope_layers = .*; it needs a 0 or 1 for each of the 2 layers"):
        layers_of(no_rope_layers=listed)
