"""Every architecture gives the numbers and the tokens that `transformers` gives."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.golden import GOLDEN
from tests.model.folders import ARCHITECTURES as NAMES

from dovetail.field.logps import logps
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.lookup import read_spec
from dovetail_model.model.pretrained import Pretrained

OURS = Path(__file__).parents[2] / "fixtures" / "models"
ARCHITECTURES = [OURS / name for name in NAMES]
LARGER = [GOLDEN / "hf" / name for name in ("gemma2", "gemma3", "llama3", "qwen2", "qwen3")]
PREFIX = 5


ALL = [*ARCHITECTURES, *LARGER]


def name_of(value):
    return f"{value.parent.name}-{value.name}" if isinstance(value, Path) else value


def over(folders):
    return pytest.mark.parametrize("folder", folders, indirect=True, ids=name_of)


@pytest.fixture(scope="module")
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def model(folder):
    spec = Pretrained(path=str(folder)).spec()
    return Pretrained(path=str(folder)).make(spec.vocab_size, rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def reference(folder):
    with np.load(folder / "reference.npz") as arrays:
        return dict(arrays)


def rows(reference, kind):
    tokens = reference[f"{kind}/input_ids"]
    mask = reference.get(f"{kind}/attention_mask", np.ones_like(tokens))
    return jnp.asarray(tokens, jnp.int32), jnp.asarray(mask, bool)


@nnx.jit
def plain(model, tokens, mask):
    """One pass, without a cache."""
    hidden, _ = model(tokens, mask)
    return hidden, model.logits(hidden), logps(model.logits(hidden)[:, :-1], tokens[:, 1:])


@nnx.jit
def continued(model, tokens, mask):
    """The first tokens in a cache, the rest over them as a prefix."""
    _, prefix = model(tokens[:, :PREFIX], mask[:, :PREFIX], model.init_cache(len(tokens), PREFIX))
    hidden, _ = model(tokens[:, PREFIX:], mask[:, PREFIX:], prefix=prefix)
    return model.logits(hidden)


@nnx.jit(static_argnums=3)
def greedy(model, tokens, mask, new):
    """The prompts in a cache, then one token after the other."""
    hidden, cache = model(tokens, mask, model.init_cache(len(tokens), tokens.shape[1] + new))

    def step(state, _):
        cache, hidden = state
        token = jnp.argmax(model.logits(hidden), axis=-1).astype(jnp.int32)
        hidden, cache = model(token[:, None], jnp.ones((len(token), 1), bool), cache)
        return (cache, hidden[:, 0]), token

    _, written = jax.lax.scan(step, (cache, hidden[:, -1]), length=new)
    return written.T


def close(here, there, mask, **tolerance):
    np.testing.assert_allclose(np.asarray(here)[np.asarray(mask)], there[np.asarray(mask)], **tolerance)


PASSES = [(folder, "leftpad") for folder in ALL] + [(folder, "long") for folder in LARGER]


@pytest.mark.parametrize(("folder", "kind"), PASSES, indirect=["folder"], ids=name_of)
def test_logits_hidden_states_and_log_probabilities(folder, model, reference, kind):
    tokens, mask = rows(reference, kind)
    hidden, logits, scored = plain(model, tokens, mask)
    close(logits, reference[f"{kind}/logits"], mask, atol=1e-4 if folder in LARGER else 1e-5)
    close(scored, reference[f"{kind}/logps"], mask[:, :-1], atol=1e-4)
    if f"{kind}/hidden_2" in reference:  # two layers and the last norm
        close(hidden, reference[f"{kind}/hidden_2"], mask, atol=1e-4, rtol=1e-5)


@over([folder for folder in ARCHITECTURES if folder.name not in ("granite", "olmo2", "qwen2_yarn")])
def test_a_prefix_changes_nothing(model, reference):
    tokens, mask = rows(reference, "leftpad")
    close(continued(model, tokens, mask), reference["leftpad/logits"][:, PREFIX:], mask[:, PREFIX:], atol=1e-4)


@over(ALL)
def test_greedy_tokens_with_a_cache(folder, model, reference):
    kind = "long" if folder in LARGER else "leftpad"
    tokens, mask = rows(reference, kind)
    expected = reference[f"{kind}/greedy"][:, tokens.shape[1] :]
    np.testing.assert_array_equal(greedy(model, tokens, mask, expected.shape[1]), expected)


@over(LARGER)
def test_old_and_new_spellings_of_the_config_say_the_same(folder):
    files = folder / "config.json", folder / "config.legacy.json"
    new, old = (HuggingFaceConfig(folder, json.loads(file.read_text())) for file in files)
    assert read_spec(new) == read_spec(old)
