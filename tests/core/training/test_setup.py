"""Mistakes in a run's components are found before anything is loaded."""

import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import DovetailError
from dovetail.training.setup import set_up


def needy(completion, nowhere):
    """A process reward that reads a column that the task does not have."""
    return [(0, 1.0)]


def test_a_process_reward_without_its_column_is_refused_before_any_weights_are_read(tmp_path):
    dovetail.register("process_reward", "needy", needy)
    config = load(None, [*TINY, "train.process_rewards=['needy']"])
    with pytest.raises(DovetailError, match="nowhere"):
        set_up(config, tmp_path, before_loading=lambda: pytest.fail("weights are read"))
