"""A checkpoint restores exactly what was saved, bit for bit, on devices and on the host."""

import errno

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from dovetail.errors import RunError
from dovetail.run.checkpoint import Checkpoints, Saved
from dovetail.training import in_flight


@pytest.fixture
def checkpoints(tmp_path):
    opened = Checkpoints(tmp_path, keep=1)
    yield opened
    opened.close()


def noted(checkpoints, **changes):
    """Save a checkpoint whose note says something else."""
    saved = attrs.asdict(Saved(phase="rl", step=1, data={"next_index": 4}, journal={})) | changes
    arguments = ocp.args.Composite(
        state=ocp.args.StandardSave({"w": jnp.ones(3)}),
        meta=ocp.args.JsonSave({name: value for name, value in saved.items() if value is not ...}),
    )
    checkpoints._manager.save(1, args=arguments)


def test_what_an_older_version_noted_beside_is_left_out(checkpoints):
    noted(checkpoints, evaluated=True)
    number, saved = checkpoints.newest()
    assert (number, saved.step, saved.phase) == (1, 1, "rl")
    with pytest.raises(RunError, match=r"cannot be resumed: it lacks taken, prompts, messages, weights.*dovetail eval"):
        in_flight.like(saved.data, {})


def test_a_note_that_lacks_something_is_refused(checkpoints):
    noted(checkpoints, journal=..., phase=...)
    with pytest.raises(RunError, match=r"steps/1' does not say its phase and journal"):
        checkpoints.newest()


def test_arrays_of_the_host_come_back_as_they_were(checkpoints):
    """Examples are a curriculum's estimates and a buffer of earlier completions."""
    state = {
        "count": np.asarray(np.int64(2**40)),
        "rate": np.array([0.1, np.nan, 1 / 3]),
        "seen": np.array([[True], [False]]),
        "device": jnp.arange(3),
    }
    checkpoints.save(1, state, Saved(phase="rl", step=1, data={}, journal={}))
    found = checkpoints.restore(1, jax.tree.map(np.zeros_like, state) | {"device": jnp.zeros(3, jnp.int32)})
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert isinstance(found[name], jax.Array if name == "device" else np.ndarray)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ValueError("""RESOURCE_EXHAUSTED: Failed to write 9 bytes: Disk full [os_error_code='28']"""),
            "No space left",
        ),
        (
            ValueError(r"""RESOURCE_EXHAUSTED: Error opening "zarr" driver [os_error_code=\\\'28\\\']"""),
            "No space left",
        ),
        (ValueError(f"RESOURCE_EXHAUSTED: {400 * 'path/'}: No space left on device"), "No space left"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (ValueError("of another kind"), "ValueError: of another kind"),
    ],
)
def test_why_a_checkpoint_cannot_be_written(error, expected, checkpoints, monkeypatch):
    def fail(*arguments, **named):
        raise error

    monkeypatch.setattr(checkpoints._manager, "save", fail)
    with pytest.raises(RunError, match=f"checkpoint 1 cannot be written in '.*': {expected}"):
        checkpoints.save(1, {"w": jnp.ones(3)}, Saved(phase="rl", step=1, data={}, journal={}))
