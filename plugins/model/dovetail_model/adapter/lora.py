"""Low-rank adaptation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from annotated_types import Ge, Gt, Lt
from flax import nnx

from dovetail import STATIC
from dovetail.errors import ConfigError, listing
from dovetail_model.huggingface.names import module_name
from dovetail_model.layers.linear import Matrix
from dovetail_model.layers.quantised import Format
from dovetail_model.transformer import decoder_of


@attrs.frozen(kw_only=True)
class LoRA:
    """Trains a low-rank change of chosen matrices and leaves the model's own parameters as they are.

        y = x W + α/r (x A) B          A: [inputs, r], B: [r, outputs], B = 0 at first

    Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", equation 3. Since B = 0 at first, a reference
    policy is the same model with the initial adapter: it shares the model's weights, and no second copy is kept.
    With `quantise_base` the adapted matrices are stored in four or eight bits (Dettmers et al. 2023, "QLoRA").

    With `weight_decomposed` the change moves only the direction of each output's weights, and their norm, the magnitude
    m, is trained beside it (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", equation 5):

        y = x W'          W' = m ⊙ V / ‖V‖          V = W + α/r A B          m: [outputs], m = ‖W‖ at first

    As in the paper and in PEFT, the gradient takes ‖V‖ as a constant, and with dropout x W itself keeps all of x.

    Args:
        rank: r, the columns of A and rows of B.
        alpha: α; the change is scaled by α / rank.
        rank_stabilized: scale by α/√r instead, so that what a step changes does not shrink as the rank grows
            (Kalajdzievski 2023, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA").
        weight_decomposed: train a magnitude for each output too. Every pass computes ‖V‖ again, which for a matrix
            [n, n] costs what the change costs for n / 2 tokens, and the update keeps the outputs of each adapted matrix
            for the gradient of m, unless it recomputes them. Refused on experts.
        modules: a regular expression that must match a module's full name, such as
            `.*\\.self_attn\\.(q|v)_proj`; names are those of the Hugging Face folder, `model.layers.0.mlp.up_proj`.
            The default is every matrix except the embeddings and the routers of experts. A layer's experts share a
            name, `model.layers.0.mlp.experts.up_proj`, and each of them gets a change of its own: with 128 experts in
            48 layers, rank 64 is billions of parameters. `(?!.*experts).*` leaves them out.
        quantise_base: the format of the adapted matrices; None leaves them unquantised.
        dropout: the fraction of the inputs of A that are set to zero in training (the warm start and the update); the
            others are scaled up. Sampling and scoring use no dropout, so if the update reads `old_logps` from another
            forward pass, the ratio is noisy even if the policy has not changed. With one update per batch it is not,
            because both come from the same pass.

    Raises:
        ConfigError: for an invalid expression, or an expression that matches nothing; the message lists the names; for
            experts with a setting that they do not support.
    """

    rank: Annotated[int, Ge(1)] = 64
    alpha: Annotated[float, Gt(0), STATIC] = 64.0
    rank_stabilized: bool = False
    weight_decomposed: bool = False
    modules: str = ".*"
    quantise_base: Format | None = None
    dropout: Annotated[float, Ge(0), Lt(1), STATIC] = 0.0

    def __attrs_post_init__(self) -> None:
        try:
            re.compile(self.modules)
        except re.error as error:
            raise ConfigError(
                f"adapter.lora.modules = {self.modules!r} is not a regular expression: {error}"
            ) from error

    @property
    def claims(self) -> Mapping[str, Any]:
        """Whether it is more than a low-rank change."""
        return {"beyond_low_rank": self.weight_decomposed}

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        """Return the model with an adapter on every matrix whose name matches."""
        there = linears(model)
        chosen = [linear for name, linear in there.items() if re.fullmatch(self.modules, name)]
        if not chosen:
            kinds = {re.sub(r"\d+", "N", name) for name in there}
            raise ConfigError(
                f"adapter.lora.modules = {self.modules!r} matches the full name of no module; there are"
                f" {listing(kinds)}, where N is the layer"
            )
        scale = self.alpha / (self.rank**0.5 if self.rank_stabilized else self.rank)
        for number, linear in enumerate(chosen):
            # without dropout the number does not matter, and equal layers are traced only once
            own = number if self.dropout else 0
            linear.adapt(
                self.rank,
                scale=scale,
                dropout=self.dropout,
                number=own,
                decomposed=self.weight_decomposed,
                rngs=rngs,
            )
            if self.quantise_base is not None:
                linear.quantise(self.quantise_base)
        return model


def linears(model: nnx.Module) -> dict[str, Matrix]:
    """Return the matrix products of a decoder under their names in a Hugging Face folder.

    Raises:
        ConfigError: if the model does not come from this package.
    """
    decoder = decoder_of(model)
    products = ((path, module) for path, module in nnx.iter_modules(decoder) if isinstance(module, Matrix))
    return {module_name(decoder.spec.names, path): product for path, product in products}
