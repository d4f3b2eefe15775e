"""Which implementation is chosen, and why another one is refused."""

import functools
from unittest import mock

import attrs
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from tests.model.test_transformer import EVERYTHING, PLAIN

from dovetail.devices.population import CURRENT
from dovetail.errors import ConfigError
from dovetail_model.attention import IMPLEMENTATIONS
from dovetail_model.attention.choice import LONG, LONG_ROW, Shapes, choose
from dovetail_model.attention.cudnn import IN_ORDER
from dovetail_model.transformer import Transformer

HALF = attrs.evolve(PLAIN, dtype="bfloat16", head_dim=64)
MANY = Shapes(tokens=4096, own=4096)
ONE = Shapes(tokens=1, own=256, prefix=256, decoding=True)
PACKED = attrs.evolve(MANY, packed=True)
CUT = attrs.evolve(MANY, parts=4)


@pytest.mark.parametrize(
    ("spec", "shapes", "platform", "expected"),
    [
        (PLAIN, Shapes(tokens=64, own=64), "cpu", "dense"),
        (PLAIN, MANY, "cpu", "blockwise"),
        (PLAIN, Shapes(tokens=LONG_ROW, own=LONG_ROW), "cpu", "blockwise"),
        (PLAIN, Shapes(tokens=64, own=64, prefix=LONG_ROW), "cpu", "dense"),
        (PLAIN, Shapes(tokens=64, own=64, prefix=LONG), "cpu", "blockwise"),
        (PLAIN, Shapes(tokens=1, own=8192), "cpu", "dense"),
        (PLAIN, ONE, "cuda", "dense"),
        (HALF, ONE, "cuda", "flash_decoding"),
        (HALF, ONE, "cpu", "dense"),
        (HALF, ONE, "tpu", "dense"),
        (HALF, attrs.evolve(ONE, decoding=False), "cuda", "dense"),
        (attrs.evolve(HALF, head_dim=96), ONE, "cuda", "dense"),
        (attrs.evolve(HALF, attention_cap=50.0), ONE, "cuda", "flash_decoding"),
        (attrs.evolve(HALF, attention="dense"), ONE, "cuda", "dense"),
        (attrs.evolve(HALF, attention="blockwise"), ONE, "cuda", "flash_decoding"),
        (HALF, MANY, "cuda", "cudnn"),
        (HALF, Shapes(tokens=256, own=256, prefix=256), "cuda", "cudnn"),
        (HALF, Shapes(tokens=64, own=64, prefix=4096), "cuda", "cudnn"),
        (HALF, Shapes(tokens=512, own=512, prefix=4096), "cuda", "blockwise"),
        (PLAIN, MANY, "cuda", "blockwise"),
        (attrs.evolve(HALF, attention_cap=50.0), MANY, "cuda", "blockwise"),
        (attrs.evolve(HALF, head_dim=256), MANY, "cuda", "blockwise"),
        (HALF, MANY, "rocm", "blockwise"),
        (HALF, MANY, "tpu", "splash"),
        (HALF, Shapes(tokens=64, own=64), "tpu", "dense"),
        (HALF, PACKED, "cuda", "blockwise"),
        (HALF, CUT, "cuda", "blockwise"),
        (HALF, Shapes(tokens=512, own=512, prefix=256, packed=True), "cuda", "cudnn"),
        (HALF, PACKED, "tpu", "blockwise"),
        (attrs.evolve(PLAIN, attention="blockwise"), Shapes(tokens=64, own=64), "cpu", "blockwise"),
        (attrs.evolve(PLAIN, attention="blockwise"), Shapes(tokens=1, own=64), "cpu", "dense"),
        (attrs.evolve(PLAIN, attention="dense"), MANY, "cuda", "dense"),
    ],
)
def test_the_choice(spec, shapes, platform, expected):
    assert choose(spec, shapes, platform) == expected


@pytest.mark.parametrize(
    ("spec", "shapes", "platform", "message"),
    [
        (attrs.evolve(HALF, attention="cudnn"), MANY, "cpu", "cuDNN is NVIDIA's, and this is cpu"),
        (attrs.evolve(PLAIN, attention="cudnn"), MANY, "cuda", "computes in 16 bits, and dtype = 'float32'"),
        (attrs.evolve(HALF, attention="splash"), MANY, "cuda", "written for TPUs, and this is cuda"),
        (attrs.evolve(HALF, attention="splash"), Shapes(tokens=64, own=64), "tpu", "reads 128 tokens together"),
        (attrs.evolve(HALF, attention="cudnn"), PACKED, "cuda", r"these rows pack several \(train.packing\)"),
        (attrs.evolve(HALF, attention="splash"), PACKED, "tpu", r"these rows pack several \(train.packing\)"),
        (attrs.evolve(HALF, attention="cudnn"), CUT, "cuda", r"tokens are cut over 4 devices \(mesh.cp\)"),
    ],
)
def test_one_that_does_not_apply_is_refused(spec, shapes, platform, message):
    with pytest.raises(ConfigError, match=message):
        choose(spec, shapes, platform)


def test_a_population_has_no_mask():
    """The name differs too, so that no trace of a run by itself is taken for one of a population."""
    masked = Shapes(tokens=512, own=512, prefix=256, packed=True)
    token = CURRENT.set(mock.Mock())
    try:
        assert choose(HALF, Shapes(tokens=256, own=256, prefix=256), "cuda") == IN_ORDER
        assert choose(HALF, masked, "cuda") == "blockwise", "rows with several texts cannot be put in order"
    finally:
        CURRENT.reset(token)
    assert choose(HALF, masked, "cuda") == "cudnn"


def test_without_pallas_triton_there_is_no_kernel_for_decoding(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose(HALF, ONE, "cuda") == "dense"


def test_cudnn_has_larger_heads_on_newer_devices(monkeypatch):
    spec = attrs.evolve(HALF, head_dim=256)
    for capability, expected in (("8.9", "blockwise"), ("9.0", "cudnn"), ("10.0", "cudnn")):
        device = mock.Mock(compute_capability=capability)
        monkeypatch.setattr(jax, "devices", lambda device=device: [device])
        assert choose(spec, MANY, "cuda") == expected


@pytest.mark.slow
def test_a_model_computes_the_same_either_way():
    """With a prefix, a cache, windows and caps; the padding is of no meaning."""

    def read(attention):
        spec = attrs.evolve(EVERYTHING, attention=attention)
        tokens = jax.random.randint(jax.random.key(1), (4, 9), 0, 11)
        mask = jnp.arange(9)[None] >= jnp.array([0, 3, 0, 5])[:, None]

        @jax.jit
        def run():
            model = Transformer(spec, rngs=nnx.Rngs(0))
            _, prefix = model(tokens[:2], mask[:2], model.init_cache(2, 11))
            hidden, cache = model(tokens, mask, model.init_cache(4, 10), prefix=prefix)
            more, _ = model(tokens[:, :1], jnp.ones((4, 1), bool), cache, prefix=prefix)
            return jnp.where(mask[..., None], hidden, 0.0), more

        return run()

    for here, there in zip(read("dense"), read("blockwise"), strict=True):
        assert jnp.allclose(here, there, atol=1e-5)


@pytest.mark.slow
def test_a_model_decodes_the_same_by_the_kernel(monkeypatch):
    """With a prefix, a cache, windows and caps; the kernel is interpreted."""
    spec = attrs.evolve(EVERYTHING, head_dim=16, dtype="bfloat16")
    tokens = jax.random.randint(jax.random.key(1), (4, 6), 0, 11)
    mask = jnp.arange(6)[None] >= jnp.array([0, 3, 0, 5])[:, None]
    kernel, used = functools.partial(IMPLEMENTATIONS["flash_decoding"], interpret=True), []

    def interpreted(*arguments, **settings):
        used.append(None)
        return kernel(*arguments, **settings)

    def read():
        graphdef, state = nnx.split(jax.jit(lambda: Transformer(spec, rngs=nnx.Rngs(0)))())

        @jax.jit
        def begin(state):
            model = nnx.merge(graphdef, state)
            return model(tokens[:2], mask[:2], model.init_cache(2, 6))[1], model.init_cache(4, 70)

        @jax.jit
        def go_on(state, tokens, mask, cache, prefix):
            return nnx.merge(graphdef, state)(tokens, mask, cache, prefix=prefix)

        prefix, cache = begin(state)
        found = []
        for column in range(6):
            here = slice(column, column + 1)
            hidden, cache = go_on(state, tokens[:, here], mask[:, here], cache, prefix)
            found.append(jnp.where(mask[:, here, None], hidden, 0.0).astype(jnp.float32))
        return jnp.concatenate(found, axis=1)

    expected = read()
    monkeypatch.setitem(IMPLEMENTATIONS, "flash_decoding", interpreted)
    monkeypatch.setattr("dovetail_model.attention.choice._platform", lambda: "cuda")
    monkeypatch.setattr("dovetail_model.attention.choice._cudnn_obstacle", lambda *arguments: "there is none here")
    jax.clear_caches()
    found = read()
    jax.clear_caches()
    assert used
    assert jnp.allclose(found, expected, atol=0.06), jnp.abs(found - expected).max()
