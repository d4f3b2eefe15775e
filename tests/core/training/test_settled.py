"""A run asks the component of `memory.sizing` how to compute a step, checks the answer, and keeps it."""

import json

import attrs
import pytest
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.config.ids import config_id
from dovetail.devices.mesh import Devices
from dovetail.errors import RunError
from dovetail.protocols import DoesNotFit, Settled
from dovetail.run.folder import MEMORY
from dovetail.step.algorithm import assemble
from dovetail.training.loop import train
from dovetail.training.models import Models
from dovetail.training.settled import settle
from dovetail_memory import device


@attrs.frozen(kw_only=True)
class Said:
    """A sizing that chooses what it is told."""

    mode: str | None = None
    rows: int = 2

    def update(self, config, algorithm, models, devices):
        return Settled(mode=self.mode, micro_batch_size=self.rows, positions=None)

    def warm_start(self, config, graphdef, weights, devices):
        return 1


def parts(*overrides):
    config = load(None, [*TINY, *overrides])
    devices = Devices(None)
    return config, assemble(config), Models(config=config, devices=devices, vocab_size=300), devices


@pytest.fixture
def said():
    dovetail.register("sizing", "said", Said)
    return "memory.sizing=said"


def test_the_choice_is_made_once_and_kept_with_the_run(said, tmp_path):
    first = settle(*parts(said), tmp_path)
    assert first.micro_batch_size == 2
    assert json.loads((tmp_path / MEMORY).read_text())["micro_batch_size"] == 2
    assert settle(*parts(said, "sizing.said.rows=4"), tmp_path) == first


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (["sizing.said.mode=fast"], "chose the mode 'fast'; modes of the model: 'remat none"),
        (["sizing.said.rows=0"], "chose micro-batches of 0 completions; from 1 to 16"),
        (["sizing.said.rows=17"], "chose micro-batches of 17 completions; from 1 to 16"),
        (["train.loss_terms=['dpo']"], "chose micro-batches of 2 completions, which cut groups of 4"),
    ],
)
def test_a_choice_that_cannot_be_computed_is_refused(said, choice, message, tmp_path):
    with pytest.raises(RunError, match=rf"^sizing\.said {message}"):
        settle(*parts(said, *choice), tmp_path)
    assert not (tmp_path / MEMORY).exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "fast"}, "has the mode 'fast'; modes of the model: 'remat none"),
        ({"micro_batch_size": 17}, "has micro-batches of 17 completions; from 1 to 16"),
    ],
)
def test_a_kept_choice_that_cannot_be_computed_is_refused(said, changed, message, tmp_path):
    first = settle(*parts(said), tmp_path)
    (tmp_path / MEMORY).write_text(json.dumps(attrs.asdict(first) | changed))
    with pytest.raises(RunError, match=rf"memory\.json' {message}"):
        settle(*parts(said), tmp_path)


def test_the_sizing_is_no_part_of_the_config_id(said):
    assert config_id(load(None, TINY)) == config_id(load(None, [*TINY, said, "sizing.said.rows=4"]))


@pytest.mark.slow
def test_a_run_that_does_not_fit_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(DoesNotFit, match="may be used"):
        train(load(None, [*TINY, "memory.limit=0.0001"]), tmp_path)


def test_a_warm_start_alone_is_refused_only_where_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "PROGRAM", 0)
    with pytest.raises(
        DoesNotFit, match=r"a warm start takes 1\d\d\.\d kB of each device for parameters, gradients and"
    ):
        settle(*parts("memory.limit=0.0001"), tmp_path, refuse=False)
    frugal = settle(*parts("memory.limit=0.0003"), tmp_path, refuse=False)
    assert frugal.mode.startswith("remat full")
