import jax
import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail_rollout.checks import check_prompts


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
