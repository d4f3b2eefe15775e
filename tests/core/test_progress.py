"""Observers of a run are told what it is doing."""

import jax
import jax.numpy as jnp
import pytest

from dovetail import progress
from dovetail.progress import Doing, begin, counted, is_watched, of_program, so_far, watched_by


class Watching:
    def __init__(self):
        self.told = []

    def tell(self, doing):
        self.told.append(doing)


def test_nobody_is_told_where_nobody_watches():
    begin("sampling")
    so_far("sampling", 1, 2)
    assert not is_watched()
    with watched_by():
        assert not is_watched()


def test_phases_and_counts():
    watching = Watching()
    with watched_by(watching):
        begin("sampling", total=4)
        so_far("sampling", 3, 4)
        begin("evaluation")
        so_far("sampling", 1, 4)
        counted("evaluation", 500)(32)
    assert list(map(str, watching.told)) == ["sampling 0 / 4", "sampling 3 / 4", "evaluation", "evaluation 32 / 500"]
    assert not is_watched()


def test_two_programs_are_counted_apart():
    watching = Watching()
    with watched_by(watching):
        begin("update")
        with of_program("sampler"):
            begin("sampling", total=4)
            so_far("sampling", 3, 4)
        so_far("sampling", 4, 4)
    assert list(map(str, watching.told)) == ["update", "sampler: sampling 0 / 4", "sampler: sampling 3 / 4"]


@pytest.mark.parametrize(("slow", "told"), [(True, [False, True, False]), (False, [False])])
def test_compiling_is_told_while_it_lasts(slow, told, monkeypatch):
    monkeypatch.setattr(progress, "WORTH_TELLING", -1.0 if slow else 1e9)
    watching = Watching()
    with watched_by(watching):
        begin("update")
        jax.jit(lambda x: jnp.tanh(x) + (17 if slow else 18))(jnp.ones(3)).block_until_ready()
    compiling = [doing.compiling for doing in watching.told]
    assert compiling[: len(told)] == told
    assert {doing.what for doing in watching.told} == {"update"}
    assert str(Doing("update", compiling=True)) == "compiling update"
