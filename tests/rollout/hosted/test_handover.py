"""Folders of weights: written, dropped, and removed when nobody needs them."""

import json
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import attrs
import jax
import numpy as np
import pytest
from flax import nnx
from tests.model.folders import FIXTURES

from dovetail.devices.hand_over import HandOver
from dovetail.devices.mesh import Devices
from dovetail.errors import ConfigError, RunError
from dovetail.protocols import Weights
from dovetail.training.models import split
from dovetail_model.adapter.lora import LoRA
from dovetail_model.huggingface.safetensors import open_folder
from dovetail_model.model.decoder import Decoder
from dovetail_model.model.pretrained import Pretrained
from dovetail_rollout.hosted import handover as module
from dovetail_rollout.hosted.handover import LOCK, Handover, adapted, dtype_of

DORA = LoRA(rank=2, quantise_base="nf4", weight_decomposed=True)
MAKER = Decoder(width=16, layers=1, heads=2, kv_heads=1, ffn=24)


@pytest.fixture
def weights():
    graphdef, trained, frozen = nnx.split(MAKER.make(13, rngs=nnx.Rngs(0)), nnx.Param, ...)
    return graphdef, Weights(trained, frozen)


def opened(place, graphdef, *, adapter=False):
    return Handover.open(str(place), MAKER, graphdef, adapter=adapter)


def test_versions_are_folders_that_other_programs_read(tmp_path, weights):
    handover = opened(tmp_path, weights[0])
    first, second = handover.write(weights[1], 0), handover.write(weights[1], 1)
    assert first != second
    assert "model.embed_tokens.weight" in open_folder(first)
    assert dtype_of(first) == "float32"
    assert adapted(first) is None
    handover.keep(second)
    assert not first.exists()
    assert second.exists()
    handover.close()
    handover.close()
    assert not any(tmp_path.iterdir())


def test_a_host_computes_in_the_type_of_the_policy_whatever_that_of_its_weights(tmp_path):
    maker = attrs.evolve(MAKER, dtype="bfloat16")
    graphdef, trained, frozen = nnx.split(maker.make(13, rngs=nnx.Rngs(0)), nnx.Param, ...)
    handover = Handover.open(str(tmp_path), maker, graphdef, adapter=False)
    folder = handover.write(Weights(trained, frozen), 0)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert dtype_of(folder) == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize("change", [None, LoRA(rank=2), LoRA(rank=2, quantise_base="int8"), DORA], ids=str)
def test_copies_in_host_memory_are_written_as_those_on_devices(tmp_path, change):
    model = MAKER.make(13, rngs=nnx.Rngs(0))
    graphdef, weights = split(change.apply(model, rngs=nnx.Rngs(1)) if change else model)
    weights = Weights(jax.tree.map(lambda leaf: leaf + 0.1, weights.trained), weights.frozen)
    host = HandOver(devices=Devices(None), on_host=("rollout",))(weights, "rollout")
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(host))
    handover = opened(tmp_path, graphdef)
    written = [handover.write(each, version) for version, each in enumerate((weights, host))]
    one, other = (folder / "model.safetensors" for folder in written)
    assert one.read_bytes() == other.read_bytes()
    assert dtype_of(written[1]) == "float32"


def test_a_dora_adapter_is_handed_over_merged_alone(tmp_path):
    """vLLM refuses it too, but only after it has been started and has read the base."""
    maker = Pretrained(path=str(FIXTURES / "qwen2"))
    graphdef, weights = split(DORA.apply(maker.make(1, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1)))
    for adapter in (False, True):
        handover = Handover.open(str(tmp_path), maker, graphdef, adapter=adapter)
        folder = handover.write(weights, 0)
        with pytest.raises(ConfigError, match=REFUSED) if adapter else nullcontext():
            assert adapted(folder) is None


REFUSED = r"vLLM reads no DoRA adapter \(adapter\.lora\.weight_decomposed.*set rollout\.vllm\.adapter = False"


def test_weights_that_memory_has_no_room_for_are_written_elsewhere(tmp_path, weights, monkeypatch):
    memory, temporary = tmp_path / "shm", tmp_path / "tmp"
    memory.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(module, "MEMORY", memory)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(temporary))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights[1]))
    for free, place in ((2 * size, memory), (2 * size - 1, temporary)):
        frees = {memory: free, temporary: 2 * size}
        monkeypatch.setattr(module.shutil, "disk_usage", lambda at, frees=frees: SimpleNamespace(free=frees[at]))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            handover = Handover.open(None, MAKER, weights[0], adapter=False, weights=weights[1])
        assert handover.root.parent == place
        assert [str(each.message)[-15:] for each in warned] == (["which is slower"] if place == temporary else [])


@pytest.mark.parametrize("named", [True, False])
def test_weights_that_no_place_has_room_for_are_refused_at_the_start(named, tmp_path, weights, monkeypatch):
    monkeypatch.setattr(module, "MEMORY", tmp_path / "not there")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    where = str(tmp_path) if named else None
    with pytest.raises(ConfigError, match=r"weights .* take \d.*, and .* has 1\.0 kB free; make room there, or name"):
        module.claim(where, 5000)
    assert not list(tmp_path.iterdir())


def test_it_goes_with_its_owner(tmp_path, weights):
    handover = opened(tmp_path, weights[0])
    handover.write(weights[1], 0)
    del handover
    assert not any(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path, weights):
    held = opened(tmp_path, weights[0])
    left = tmp_path / "dovetail-weights-left"
    left.mkdir()
    (left / LOCK).touch()
    (tmp_path / "dovetail-weights-in-the-making").mkdir()
    (tmp_path / "mine").mkdir()
    opened(tmp_path, weights[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [held.root.name, "dovetail-weights-in-the-making", "mine"]
    )


def test_no_room(tmp_path, weights):
    handover = opened(tmp_path, weights[0])
    (handover.root / "version-3").touch()
    with pytest.raises(RunError, match="the weights of version 3 cannot be written to"):
        handover.write(weights[1], 3)


def test_what_cannot_be_written(tmp_path, weights):
    with pytest.raises(ConfigError, match="has no folder that an adapter could refer to"):
        opened(tmp_path, weights[0], adapter=True).write(weights[1], 0)


def test_the_type_of_an_adapter_is_that_of_its_model(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    adapter.mkdir()
    (base / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "r": 2}))
    assert dtype_of(adapter) == dtype_of(base) == "bfloat16"
