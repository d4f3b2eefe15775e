"""Settings refuse meaningless values, wherever they are constructed."""

import math

import pytest

from dovetail.config import Sampling, load
from dovetail.errors import ConfigError

WRONG = {
    "temperature": [-0.1, math.nan, math.inf],
    "top_k": [0],
    "top_p": [0.0, 1.1],
    "max_tokens": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_sampling_settings_have_a_range(name, value):
    with pytest.raises(ConfigError, match=rf"Sampling\.{name}: expected .*, got {value}"):
        Sampling(**{name: value})


def test_an_empty_stop_string_is_refused():
    with pytest.raises(
        ConfigError, match=r"sampling.stop = \('a', ''\) has an empty string, which every text contains"
    ):
        Sampling(stop=("a", ""))


def test_what_a_section_refuses_has_its_place(tmp_path):
    (tmp_path / "x.gin").write_text("sampling.stop = ('a', '')\n")
    with pytest.raises(ConfigError, match=r"x\.gin:1: sampling\.stop = \('a', ''\) has an empty string"):
        load(tmp_path / "x.gin")


def test_the_ends_are_allowed():
    Sampling(temperature=0.0, top_k=1, top_p=1.0, max_tokens=1)


def test_a_config_says_where_the_value_stands(tmp_path):
    path = tmp_path / "x.gin"
    path.write_text("train.steps = 5\ntrain.group_size = 0\n")
    with pytest.raises(ConfigError, match=r"x.gin:2: train.group_size: expected int >= 1, got 0"):
        load(path)
