"""Executes the forward passes of a plan (role, inputs, quantities) on a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dovetail.plan.compared import KEPT
from dovetail.plan.plan import Pass
from dovetail.plan.roles import COMPLETIONS, CRITIC, INPUTS, OLD, POLICY, Inputs, logits_of, prefix_of
from dovetail.plan.routing import CHOICES
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm
from dovetail.step.buckets import PROMPT, Buckets, map_by_length
from dovetail.step.forward import Model, Read, Reads, by_micro_batch, quantities, read_prompts, values
from dovetail.step.packing import PACKED
from dovetail.step.parts import Floats, Sums, sums


@attrs.frozen(kw_only=True)
class Scoring:
    """Evaluates models.

    Attributes:
        algorithm: the algorithm of the step.
        graphdefs: the structure of each role's model that differs from the policy's.
        roles: the roles whose passes of the stage `passes` are executed; None means all.
    """

    algorithm: Algorithm
    graphdefs: Mapping[str, Any]
    roles: tuple[str, ...] | None = None

    def __call__(
        self, weights: Mapping[str, Weights], batch: dict[str, Array], hyper: dict[str, Floats]
    ) -> tuple[dict[str, Any], Sums]:
        """Execute the passes of the stage `passes` in micro-batches; return fields and their metrics."""
        found, metrics = dict[str, Any](), Sums()
        for each in self.algorithm.plan.passes_of(live=False):
            if self.roles is not None and each.role not in self.roles:
                continue
            inputs = INPUTS[each.inputs]
            stride = self.algorithm.sizes.group_size if inputs.shared else 1
            scored = self._scored(each, weights, _offered(batch, each, stride), hyper)
            prefix = (OLD if each.role in (POLICY, CRITIC) else prefix_of(each.role)) + inputs.prefix
            fields, measured = _apart({prefix + name: _spread(x, inputs, stride) for name, x in scored.items()})
            found |= fields
            metrics |= sums("field", measured, batch[inputs.fields["mask"]])
        return found, metrics

    def _scored(
        self, each: Pass, weights: Mapping[str, Weights], rows: dict[str, Array], hyper: dict[str, Floats]
    ) -> dict[str, Array]:
        """Evaluate one pass on all rows in micro-batches, which have similar lengths if this is configured."""
        sizes, shared = self.algorithm.sizes, INPUTS[each.inputs].shared
        if sizes.by_length and each.inputs == COMPLETIONS.name:
            return map_by_length(
                lambda prompts: self.read((each,), weights, prompts),
                lambda reads, micro: self.micro(each, weights, micro, hyper, shared=False, reads=reads),
                rows,
                Buckets.of(sizes, rows),
            )
        return by_micro_batch(
            lambda micro: self.micro(each, weights, micro, hyper, shared=shared), rows, sizes.micro_batch_size
        )

    def passes_in_update(self, model: str) -> tuple[Pass, ...]:
        """Return the passes of an update through the model that is being trained."""
        passes = self.algorithm.plan.passes_of(live=True)
        return tuple(each for each in passes if (each.role == CRITIC) == (model == CRITIC))

    def read(
        self,
        passes: Iterable[Pass],
        weights: Mapping[str, Weights],
        prompts: Mapping[str, Array],
        dropout: Key[Array, ""] | None = None,
    ) -> dict[str, Read]:
        """Process prompts with every model that the passes on completions need; `dropout` is for the trained models."""
        found: dict[str, Read] = {}
        for each in passes:
            for role in (each.role, *each.beside):
                model = self._model(role, weights).merge()
                decoder = model.trunk if role == CRITIC else model
                own = prompts if role == POLICY else {n: x for n, x in prompts.items() if n not in CHOICES}
                found[role] = read_prompts(decoder, own, dropout if role == each.role else None)
        return found

    def live(
        self,
        model: str,
        weights: Mapping[str, Weights],
        micro: Mapping[str, Array],
        hyper: dict[str, Floats],
        dropout: Key[Array, ""],
        reads: Reads | None = None,
    ) -> tuple[dict[str, Any], Sums]:
        """Execute the passes of an update through the model that is being trained.

        With `reads`, the rows of a micro-batch continue prompts that have already been processed, in any order.
        """
        found, metrics = dict[str, Any](), Sums()
        for each in self.passes_in_update(model):
            inputs = INPUTS[each.inputs]
            stride = self.algorithm.sizes.rows_per_prompt if inputs.shared else 1
            rows = _offered(micro, each, stride)
            rows |= {name: micro[name][::stride] for name in ("draw_ids", PROMPT, PACKED) if name in micro}
            scored = self.micro(each, weights, rows, hyper, shared=inputs.shared, dropout=dropout, reads=reads)
            fields, measured = _apart({inputs.prefix + name: _spread(x, inputs, stride) for name, x in scored.items()})
            found |= fields
            metrics |= sums("field", measured, micro[inputs.fields["mask"]])
        return found, metrics

    def micro(
        self,
        each: Pass,
        weights: Mapping[str, Weights],
        rows: Mapping[str, Array],
        hyper: dict[str, Floats],
        *,
        shared: bool,
        dropout: Key[Array, ""] | None = None,
        reads: Reads | None = None,
    ) -> dict[str, Any]:
        """Evaluate one pass on rows that fit into memory; `shared` inputs have one row per prompt."""
        per_prompt = 1 if shared or reads else self.algorithm.sizes.rows_per_prompt
        own = {role: read.of(rows[PROMPT]) for role, read in (reads or {}).items()}
        if each.role == CRITIC:
            critic = weights[CRITIC]
            return {"values": values(self.graphdefs[CRITIC], critic, rows, per_prompt, dropout, own.get(CRITIC))}
        return quantities(
            self._model(each.role, weights),
            rows,
            self.algorithm.quantities(each.quantities),
            hyper["train"]["temperature"],
            hyper,
            beside={logits_of(role): self._model(role, weights) for role in each.beside},
            rows_per_prompt=per_prompt,
            dropout=dropout,
            positions=self.algorithm.sizes.positions,
            read=own.get(each.role),
            read_beside={logits_of(role): own[role] for role in each.beside} if own else None,
        )

    def _model(self, role: str, weights: Mapping[str, Weights]) -> Model:
        return Model(graphdef=self.graphdefs.get(role, self.graphdefs[POLICY]), weights=weights[role])


def _offered(batch: Mapping[str, Array], each: Pass, stride: int) -> dict[str, Array]:
    """Return the fields that a pass reads: its inputs and, for completions, what was kept while they were sampled.

    That is the support of each token and, for the policy, which sampled them, the choices that it made.
    """
    inputs = INPUTS[each.inputs]
    names = (KEPT, *CHOICES) if each.role == POLICY else (KEPT,)
    kept = {name: name for name in names if inputs.name == COMPLETIONS.name and name in batch}
    return {name: batch[field][::stride] for name, field in (inputs.fields | kept).items()}


def _apart(scored: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate fields from their metrics, `NAME/METRIC`."""
    measured = {name: value for name, value in scored.items() if "/" in name}
    return {name: value for name, value in scored.items() if name not in measured}, measured


def _spread(value: Float[Array, "prompt ..."], inputs: Inputs, stride: int) -> Float[Array, "seq ..."]:
    """Repeat values computed once per group for all of its rows; inputs with a prompt of their own get one row only."""
    if stride == 1:
        return value
    if not inputs.own_prompt:
        return jnp.repeat(value, stride, axis=0)
    rows = jnp.zeros((value.shape[0], stride, *value.shape[1:]), value.dtype)
    return rows.at[:, 0].set(value).reshape(-1, *value.shape[1:])
