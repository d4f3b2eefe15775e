import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.training.tiny import TINY
from tests.model.folders import FIXTURES, Given
from tests.model.huggingface.test_export import adapted, load
from tests.tiny_folder import write

from dovetail.config import load as load_config
from dovetail.errors import ConfigError
from dovetail.training.loop import train
from dovetail_model.adapter.lora import linears
from dovetail_model.adapter.peft import CONFIG, WEIGHTS, Peft
from dovetail_model.huggingface.export import save_adapter
from dovetail_model.huggingface.safetensors import open_file, write_file
from dovetail_model.model.pretrained import Pretrained

QWEN2 = FIXTURES / "qwen2"
TOKENS = jnp.array([[3, 1, 4, 1, 5, 9, 2, 6]])


def changes(model):
    """What is added to each matrix, s A B, by its name."""
    return {name: np.asarray(each.change.product()) for name, each in linears(model).items() if each.change is not None}


def logits(model):
    return nnx.jit(lambda model: model.logits(model(TOKENS, jnp.ones_like(TOKENS, bool))[0]))(model)


def read(folder, base=QWEN2, **settings):
    return Peft(path=str(folder), **settings).apply(load(base), rngs=nnx.Rngs(0))


@pytest.fixture
def written(tmp_path):
    """An adapter of rank 2 with α = 3 on two matrices of each layer, and the change that it makes."""
    model = adapted(load(QWEN2), modules=r".*\.(q_proj|down_proj)")
    save_adapter(tmp_path, model, base=str(QWEN2))
    return tmp_path, changes(model)


def say(folder, **settings):
    file = folder / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def rewrite(folder, change):
    """Write the tensors of the adapter again, as `change` makes them of a dict of arrays."""
    arrays = {name: tensor.read() for name, tensor in open_file(folder / WEIGHTS).items()}
    write_file(folder / WEIGHTS, {name: Given(array) for name, array in change(arrays).items()})


@pytest.mark.parametrize("base", ["qwen2", "gemma3"])  # the second is a tower, whose modules have longer names
def test_what_was_written_is_what_is_read(base, tmp_path):
    model = adapted(load(FIXTURES / base))
    save_adapter(tmp_path, model, base=base)
    again = read(tmp_path, FIXTURES / base)
    np.testing.assert_array_equal(logits(again), logits(model))
    assert np.abs(logits(again) - logits(load(FIXTURES / base))).max() > 0.1


@pytest.fixture
def written_with_magnitudes(tmp_path):
    model = adapted(load(QWEN2), modules=r".*\.(q_proj|down_proj)", weight_decomposed=True)
    save_adapter(tmp_path, model, base=str(QWEN2))
    return tmp_path, model


def test_magnitudes_that_were_written_are_those_that_are_read(written_with_magnitudes):
    folder, model = written_with_magnitudes
    again = read(folder)
    np.testing.assert_allclose(logits(again), logits(model), atol=1e-5)
    for name, each in linears(again).items():
        np.testing.assert_allclose(each.merged(), linears(model)[name].merged(), atol=1e-6)
    say(folder, use_dora=False)
    rewrite(folder, lambda arrays: {name: array for name, array in arrays.items() if "lora_m" not in name})
    assert np.abs(logits(read(folder)) - logits(model)).max() > 0.1


@pytest.mark.parametrize("format", ["int8", "nf4"])
def test_magnitudes_are_the_file_s_whatever_the_base_is_stored_as(format, written_with_magnitudes):
    folder, model = written_with_magnitudes
    name = "model.layers.0.mlp.down_proj"
    there, here = linears(model)[name], linears(read(folder, quantise_base=format))[name]
    np.testing.assert_allclose(
        here.change.magnitude(here.kernel), there.change.magnitude(there.kernel), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(
        jnp.linalg.norm(here.merged(), axis=0), jnp.abs(there.change.magnitude(there.kernel)), rtol=1e-4
    )


def test_it_is_trained_on_from_where_it_is(written):
    folder, before = written
    model = read(folder)
    assert changes(model).keys() == before.keys()
    assert len(jax.tree.leaves(nnx.state(model, nnx.LoRAParam))) == 2 * len(before)


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        pytest.param({"use_rslora": True}, 2**0.5, id="stabilised"),
        pytest.param({"lora_alpha": 6}, 2.0, id="alpha"),
        pytest.param(
            {"alpha_pattern": {"layers.0.mlp.down_proj": 9.0, r".*q_proj": 9.0, "other": 1.0}}, 3.0, id="of one"
        ),
    ],
)
def test_the_scale_is_the_file_s(written, settings, factor):
    folder, before = written
    say(folder, **settings)
    name = "model.layers.0.mlp.down_proj"
    found = changes(read(folder))
    np.testing.assert_allclose(found[name], factor * before[name], rtol=1e-6)


def test_ranks_and_scales_that_differ_are_written_as_one(written, tmp_path):
    folder, before = written
    cut = "base_model.model.model.layers.0.mlp.down_proj.lora_"

    def of_rank_1(arrays):
        return arrays | {
            f"{cut}A.weight": arrays[f"{cut}A.weight"][:1],
            f"{cut}B.weight": arrays[f"{cut}B.weight"][:, :1],
        }

    rewrite(folder, of_rank_1)
    model = read(folder)
    assert linears(model)["model.layers.0.mlp.down_proj"].change.scale == 3.0  # α over a rank of 1
    save_adapter(tmp_path / "again", model, base="b")
    assert json.loads((tmp_path / "again" / CONFIG).read_text())["r"] == 2
    again = changes(read(tmp_path / "again"))
    assert again.keys() == before.keys()
    for name, change in changes(model).items():
        np.testing.assert_allclose(again[name], change, rtol=1e-6, atol=1e-7)


def test_a_quantised_base_keeps_the_change(written):
    folder, before = written
    model = read(folder, quantise_base="int8")
    np.testing.assert_array_equal(
        changes(model)["model.layers.0.mlp.down_proj"], before["model.layers.0.mlp.down_proj"]
    )


def magnitudes_of(arrays, of="q_proj.lora_B", width=24):
    there = [name.partition("lora_B")[0] for name in arrays if of in name]
    return {f"{name}lora_magnitude_vector": np.ones(width, "f4") for name in there}


NAMES = r"model\.layers\.N\.mlp\.down_proj, model\.layers\.N\.self_attn\.q_proj"
MISTAKES = {
    "no magnitudes": (
        lambda folder: say(folder, use_dora=True),
        r"is not made of lora_A, lora_B and lora_magnitude_vector of each module, as use_dora = True says; there are \S*"
        r"model\.layers\.N\.mlp\.down_proj\.lora_A\.weight",
    ),
    "magnitudes of one": (
        lambda folder: rewrite(folder, lambda arrays: arrays | magnitudes_of(arrays)),
        r"is not made of pairs of lora_A and lora_B; there are \S*\.q_proj\.lora_magnitude_vector$",
    ),
    "magnitudes of another width": (
        lambda folder: (
            say(folder, use_dora=True),
            rewrite(folder, lambda arrays: arrays | magnitudes_of(arrays, of="lora_B", width=5)),
        ),
        r"of model\.layers\.0\.\S+, the magnitude is \[5\], where \[\d+\] fits the model",
    ),
    "pissa": (lambda folder: say(folder, init_lora_weights="pissa"), "init_lora_weights = 'pissa'"),
    "heads": (lambda folder: say(folder, modules_to_save=["lm_head"]), r"modules_to_save = \['lm_head'\]"),
    "after some tokens": (
        lambda folder: say(folder, alora_invocation_tokens=[1, 2]), r"alora_invocation_tokens = \[1, 2\]",
    ),
    "another arrangement": (lambda folder: say(folder, use_qalora=True), "use_qalora = True"),
    "layers that are there twice": (
        lambda folder: say(folder, layer_replication=[[0, 2], [1, 2]]), "layer_replication = ",
    ),
    "no alpha": (
        lambda folder: say(folder, lora_alpha=None), "lora_alpha = None; it must be a finite number other than 0",
    ),
    "an alpha that is no number": (
        lambda folder: say(folder, alpha_pattern={"q_proj": float("nan")}), "q_proj = nan; it must be a finite number",
    ),
    "no patterns": (lambda folder: say(folder, alpha_pattern=[1]), r"alpha_pattern = \[1\]; it must be an object"),
    "no pattern": (
        lambda folder: say(folder, alpha_pattern={"q_proj[": 1}), r"'q_proj\[' is not a regular expression",
    ),
    "no rank": (
        lambda folder: rewrite(folder, lambda arrays: {
            k: v[:0] if "lora_A" in k else v[:, :0] for k, v in arrays.items()
        }),
        r"A is \[0, \d+\] and B \[\d+, 0\]",
    ),
    "no matrices": (
        lambda folder: rewrite(folder, lambda arrays: {k: np.zeros((), "f4") for k in arrays}),
        r"A is \[\] and B \[\]",
    ),
    "another method": (lambda folder: say(folder, peft_type="IA3"), "peft_type = 'IA3'; .* which have 'LORA'"),
    "no JSON": (lambda folder: (folder / CONFIG).write_text("{"), "adapter_config.json: not valid JSON"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "has no adapter_model.safetensors; an adapter is a folder"),
    "cut short": (lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9]), "cut short"),
    "a pair of one": (
        lambda folder: rewrite(folder, lambda arrays: dict(list(arrays.items())[1:])),
        r"is not made of pairs of lora_A and lora_B",
    ),
    "other modules": (
        lambda folder: rewrite(folder, lambda arrays: {k.replace("mlp", "ffn"): v for k, v in arrays.items()}),
        r"has changes of model\.layers\.N\.ffn\.down_proj, which are not matrices of the model; there are model\.l",
    ),
    "another width": (
        lambda folder: rewrite(
            folder, lambda arrays: {k: v[:, :-1] if "lora_A" in k else v for k, v in arrays.items()}
        ),
        r"of model\.layers\.0\.\S+, A is \[2, \d+\] and B \[\d+, 2\], where \[r, \d+\] .* trained on another one",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_read_is_refused(written, damage, message):
    folder, _ = written
    damage(folder)
    with pytest.raises(ConfigError, match=message):
        read(folder)


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"adapter\.peft\.path = '/no/such': is not a folder; an adapter is a folder"):
        read("/no/such")


def test_experts_are_refused(tmp_path):
    base = FIXTURES / "qwen3_moe"
    save_adapter(tmp_path, adapted(load(base), modules=r".*\.q_proj"), base=str(base))
    expert = next(name for name in linears(load(base)) if "experts.down" in name)

    def of_experts(arrays):
        (there, _) = expert.split(".mlp.")
        chosen = {name: array for name, array in arrays.items() if f"{there}." in name}
        return {name.replace(".self_attn.q_proj", ".mlp.experts.down_proj"): array for name, array in chosen.items()}

    rewrite(tmp_path, of_experts)
    with pytest.raises(ConfigError, match=r"changes model\.layers\.\d\.\S+, which are experts"):
        read(tmp_path, base)


@pytest.mark.slow
def test_a_run_begins_with_it_and_is_not_resumed_with_another(tmp_path):
    write(tmp_path / "base")
    model = adapted(Pretrained(path=str(tmp_path / "base")).make(1, rngs=nnx.Rngs(0)), modules=r".*\.q_proj")
    save_adapter(tmp_path / "adapter", model, base="b")
    options = [
        *TINY,
        "train.model=pretrained",
        f"model.pretrained.path={str(tmp_path / 'base')!r}",
        "train.tokenizer=huggingface",
        f"tokenizer.huggingface.path={str(tmp_path / 'base')!r}",
        "task.arithmetic.chat=True",
        "task.arithmetic.system='Add.'",
        "train.max_prompt_tokens=64",
        "sft.steps=0",
        "run.checkpoint_every=1",
        "eval.every=None",
        "train.kl_coef=0.1",
        "train.adapter=peft",
        f"adapter.peft.path={str(tmp_path / 'adapter')!r}",
    ]
    config = load_config(None, [*options, "train.steps=2"])
    train(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "steps" / "2")  # as if it had been killed before
    first, _ = [
        json.loads(line)
        for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        if '"kl/mean"' in line
    ]
    assert first["kl/mean"] == 0.0  # the reference begins with the change too
    rewrite(tmp_path / "adapter", lambda arrays: {name: 2 * array for name, array in arrays.items()})
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors: is not the file that the run began with"):
        train(config, tmp_path / "run")
