"""Runs that differ only in numbers share compiled programs, and no compiled program can contain such a number."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
import jax.numpy as jnp
import pytest

from dovetail.devices import compiled as module
from dovetail.devices.compiled import NUMBERS, share


@attrs.frozen(kw_only=True)
class Inner:
    numbers: Mapping[str, float] = attrs.field(metadata=NUMBERS)
    power: int = 1
    options: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Scale:
    """x·number^power, with the number as an argument or, wrongly, as a constant."""

    inner: tuple[Inner, ...]
    honest: bool = True

    def __call__(self, x, number):
        return x * (number if self.honest else self.inner[0].numbers["a"]) ** self.inner[0].power


def scale(number: float, **options) -> Scale:
    honest = options.pop("honest", True)
    return Scale(inner=(Inner(numbers={"a": number}, **options),), honest=honest)


def test_instances_that_differ_in_numbers_share_one_function_and_one_executable():
    first, second = share(scale(2.0)), share(scale(3.0))
    assert first is second
    assert float(first(jnp.float32(5), jnp.float32(2))) == 10
    assert float(second(jnp.float32(5), jnp.float32(3))) == 15
    assert first.alone._cache_size() == 1


def test_runs_in_threads_that_ask_at_the_same_moment_get_the_same_function(monkeypatch):
    """A population stacks calls of the same function only, so it must not be chance whether the runs share it."""
    monkeypatch.setattr(module, "Compiled", lambda *parts: time.sleep(0.05) or parts)
    owners = [scale(float(number), power=7) for number in range(4)]
    with ThreadPoolExecutor(len(owners)) as threads:
        found = list(threads.map(share, owners))
    module._compiled.cache_clear()
    assert all(each is found[0] for each in found)


@pytest.mark.parametrize(
    "other",
    [scale(2.0, power=2), scale(2.0, options={"a": [1, 2.0]}), scale(2.0, power=True), scale(2.0, honest=False)],
    ids=["value", "nested", "type", "own"],
)
def test_what_is_no_number_parts_them(other):
    assert share(other) is not share(scale(2.0))


def test_donation_parts_them():
    assert share(scale(2.0), donate=(0,)) is not share(scale(2.0))


def test_zeros_of_either_sign_are_two_values():
    assert share(scale(1.0, options={"x": 0.0})) is not share(scale(1.0, options={"x": -0.0}))


def test_a_function_that_reads_a_number_of_its_own_is_a_mistake():
    with pytest.raises(RuntimeError, match="reads the number 'a' where it must receive it in `hyper`"):
        share(scale(2.0, honest=False))(jnp.float32(1), jnp.float32(1))
