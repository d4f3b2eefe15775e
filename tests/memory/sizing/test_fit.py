"""The choice of the model's mode, the micro-batch and the chunk of logits with which a step fits into memory."""

import attrs
import jax
import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.errors import DovetailWarning
from dovetail.protocols import DoesNotFit, Settled
from dovetail.step.algorithm import assemble
from dovetail.training.models import Models
from dovetail.training.settled import sizing
from dovetail_memory import device, footprint
from dovetail_memory.footprint import Footprint
from dovetail_memory.micro_batch import in_update
from dovetail_memory.sizing import fit

WIDE = (
    "model.decoder.width=64",
    "model.decoder.layers=1",
    "model.decoder.ffn=512",
    "train.max_prompt_tokens=96",
    "sampling.max_tokens=32",
    "train.prompts=4",
    "train.group_size=8",
)


@pytest.fixture(autouse=True)
def only_arrays(monkeypatch):
    """Ignore the process's own memory, which is more than these models need."""
    monkeypatch.setattr(device, "PROGRAM", 0)
    monkeypatch.setattr(footprint, "PER_OPERATION", 0)


def parts(*overrides):
    config = load(None, [*TINY, *WIDE, *overrides])
    devices = Devices(None)
    return config, assemble(config), Models(config=config, devices=devices, vocab_size=300), devices


def choice(limit, *overrides):
    given = parts(f"memory.limit={limit / 1024}", *overrides)
    return sizing(given[0]).update(*given)


def test_where_there_is_room_the_fastest_is_chosen():
    found = choice(10_000)
    assert found.mode == "remat none, attention auto"
    assert found.micro_batch_size == 32
    assert found.positions is None
    assert found.planned < 10_000 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "mode", "rows"),
    [(15, "remat none", 16), (7, "remat dots_no_batch", 8), (6, "remat full", 4)],
)
def test_less_memory_takes_smaller_micro_batches_and_then_recomputes(limit, mode, rows):
    found = choice(limit)
    assert found.mode.startswith(mode)
    assert found.micro_batch_size == rows
    assert 0 < found.planned <= limit * 2**20


def test_what_is_set_is_kept():
    found = choice(14, "train.micro_batch_size=8", "model.decoder.attention=dense")
    assert found.micro_batch_size == 8
    assert found.mode.endswith("attention dense")
    assert choice(1024, "model.decoder.remat=full").mode == "remat full, attention auto"


def test_rows_that_the_devices_cannot_divide_are_said(recwarn):
    for rows, devices in ((8, 1), (8, 4), (4, 4)):
        fit._tell_of_repeated_work(rows, devices)
    assert not recwarn.list
    with pytest.warns(DovetailWarning, match=r"micro_batch_size = 6 is not a multiple of the 4 devices .* set it to 8"):
        fit._tell_of_repeated_work(6, 4)


def test_no_choice_is_larger_than_a_mini_batch():
    step = Footprint(*parts("train.micro_batch_size=64"))
    assert fit._most_frugal(step).micro_batch_size == in_update(step.config).rows == 32


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_what_would():
    frugal = ("model.decoder.remat=full", "model.decoder.attention=blockwise")
    large = ("model.decoder.width=512", "model.decoder.ffn=4096", *frugal)
    with pytest.raises(DoesNotFit, match=r"a step takes .* at least .* 83\.9 MB may be used") as refused:
        choice(80, *large)
    advice = str(refused.value).partition("it fits: ")[2]
    assert "train.adapter = 'lora'" in advice
    assert "memory.limit" in advice
    assert choice(80, *large, "train.adapter=lora").planned <= 80 * 2**20


def test_what_stays_throughout_a_step_is_compared_before_anything_is_traced(monkeypatch):
    """The refusal of a decoder of 68 billion parameters took a minute, because every change was traced in turn."""
    monkeypatch.setattr(footprint, "traced", lambda *_, **__: pytest.fail("an update was traced"))
    large = ("model.decoder.width=8192", "model.decoder.layers=8", "model.decoder.ffn=28672", "train.kl_coef=0.1")
    with pytest.raises(
        DoesNotFit, match=r"at least \(for what stays throughout it alone\), and .* no single change"
    ) as found:
        choice(1024, *large)
    assert found.value.least.planned > 2**30


def test_a_critic_and_a_reference_are_there_too():
    settled = choice(1024)
    plain, more = (Footprint(*parts(*given)) for given in ((), ("train.advantage=gae", "train.kl_coef=0.1")))
    assert more.account(settled).resident.keys() - plain.account(settled).resident.keys() == {
        "reference",
        "critic's parameters",
        "critic's optimizer",
    }
    assert more.account(settled).moments.keys() - plain.account(settled).moments.keys() == {"update of the critic"}
    assert more.account(settled).peak > plain.account(settled).peak


@pytest.mark.parametrize("more", [(), ("train.advantage=gae", "train.kl_coef=0.1"), ("train.adapter=lora",)])
def test_the_bound_without_a_trace_is_above_the_plan(more):
    step, settled = Footprint(*parts(*more)), choice(10_000)
    assert step.rough(settled, in_update(step.config)) >= step.account(settled).peak


def test_gradients_that_are_added_up_are_there_beside_their_sum():
    wide = Footprint(*parts("model.decoder.width=512", "model.decoder.ffn=2048", "train.max_prompt_tokens=12"))
    gradient = 4 * sum(leaf.size for leaf in jax.tree.leaves(wide.models.shapes()[1].trained))
    assert (
        wide.account(Settled(mode=None, micro_batch_size=1, positions=None)).moments["update of the policy"]
        > 1.4 * gradient
    )


def test_a_large_vocabulary_gets_chunks_of_its_own():
    config, algorithm, models, devices = parts("memory.limit=1000")
    large = attrs.evolve(models, vocab_size=150_000)
    found = sizing(config).update(config, algorithm, large, devices)
    assert found.positions == 512
    assert found.apply(algorithm).sizes.positions == 512


@pytest.mark.parametrize(("limit", "positions"), [(4.0, 3000), (1.0, None)])
def test_smaller_chunks_come_before_recomputation(limit, positions, monkeypatch):
    """As on an accelerator, where one chunk for a whole micro-batch saves the logits' recomputation."""
    monkeypatch.setattr(fit, "POSITIONS", {"cpu": 3000})
    monkeypatch.setattr(fit, "LOGITS_SHARES", {"cpu": (1.0, 1e-3)})
    config, algorithm, models, devices = parts(f"memory.limit={limit}", "train.micro_batch_size=32")
    found = sizing(config).update(config, algorithm, attrs.evolve(models, vocab_size=150_000), devices)
    assert (found.mode, found.positions) == ("remat none, attention auto", positions)
    assert found.planned <= limit * 2**30


@pytest.mark.slow
def test_the_plan_prints_the_choice_and_what_does_not_fit(capsys):
    overrides = [word for override in (*TINY, *WIDE) for word in ("--set", override)]
    assert main(["plan", *overrides]) == 0
    printed = capsys.readouterr().out
    assert "remat none, attention auto, micro-batches of 32 completions" in printed
    assert "update of the policy" in printed
    assert "note:" not in printed
    assert main(["plan", *overrides, "--set", "memory.limit=0.001"]) == 0
    assert "may be used; no single change makes it fit" in capsys.readouterr().out
