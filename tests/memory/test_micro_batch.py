"""The automatic micro-batch: whole groups if they fit, even pieces, and always the same choice."""

import attrs
import jax
import pytest
from flax import nnx
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.training.models import in_mode, split
from dovetail_memory import micro_batch
from dovetail_memory.micro_batch import CPU_TOKENS, MEMORY_SHARE, Work, in_update, in_warm_start

WORK = Work(rows=96, group_size=8, prompt_tokens=100, max_tokens=50)


@pytest.mark.parametrize("tokens", [60, 150, 300, 499, 500, 1000, 1700, 2600, 10**7])
def test_it_fits_and_cuts_groups_only_where_one_is_too_large(tokens):
    rows = WORK.fit(tokens)
    groups = -(-rows // WORK.group_size)
    if rows > 1:
        assert groups * WORK.prompt_tokens + rows * WORK.max_tokens <= tokens
    assert rows % WORK.group_size == 0 or WORK.group_size % rows == 0
    assert rows <= WORK.rows


def test_pieces_are_even():
    """Ten groups become 5 and 5, not 9 and 1."""
    work = attrs.evolve(WORK, rows=80)
    assert work.fit(tokens=9 * 500) == 40


def test_more_devices_take_more_rows():
    work = attrs.evolve(WORK, rows=128)
    assert work.fit(tokens=1000, devices=4) == 4 * work.fit(tokens=1000)
    assert attrs.evolve(WORK, group_size=1).fit(tokens=1, devices=4) >= 1


@pytest.mark.parametrize("whole_groups", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16])
def test_devices_divide_the_rows(devices, group, whole_groups):
    """Each device computes all of the rows that they do not divide, for which it has no memory."""
    work = Work(rows=96, group_size=group, prompt_tokens=100, max_tokens=50, whole_groups=whole_groups)
    for tokens in (1, 60, 150, 300, 499, 500, 1000, 1700, 10**7):
        rows = work.fit(tokens, devices)
        assert rows % devices == 0, tokens
        assert 0 < rows <= work.rows
        assert rows % group == 0 or (group % rows == 0 and not whole_groups)
        if rows > devices and not (whole_groups and rows == group):
            assert -(-rows // group) * work.prompt_tokens + rows * work.max_tokens <= tokens * devices
        assert all(size % devices == 0 for size in work.sizes(rows, 1, devices))


@pytest.mark.parametrize(("rows", "group", "devices"), [(6, 3, 4), (8, 8, 3), (2, 1, 4), (7, 7, 2), (24, 8, 3)])
def test_devices_that_cannot_divide_the_rows(rows, group, devices):
    work = Work(rows=rows, group_size=group, prompt_tokens=100, max_tokens=50)
    for tokens in (1, 60, 150, 300, 500, 10**7):
        assert 1 <= work.fit(tokens, devices) <= rows
        assert work.sizes(rows, 1, devices)


def test_mini_batches_that_cut_groups():
    assert attrs.evolve(WORK, rows=12).fit(tokens=10**6) == 12
    assert attrs.evolve(WORK, rows=7).fit(tokens=10**6) == 7


def model(*overrides):
    config = load(None, [*TINY, *overrides])
    return config, *split(nnx.eval_shape(lambda: config.choice("train.model").bind().make(100, rngs=nnx.Rngs(0))))


def test_a_config_decides_it_together_with_the_model():
    config, graphdef, weights = model()
    assert in_update(config) == Work(rows=16, group_size=4, prompt_tokens=12, max_tokens=6)
    assert in_warm_start(config) == Work(rows=8, group_size=1, prompt_tokens=12, max_tokens=6)
    assert in_update(config).choose(graphdef, weights) == 16
    long = attrs.evolve(in_update(config), rows=64, max_tokens=CPU_TOKENS // 8)
    assert long.choose(graphdef, weights) == 4


def test_a_model_is_traced_once_before_and_after_its_mode_is_chosen():
    """A start asks before it chooses, and the warm start once more with the choice."""
    _, graphdef, weights = model()
    first, *_, last = nnx.merge(graphdef, *weights).modes
    chosen, frugal = (in_mode(graphdef, weights, mode) for mode in (first, last))
    assert chosen != graphdef
    micro_batch._bytes_per_token.cache_clear()
    asked = [WORK.per_token(each, weights) for each in (graphdef, chosen, frugal)]
    assert asked[0] == asked[1] > asked[2], "what is computed again is not kept"
    assert micro_batch._bytes_per_token.cache_info().misses == 2


def test_a_large_model_gets_less(monkeypatch):
    """Activations use at most a share of the memory, computed from what this model's backward pass keeps."""
    config, graphdef, weights = model()
    work = attrs.evolve(in_update(config), rows=64)
    monkeypatch.setattr("dovetail_memory.micro_batch.memory_of", lambda _: 1 << 20)
    rows = work.choose(graphdef, weights)
    assert 1 <= rows < 64
    config, wide, wide_weights = model("model.decoder.layers=4")
    assert work.choose(wide, wide_weights) < rows

    def update(trained, tokens):
        return jax.grad(lambda t: nnx.merge(graphdef, t, weights.frozen)(tokens, tokens >= 0)[0].sum())(trained)

    tokens = jax.ShapeDtypeStruct((rows, 18), "int32")
    memory = jax.jit(update).lower(weights.trained, tokens).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2 * MEMORY_SHARE * (1 << 20)
