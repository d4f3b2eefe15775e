import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model.layers.rope import Rope, Stretch, Yarn, rotate, rotation


def turned(x, position, theta=100.0):
    return rotate(x[None, None, :], rotation(jnp.array([position]), Rope(theta=theta).frequencies(x.size)))[0, 0]


def test_position_zero_changes_nothing():
    x = jnp.arange(1.0, 9.0)
    np.testing.assert_array_equal(turned(x, 0), x)


def test_by_hand():
    # head_dim 4, theta 100: frequencies 1 and 0.1; the pairs are (x0, x2) and (x1, x3)
    a, b = np.cos([1.0, 0.1]), np.sin([1.0, 0.1])
    expected = [1 * a[0] - 3 * b[0], 2 * a[1] - 4 * b[1], 3 * a[0] + 1 * b[0], 4 * a[1] + 2 * b[1]]
    np.testing.assert_allclose(turned(jnp.arange(1.0, 5.0), 1), expected, rtol=1e-6)


def test_norms_are_kept():
    x = jax.random.normal(jax.random.key(0), (16,))
    np.testing.assert_allclose(jnp.linalg.norm(turned(x, 1234)), jnp.linalg.norm(x), rtol=1e-5)


@pytest.mark.parametrize("shift", [1, 7, 100])
def test_products_depend_on_the_distance_alone(shift):
    query, key = jax.random.normal(jax.random.key(0), (2, 16))
    near = turned(query, 5) @ turned(key, 2)
    np.testing.assert_allclose(turned(query, 5 + shift) @ turned(key, 2 + shift), near, rtol=1e-4)


def test_the_dtype_is_kept():
    assert turned(jnp.ones(4, jnp.bfloat16), 3).dtype == jnp.bfloat16


def test_a_factor_divides_all_frequencies():
    np.testing.assert_allclose(Rope(theta=100.0, factor=8.0).frequencies(4), [1 / 8, 0.1 / 8], rtol=1e-6)


def test_a_stretch_keeps_high_frequencies_and_divides_low_ones():
    stretched = Rope(theta=1000.0, stretch=Stretch(factor=8.0, low=1.0, high=4.0, original=32)).frequencies(6)
    plain = Rope(theta=1000.0).frequencies(6)
    turns = 32 * plain / (2 * np.pi)
    assert turns[0] > 4
    assert turns[2] < 1
    np.testing.assert_allclose(stretched[0], plain[0], rtol=1e-6)
    np.testing.assert_allclose(stretched[2], plain[2] / 8, rtol=1e-6)


def test_a_stretch_interpolates_in_between():
    # theta 100 and head_dim 4: 40π positions make ω = 0.1 turn twice, a third of the way from 1 to 4
    stretch = Stretch(factor=8.0, low=1.0, high=4.0, original=40 * np.pi)
    np.testing.assert_allclose(
        Rope(theta=100.0, stretch=stretch).frequencies(4)[1], 0.1 * (2 / 3 / 8 + 1 / 3), rtol=1e-6
    )


def test_yarn_by_hand():
    # theta 100 and head_dim 8: ω = 10^(-i/2); over 100 positions pair 0 turns 15.9 times, pair 2 1.59 times and pair 3
    # 0.5 times, so that two turns are at i = 1.80 and a half at 3.005
    frequencies = Rope(theta=100.0).frequencies(8).astype(float)
    rule = Yarn(factor=4.0, original=100, fast=2.0, slow=0.5)
    kept = [1, 1, 1 - 1 / 3, 1 - 2 / 3]  # rounded outwards: from 1 to 4
    np.testing.assert_allclose(rule(frequencies) / frequencies, [1 - 0.75 * (1 - s) for s in kept], rtol=1e-6)
    exact = Yarn(factor=4.0, original=100, fast=2.0, slow=0.5, whole=False)
    at = [2 * np.log10(100 / (2 * np.pi * n)) for n in (2.0, 0.5)]
    lowered = (2 - at[0]) / (at[1] - at[0])
    np.testing.assert_allclose(exact(frequencies)[2] / frequencies[2], 1 - 0.75 * lowered, rtol=1e-6)


def test_a_magnitude_multiplies_what_is_turned():
    x = jax.random.normal(jax.random.key(0), (1, 1, 16))
    turned = rotate(x, rotation(jnp.array([7]), Rope(theta=100.0).frequencies(16), 1.5))
    np.testing.assert_allclose(jnp.linalg.norm(turned), 1.5 * jnp.linalg.norm(x), rtol=1e-5)
