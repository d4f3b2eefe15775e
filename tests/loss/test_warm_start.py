"""The warm start on demonstrations."""

import numpy as np
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import DataError
from dovetail.training.setup import set_up
from dovetail.training.texts import demonstrations
from dovetail_loss.warm_start import as_batch, longest


def made(folder, *overrides):
    return set_up(load(None, [*TINY, *overrides]), folder)


def test_demonstrations_are_padded_to_a_width_of_their_own(tmp_path):
    batches = []
    for limit, overrides in ((None, ()), (10, ("sampling.max_tokens=24",))):
        setup = made(tmp_path / str(limit), f"sft.max_tokens={limit}", "sampling.max_tokens=10", *overrides)
        found, _ = demonstrations(setup, *longest(setup.config))
        batches.append(as_batch(list(found[:4]), setup))
    of_sampling, own = batches
    assert own["tokens"].shape == (4, 10)
    for name, array in own.items():
        np.testing.assert_array_equal(array, of_sampling[name])


def test_a_demonstration_over_the_limit_names_the_setting_that_it_exceeds(tmp_path):
    setup = made(tmp_path, "sft.max_tokens=3", "sampling.max_tokens=24")
    with pytest.raises(DataError, match=r"exceed sft.max_tokens - 1 = 2 .*sft.long_completions"):
        demonstrations(setup, *longest(setup.config))


def test_a_demonstration_is_rendered_once_to_be_measured(tmp_path, monkeypatch):
    setup = made(tmp_path, "sft.long_completions='filter'", "train.long_prompts='filter'")
    rendered = []
    monkeypatch.setattr(type(setup), "render", lambda self, example: rendered.append(example) or example["prompt"])
    found, reports = demonstrations(setup, *longest(setup.config))
    assert len(rendered) == reports[0].total == len(found)
    assert [each.limit.column for each in reports] == ["prompt", "completion"]
