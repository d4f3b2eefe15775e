"""An engine that is open is closed, wherever the opening of what is around it fails."""

import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import RunError
from dovetail.training.beside import Beside
from dovetail.training.drawing import Drawing
from dovetail.training.loop import train
from dovetail.training.setup import Setup
from dovetail_rollout.rollout.vanilla import VanillaEngine


@pytest.mark.parametrize(("owner", "name"), [(Setup, "evaluator"), (Drawing, "use"), (Beside, "of")])
def test_an_engine_is_closed_if_the_rest_cannot_be_opened(tmp_path, monkeypatch, owner, name):
    opened, closed = [], []

    def failing(*arguments):
        raise RunError("lost")

    engine, close = Setup.engine, VanillaEngine.close
    monkeypatch.setattr(Setup, "engine", lambda *arguments: opened.append(1) or engine(*arguments))
    monkeypatch.setattr(VanillaEngine, "close", lambda self: closed.append(1) or close(self))
    monkeypatch.setattr(owner, name, failing)
    with pytest.raises(RunError, match="lost"):
        train(load(None, [*TINY, "sft.steps=0", "train.steps=1"]), tmp_path)
    assert opened == closed
