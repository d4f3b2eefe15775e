"""A feed-forward layer of experts, of which each token uses a few."""

from __future__ import annotations

import functools
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from dovetail_model.layers.glu import ACTIVATIONS, Activation
from dovetail_model.layers.linear import Stack


@attrs.frozen(kw_only=True)
class Sparsity:
    """The numbers that describe the sparse feed-forward layers of a model.

    Attributes:
        experts: the number of experts in a layer.
        chosen: how many of them each token uses.
        ffn: units of each expert.
        normalised: whether the weights of the chosen experts are scaled to sum to one.
        layers: the indices of the layers that have experts; the others have a dense feed-forward layer.
    """

    experts: int
    chosen: int
    ffn: int
    normalised: bool
    layers: tuple[int, ...]


class Routes(NamedTuple):
    """The experts that each token uses, their weights, and whether the router agrees.

    `agreed` has those of the given experts that the router would choose too, -1 in place of the others, and the
    router's own where none were given.
    """

    experts: Int[Array, "row choice"]
    weights: Float[Array, "row choice"]
    agreed: Int[Array, "row choice"]


class Experts(nnx.Module):
    """A gated feed-forward layer for each expert: yᵢ = (act(xᵢ W_gate,ₑ) ⊙ xᵢ W_up,ₑ) W_down,ₑ with the row's expert e.

    The rows are sorted by expert; `sizes` says how many rows each expert has.
    """

    def __init__(
        self,
        width: int,
        sparsity: Sparsity,
        *,
        activation: Activation,
        std: float,
        out_std: float,
        param_dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        self.activation = activation
        stack = functools.partial(Stack, sparsity.experts, param_dtype=param_dtype, rngs=rngs)
        self.gate = stack(width, sparsity.ffn, axes=("width", "ffn"), std=std)
        self.up = stack(width, sparsity.ffn, axes=("width", "ffn"), std=std)
        self.down = stack(sparsity.ffn, width, axes=("ffn", "width"), std=out_std)

    def __call__(self, x: Float[Array, "row width"], sizes: Int[Array, "expert"]) -> Float[Array, "row width"]:
        """Return each row's output."""
        return self.down(ACTIVATIONS[self.activation](self.gate(x, sizes)) * self.up(x, sizes), sizes)


class Mixture(nnx.Module):
    """A mixture of experts: y = Σ pₑ(x) Expertₑ(x) over the k experts of greatest p, where p(x) = softmax(x Rᵀ).

    With `normalised`, p is divided by its sum over the k experts. No token is dropped: an expert computes as many
    tokens as choose it. The router R is [expert, width]. With `given`, a row uses these k experts instead, with the
    weights that the router gives them now; rows of -1 choose for themselves.

    Qwen Team 2025, "Qwen3 Technical Report", section 2; Shazeer et al. 2017, "Outrageously Large Neural Networks",
    section 2.

    *Departures* from `transformers`: the router's product is computed in float32 whatever the type of x, because
    a rounded product may choose other experts.

    >>> sparsity = Sparsity(experts=4, chosen=2, ffn=8, normalised=True, layers=(0,))
    >>> sizes = {"std": 0.02, "out_std": 0.01, "param_dtype": "float32"}
    >>> layer = Mixture(6, sparsity, activation="silu", **sizes, rngs=nnx.Rngs(0))
    >>> y, chosen = layer(jnp.ones((3, 6)))
    >>> y.shape, chosen.shape
    ((3, 6), (3, 2))
    """

    def __init__(
        self,
        width: int,
        sparsity: Sparsity,
        *,
        activation: Activation,
        std: float,
        out_std: float,
        param_dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        self.sparsity = sparsity
        router = std * jax.random.normal(rngs.params(), (sparsity.experts, width), param_dtype)
        self.router = nnx.Param(router, axes=(None, "width"))
        self.experts = Experts(
            width, sparsity, activation=activation, std=std, out_std=out_std, param_dtype=param_dtype, rngs=rngs
        )

    def __call__(
        self, x: Float[Array, "row width"], given: Int[Array, "row choice"] | None = None
    ) -> tuple[Float[Array, "row width"], Int[Array, "row choice"]]:
        """Return the layer's contribution to the residual stream, and `Routes.agreed`."""
        routes = self.route(x, given)
        number, chosen = routes.experts.shape
        experts = routes.experts.ravel()
        order = jnp.argsort(experts, stable=True)
        back = jnp.argsort(order)
        sizes = jnp.bincount(experts, length=self.sparsity.experts).astype(jnp.int32)
        y = self.experts(_permuted(jnp.repeat(x, chosen, axis=0), order, back), sizes)
        y = _permuted(y, back, order).reshape(number, chosen, -1).astype(jnp.float32)
        return jnp.einsum("rcw,rc->rw", y, routes.weights).astype(x.dtype), routes.agreed

    def route(self, x: Float[Array, "row width"], given: Int[Array, "row choice"] | None = None) -> Routes:
        """Choose the experts of each row, or weigh the given ones."""
        probabilities = jax.nn.softmax(x.astype(jnp.float32) @ self.router[...].astype(jnp.float32).T)
        weights, experts = jax.lax.top_k(probabilities, self.sparsity.chosen)
        agreed = experts
        if given is not None:
            is_given = jnp.all(given >= 0, axis=1, keepdims=True)
            also = jnp.any(given[:, :, None] == experts[:, None, :], axis=2)
            agreed = jnp.where(is_given, jnp.where(also, given, -1), experts)
            experts = jnp.where(is_given, given, experts)
            weights = jnp.take_along_axis(probabilities, experts, axis=1)
        if self.sparsity.normalised:
            weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        return Routes(experts, weights, agreed)


@jax.custom_vjp
def _permuted(
    x: Float[Array, "row width"], order: Int[Array, "row"], back: Int[Array, "row"]
) -> Float[Array, "row width"]:
    """Return the rows in another order, of which `back` is the inverse; its gradient needs no scattered additions."""
    return x[order]


def _permuted_forward(x: Array, order: Array, back: Array) -> tuple[Array, Array]:
    return x[order], back


def _permuted_backward(back: Array, upstream: Array) -> tuple[Array, None, None]:
    return upstream[back], None, None


_permuted.defvjp(_permuted_forward, _permuted_backward)
