"""Linear layers, which may have trainable low-rank adapters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from dovetail.errors import ConfigError
from dovetail_model.layers.decomposed import Decomposed
from dovetail_model.layers.grouped import grouped_dot
from dovetail_model.layers.kernel import Kernel, dense, product
from dovetail_model.layers.low_rank import LowRank
from dovetail_model.layers.quantised import Format, Quantised

Axes = tuple[str | None, str | None]


class Matrix(nnx.Module):
    """A matrix, or several of the same size, with a trainable low-rank change if it has been adapted."""

    kernel: Kernel
    change: LowRank | None
    param_dtype: str

    def adapt(
        self,
        rank: int,
        *,
        scale: float,
        dropout: float = 0.0,
        number: int = 0,
        decomposed: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Add an adapter of this rank, which is initially zero; a `decomposed` one has norms to train too."""
        raise NotImplementedError

    def quantise(self, format: Format) -> None:
        """Replace the matrix by one with fewer bits, which cannot be trained."""
        raise NotImplementedError

    def merged(self, dtype: str | None = None) -> Float[Array, "*group inputs outputs"]:
        """Return the matrix with its change, computed in float32 and cast to `dtype`, by default that of the weights.

        Without a change, a matrix in host memory stays there.
        """
        matrix = dense(self.kernel)
        if self.change is not None:
            matrix = jnp.asarray(matrix).astype(jnp.float32) + self.change.difference(self.kernel)
        return matrix.astype(dtype or self.param_dtype, copy=False)

    def rounding(self, dtype: str | None = None) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the squared norm of the error that merging in `dtype` makes in the change, and that of the change.

        The merged change is the difference of the merged matrix and the matrix without the change, both rounded.
        """
        if self.change is None:
            return jnp.zeros(()), jnp.zeros(())
        change, before = self.change.difference(self.kernel), dense(self.kernel).astype(dtype or self.param_dtype)
        made = self.merged(dtype).astype(jnp.float32) - before.astype(jnp.float32)
        return jnp.sum((made - change) ** 2), jnp.sum(change**2)


class Linear(Matrix):
    """Multiply by a matrix and add a bias if there is one: y = x W + b, in the dtype of x.

    With `adapt`, y = x W + α/r (x A) B + b, where A is [inputs, r] and B [r, outputs]; a `decomposed` adapter scales
    each output of x W + α/r (x A) B too, see `Decomposed`.

    The input is 2-D, one row per token: on CPUs the products and their gradients run about twice as fast that way as
    with a batch axis. `kernel` is [inputs, outputs], drawn from N(0, std²), with the logical names `axes`; the bias
    starts at zero.

    >>> layer = Linear(3, 2, axes=("width", "ffn"), bias=True, std=0.02, param_dtype="float32", rngs=nnx.Rngs(0))
    >>> layer(jnp.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self, inputs: int, outputs: int, *, axes: Axes, bias: bool, std: float, param_dtype: str, rngs: nnx.Rngs
    ) -> None:
        self.inputs, self.outputs, self.axes, self.param_dtype = inputs, outputs, axes, param_dtype
        kernel = std * jax.random.normal(rngs.params(), (inputs, outputs), param_dtype)
        self.kernel: Kernel = nnx.Param(kernel, axes=axes)
        self.bias = nnx.Param(jnp.zeros(outputs, param_dtype), axes=axes[1:]) if bias else None
        self.change: LowRank | None = None

    def __call__(
        self, x: Float[Array, "row inputs"], keys: Key[Array, "row"] | None = None
    ) -> Float[Array, "row outputs"]:
        """Return y; `keys` are for the adapter's dropout."""
        y = product(self.kernel, x) if self.change is None else self.change.beside(self.kernel, x, keys)
        return y if self.bias is None else y + self.bias[...].astype(x.dtype)[None, :]

    def adapt(
        self,
        rank: int,
        *,
        scale: float,
        dropout: float = 0.0,
        number: int = 0,
        decomposed: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Add an adapter of this rank, which is initially zero; a `decomposed` one has norms to train too."""
        make = Decomposed if decomposed else LowRank
        change = make(
            self.inputs, self.outputs, rank, axes=self.axes, scale=scale, dropout=dropout, number=number, rngs=rngs
        )
        self.change = nnx.data(change)

    def quantise(self, format: Format) -> None:
        """Replace the matrix by one with fewer bits, which cannot be trained."""
        if not isinstance(self.kernel, Quantised):
            self.kernel = Quantised(self.kernel[...], axes=self.axes, format=format)


class Stack(Matrix):
    """A matrix for each group: yᵢ = xᵢ W₉₍ᵢ₎ in the type of x, where g(i) is the group of row i; see `grouped_dot`.

    `kernel` is [group, inputs, outputs], drawn from N(0, std²); `axes` are the names of the last two axes. With
    `adapt`, every group has its own low-rank change.

    >>> stack = Stack(2, 3, 4, axes=("width", "ffn"), std=0.02, param_dtype="float32", rngs=nnx.Rngs(0))
    >>> stack(jnp.ones((5, 3)), jnp.array([1, 4])).shape
    (5, 4)
    """

    def __init__(
        self, groups: int, inputs: int, outputs: int, *, axes: Axes, std: float, param_dtype: str, rngs: nnx.Rngs
    ) -> None:
        self.shape, self.axes, self.param_dtype = (groups, inputs, outputs), axes, param_dtype
        kernel = std * jax.random.normal(rngs.params(), self.shape, param_dtype)
        self.kernel = nnx.Param(kernel, axes=(None, *axes))
        self.change = None

    def __call__(self, x: Float[Array, "row inputs"], sizes: Int[Array, "group"]) -> Float[Array, "row outputs"]:
        """Return y; the rows are sorted by group."""
        y = grouped_dot(x, dense(self.kernel), sizes)
        if (change := self.change) is not None:
            y = y + grouped_dot(grouped_dot(x, change.a[...], sizes), change.b[...], sizes) * change.scale
        return y

    def adapt(
        self,
        rank: int,
        *,
        scale: float,
        dropout: float = 0.0,
        number: int = 0,
        decomposed: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Add an adapter of this rank to every group.

        Raises:
            ConfigError: with dropout, whose draws belong to a text and not to the rows of a group; or if `decomposed`,
                because the norms of all experts would be computed again in every pass, for the few that are chosen.
        """
        if dropout:
            raise ConfigError("adapter.lora.dropout is not supported on experts; set it to 0 or adapt other modules")
        if decomposed:
            raise ConfigError(
                "adapter.lora.weight_decomposed is not supported on experts; name other modules in"
                " adapter.lora.modules, such as '(?!.*experts).*'"
            )
        groups, inputs, outputs = self.shape
        change = LowRank(inputs, outputs, rank, axes=self.axes, scale=scale, groups=groups, rngs=rngs)
        self.change = nnx.data(change)

    def quantise(self, format: Format) -> None:
        """Refuse.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "adapter.lora.quantise_base is not supported on experts; name other modules in adapter.lora.modules"
        )

    def of_group(self, group: int, dtype: str | None = None) -> Float[Array, "inputs outputs"]:
        """Return the merged matrix of one group, as `merged` does of all."""
        matrix = dense(self.kernel)[group]
        if self.change is not None:
            product = self.change.scale * jnp.matmul(self.change.a[group], self.change.b[group])
            matrix = jnp.asarray(matrix).astype(jnp.float32) + product
        return matrix.astype(dtype or self.param_dtype, copy=False)
