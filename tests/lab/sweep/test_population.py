"""Runs in threads whose calls are combined into one: each gets the same results as alone."""

import signal
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail.devices.compiled import compiled
from dovetail.devices.population import make_model
from dovetail.interruptions import interruptions, stop_if_asked
from dovetail.protocols import Weights
from dovetail_lab.sweep import population as module
from dovetail_lab.sweep.population import Population

CALLS, PROGRAMS = [], []


@compiled(static=(2,), donate=(0,))
def step(state, base, power, number):
    CALLS.append(jnp.shape(state["x"]))
    return {"x": state["x"] * number**power + base}, jnp.sum(state["x"])


@pytest.fixture(autouse=True)
def note_programs(monkeypatch):
    """Clear the compiled programs, and record the programs that are vectorised."""
    CALLS.clear()
    PROGRAMS.clear()
    step.alone.clear_cache()
    module._vectorised.cache_clear()
    made = module._vectorised

    def note(program):
        if program not in PROGRAMS:
            PROGRAMS.append(program)
        return made(program)

    monkeypatch.setattr(module, "_vectorised", note)


def together(*runs):
    """Run functions in the threads of a population; return what they return, or raise."""
    population, results = Population(len(runs)), [None] * len(runs)

    def member(i):
        try:
            with population.member(i):
                results[i] = runs[i](population)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=member, args=(i,), daemon=True) for i in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "the population is stuck"
    return results


def run(number: float, base, times: int = 3, power: int = 1):
    def steps(population):
        state = {"x": jnp.arange(3, dtype=jnp.float32)}
        sums = []
        for _ in range(times):
            state, total = step(state, base, power, np.float32(number))
            sums.append(float(total))
            population.align()
        return np.asarray(state["x"]), sums

    return steps


class _Alone:
    @staticmethod
    def align():
        pass


def assert_same(found, expected):
    for (state, sums), (state_alone, sums_alone) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state, state_alone, rtol=1e-6)
        np.testing.assert_allclose(sums, sums_alone, rtol=1e-6)


def test_calls_are_stacked_and_give_what_each_gives_alone():
    base = jnp.float32(1)
    runs = [run(number, base) for number in (1.0, 2.0, 3.0)]
    found = together(*runs)
    traced = len(CALLS)
    assert_same(found, [each(_Alone) for each in runs])
    assert traced == 1, "one trace, of all runs at once"


def test_calls_are_stacked_in_the_order_of_the_runs_whoever_comes_first(monkeypatch):
    """The place in a stack may change the last bit of a result, so chance must not choose it."""
    noted, made = [], module._vectorised

    def note(program):
        return lambda taken, lent, common: (
            noted.append([float(row[-1]) for row in lent]) or made(program)(taken, lent, common)
        )

    monkeypatch.setattr(module, "_vectorised", note)

    def late(seconds, steps):
        return lambda population: time.sleep(seconds) or steps(population)

    base = jnp.float32(1)
    together(*(late(0.2 - 0.1 * i, run(float(i), base, times=2)) for i in range(3)))
    assert noted == [[0.0, 1.0, 2.0]] * 2


def test_what_all_runs_have_in_common_is_not_stacked():
    base = jnp.ones(3)
    together(run(1.0, base), run(2.0, base))
    (program,) = PROGRAMS
    assert program.kinds == ("taken", "common", "lent")
    together(run(1.0, jnp.ones(3)), run(2.0, jnp.ones(3)))
    assert PROGRAMS[-1].kinds == ("taken", "lent", "lent")


def test_calls_that_differ_at_compile_time_run_by_themselves():
    base = jnp.float32(1)
    runs = [run(2.0, base, power=1), run(2.0, base, power=2), run(3.0, base, power=2)]
    assert_same(together(*runs), [each(_Alone) for each in runs])
    assert [program.static for program in PROGRAMS] == [(2,)]


def test_a_run_that_does_more_in_a_step_is_level_again_at_its_end():
    base = jnp.float32(1)

    def more(population):
        step({"x": jnp.zeros(3)}, base, 1, np.float32(9))
        return run(2.0, base)(population)

    plain = run(3.0, base)
    found = together(more, plain)
    assert_same(found, [run(2.0, base)(_Alone), plain(_Alone)])
    assert len(PROGRAMS) == 1


def test_runs_may_end_at_different_times():
    base = jnp.float32(1)
    runs = [run(1.5, base, times=times) for times in (1, 4, 2)]
    assert_same(together(*runs), [each(_Alone) for each in runs])


def test_an_error_reaches_everybody_in_the_call_and_nobody_else():
    base = jnp.float32(1)

    def wrong(population):
        return step({"x": jnp.zeros(3)}, jnp.zeros(2), 1, np.float32(1))

    first, second, third = together(wrong, wrong, run(2.0, base))
    assert isinstance(first, TypeError)
    assert isinstance(second, TypeError)
    assert_same([third], [run(2.0, base)(_Alone)])


@pytest.mark.parametrize("argument", [[1], np.ones(2)], ids=["unhashable", "array"])
def test_a_call_that_cannot_be_compared_keeps_nobody_waiting(argument):
    base = jnp.float32(1)

    def odd(population):
        return step({"x": jnp.zeros(3)}, base, argument, np.float32(1))

    first, second, third = together(odd, run(2.0, base), run(3.0, base))
    assert isinstance(first, ValueError), first
    assert "static" in str(first), "what jax says of such a call alone"
    assert_same([second, third], [run(2.0, base)(_Alone), run(3.0, base)(_Alone)])
    assert len(PROGRAMS) == 1, "the others are trained as one"


def test_arguments_that_are_not_arrays_keep_nobody_waiting():
    base = jnp.float32(1)

    def odd(population):
        return step({"x": "text"}, base, 1, np.float32(1))

    first, second = together(odd, run(2.0, base))
    assert isinstance(first, TypeError), first
    assert_same([second], [run(2.0, base)(_Alone)])


def test_equal_frozen_weights_are_one_copy():
    def model(seed: float, frozen: float):
        def make(population):
            return make_model(lambda: (None, Weights(nnx.State({"a": jnp.full(2, seed)}), {"b": jnp.full(2, frozen)})))[
                1
            ]

        return make

    first, second, other = together(model(1.0, 5.0), model(2.0, 5.0), model(3.0, 6.0))
    assert first.frozen is second.frozen
    assert other.frozen is not first.frozen
    assert float(second.trained["a"][0]) == 2.0


def test_a_signal_ends_all_after_the_same_step():
    """Even if one has looked before it came: that one would have to compile everything again to go on alone."""
    came = threading.Event()

    def sent(number):
        if number == 3:
            heard.append(signal.SIGTERM)
            came.set()

    def awaited(number):
        if number == 3:
            came.wait(60)

    def steps(before, after):
        def run(population):
            for number in range(9):
                before(number)
                try:
                    stop_if_asked()
                except KeyboardInterrupt:
                    return number
                after(number)
                population.align()
            return None

        return run

    with interruptions() as heard:
        assert together(steps(id, sent), steps(awaited, id)) == [4, 4]
