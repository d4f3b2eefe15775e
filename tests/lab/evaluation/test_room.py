"""A policy that does not fit into memory is refused before it is loaded, with what would fit."""

import attrs
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import DoesNotFit
from dovetail.training.models import Models
from dovetail_lab.evaluation.room import Batch, Room
from dovetail_memory import device

MIB = 1 << 20


@pytest.fixture(autouse=True)
def only_arrays(monkeypatch):
    """Ignore the process's own memory, which is more than these models need."""
    monkeypatch.setattr(device, "PROGRAM", 0)


def room(*overrides, restored=False, batch=None):
    config = load(None, [*TINY, "model.decoder.width=256", *overrides])
    return Room(Models(config=config, devices=Devices(None), vocab_size=300), restored, batch)


def limited(room, size):
    config = room.models.config
    changed = attrs.evolve(
        config, sections={**config.sections, "memory": attrs.evolve(config.memory, limit=size / 2**30)}
    )
    return attrs.evolve(room, models=attrs.evolve(room.models, config=changed))


def test_the_weights_of_a_checkpoint_are_beside_those_of_the_start():
    start, restored = room().parts(), room(restored=True).parts()
    assert start["parameters"] > MIB
    assert restored == start | {"the checkpoint's": start["parameters"]}


def test_the_cache_is_that_of_the_slots():
    sizes = {
        slots: room(f"rollout.vanilla.slots={slots}", batch=Batch(prompts=8, samples=4)).parts()["cache"]
        for slots in (None, 4, 64)
    }
    token = 2 * 128 * 4  # a key and a value of one head
    assert sizes[64] == sizes[None] == pytest.approx((8 * 12 + 32 * 6) * token, rel=2e-3)
    assert sizes[None] - sizes[4] == pytest.approx(28 * 6 * token, rel=2e-3)


def test_smaller_batches_and_types_are_suggested_where_they_fit():
    large = room(batch=Batch(prompts=128, samples=64))
    weights, cache = large.parts().values()
    limited(large, weights + cache).check()
    with pytest.raises(DoesNotFit, match=r"it fits: eval.batch_size = 64; model\.decoder\.param_dtype") as refused:
        limited(large, weights + cache - 1).check()
    assert "parameters" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(DoesNotFit, match=r"it fits: model\.decoder\.param_dtype = 'bfloat16'\. memory\.limit"):
        limited(room(restored=True), 2 * weights - 1).check()
