import jax
import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.protocols import Sampling
from dovetail_rollout.checks import check_prompts, check_sampling


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "sampling.temperature = -0.1; it must be finite and at least 0; 0 is greedy"),
        ({"temperature": float("nan")}, "sampling.temperature = nan"),
        ({"temperature": float("inf")}, "sampling.temperature = inf"),
        ({"top_k": 0}, "sampling.top_k = 0; it must be at least 1; None keeps every token"),
        ({"top_p": 0.0}, r"sampling.top_p = 0.0; it must be in \(0, 1\]; None keeps every token"),
        ({"top_p": 1.1}, "sampling.top_p = 1.1"),
        ({"max_tokens": 0}, "sampling.max_tokens = 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_sampling(Sampling(**settings))


def test_settings_at_the_ends_are_allowed():
    check_sampling(Sampling(temperature=0.0, top_k=1, top_p=1.0, max_tokens=1))


@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 4), (2, 1)), ((6,), (6,), (6, 1)), ((2, 3), (2, 3), (2,)), ((2, 3), (2, 3), (3, 1))]
)
def test_shapes_that_do_not_match(shapes):
    tokens, mask, keys = shapes
    with pytest.raises(ConfigError, match=r"must both be \[prompt, position\], and keys .* \[prompt, sample\]"):
        check_prompts(np.zeros(tokens, int), np.ones(mask, bool), jax.random.split(jax.random.key(0), keys))


def test_padding_on_the_right():
    mask = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0]], bool)
    with pytest.raises(ConfigError, match=r"prompts \[1\] end in padding; pad prompts on the left"):
        check_prompts(np.zeros((3, 3), int), mask, jax.random.split(jax.random.key(0), (3, 1)))
