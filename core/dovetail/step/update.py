"""One optimiser step on one mini-batch, for the policy or for the critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Key

from dovetail.plan.roles import CRITIC, POLICY, WEIGHTS_OF
from dovetail.protocols import Weights
from dovetail.step.algorithm import Algorithm, Term
from dovetail.step.buckets import Buckets, accumulate_by_length, fill
from dovetail.step.forward import Reads
from dovetail.step.gradients import accumulate
from dovetail.step.mismatch import mismatch
from dovetail.step.moment import Moment
from dovetail.step.parts import Floats, Sums, masked_sum, merge, once, sums
from dovetail.step.scoring import Scoring
from dovetail.step.view import View, check_rows, check_shape, run_stage


@struct.dataclass
class Trained:
    """The trained parameters of a model, with their optimiser's state."""

    params: Any
    optimiser: Any


@attrs.frozen(kw_only=True)
class Update:
    """One optimiser step of a model: weights of the aggregation, gradients in micro-batches, optimiser.

    Attributes:
        algorithm: the algorithm of the step.
        graphdefs: the structure of each role's model; missing roles have the policy's structure.
        model: the model to train, `policy` or `critic`.
    """

    algorithm: Algorithm
    graphdefs: Mapping[str, Any]
    model: str = POLICY

    def __call__(
        self,
        trained: Trained,
        frozen: Any,
        others: dict[str, Weights],
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
    ) -> tuple[Trained, Sums]:
        """Return the updated model and metric sums; the other arguments are those of `gradients`."""
        grads, metrics = self.gradients(trained.params, frozen, others, batch, moment, hyper)
        optimiser = self.algorithm.optimisers["train" if self.model == POLICY else self.model]
        params, state, measured = optimiser.apply(
            trained.params, trained.optimiser, grads, moment.step, moment.total, hyper
        )
        name = "optimizer" if self.model == POLICY else self.model
        return Trained(params, state), merge(metrics, once({f"{name}/{key}": each for key, each in measured.items()}))

    def gradients(
        self,
        params: Any,
        frozen: Any,
        others: dict[str, Weights],
        batch: dict[str, Array],
        moment: Moment,
        hyper: dict[str, Floats],
    ) -> tuple[Any, Sums]:
        """Return the gradients of a mini-batch, and metric sums.

        `frozen` has the model's parameters that are not trained; `others` has the weights of the roles that it is
        compared with in every update.
        """
        algorithm = self.algorithm
        constants = moment.fields(algorithm.schedule, hyper, in_update=True)
        batch, metrics = self._before_split(batch, moment, constants, hyper)
        scoring = Scoring(algorithm=algorithm, graphdefs=self.graphdefs)

        def loss_fn(params: Any, micro: dict[str, Array], reads: Reads | None = None) -> tuple[Array, Sums]:
            weights = others | {self.model: Weights(params, frozen)}
            found, reported = scoring.live(self.model, weights, micro, hyper, moment.dropout, reads)
            if self.model == POLICY:
                found |= {name: jax.lax.stop_gradient(found[of]) for name, of in algorithm.plan.detached.items()}
            view = View(micro | found | constants | moment.rows(micro), algorithm.fields, hyper)
            loss, measured = self._loss(view, moment, hyper)
            measured = measured | {"lengths/fill": fill(micro)}
            return loss, merge(measured, merge(reported, view.metrics()))

        def read(params: Any, prompts: dict[str, Array]) -> Reads:
            weights = others | {self.model: Weights(params, frozen)}
            return scoring.read(scoring.passes_in_update(self.model), weights, prompts, moment.dropout)

        sizes = algorithm.sizes
        if sizes.by_length:
            grads, loss, found = accumulate_by_length(loss_fn, read, params, batch, Buckets.of(sizes, batch))
        else:
            grads, loss, found = accumulate(loss_fn, params, batch, sizes.micro_batch_size)
        name = "policy_loss" if self.model == POLICY else self.model
        return grads, merge(metrics, merge(found, once({f"{name}/loss": loss})))

    def _before_split(
        self, batch: dict[str, Array], moment: Moment, constants: dict[str, Any], hyper: dict[str, Floats]
    ) -> tuple[dict[str, Array], Sums]:
        """Compute the values that depend on the whole mini-batch: weights of the aggregation, and fields that rank."""
        algorithm = self.algorithm
        view = View(batch | constants | moment.rows(batch), algorithm.fields, hyper)
        parts = algorithm.at("mini_batch", self.model)
        after, metrics = run_stage(parts, view, hyper)
        ranked = {name: after[name] for name in algorithm.plan.before_split}
        before = view.known()
        written = {name: value for name, value in after.known().items() if value is not before.get(name)}
        (aggregation,) = (part for part in parts if "weights" in part.writes)
        for mask in dict.fromkeys(["mask", *(term.about for term in algorithm.terms[self.model])]):
            weights = after["weights"]
            if mask != "mask":
                weights, _ = attrs.evolve(aggregation, renames={"mask": mask})(view, hyper)
            written[WEIGHTS_OF[mask]] = jax.lax.stop_gradient(jnp.where(after[mask], weights, 0.0))
        batch = batch | ranked | written
        check_rows(algorithm.plan.at("mini_batch", self.model), batch)
        return batch, merge(metrics, after.metrics())

    def _loss(self, view: View, moment: Moment, hyper: dict[str, Floats]) -> tuple[Array, Sums]:
        """Add up the terms: ∑_j c_j · ∑_t w_t · f_t · l_jt, where f are the factors of corrections and loss masks."""
        factors, metrics = self._factors(view, hyper)
        summands = []
        for term in self.algorithm.terms[self.model]:
            value, measured = term.part(view, hyper)
            about, weights = view[term.about], view[WEIGHTS_OF[term.about]]
            check_shape(term.part, "the loss", value, about.shape)
            if not jnp.issubdtype(dtype := jnp.result_type(value), jnp.floating):
                raise term.part.component.wrong(f"gives the loss as {dtype}, which has no gradient; return floats")
            if term.corrected and term.about == "mask":  # nothing corrects tokens that were not sampled
                weights = jnp.where(about, weights * factors, 0.0)
            if self.model == POLICY and not term.corrected:
                measured = {"mean": value} | measured
            metrics = merge(metrics, term.part.sums(measured, about))
            summands.append(masked_sum(weights, value) * self._coefficient(term, view, moment, hyper))
        return sum(summands[1:], summands[0]), merge(metrics, self._watched(view))

    def _coefficient(self, term: Term, view: View, moment: Moment, hyper: dict[str, Floats]) -> Any:
        coefficient = moment.coefficients[term.coefficient] if term.coefficient else 1.0
        coefficient = hyper[term.part.role]["coef"] if term.own else coefficient
        return coefficient * view["schedule_weight"] if term.scheduled else coefficient

    def _watched(self, view: View) -> Sums:
        """Return the metrics of the model being trained."""
        algorithm, mask = self.algorithm, view["mask"]
        if self.model == CRITIC:
            return sums(CRITIC, {"value_mean": view["values"]}, mask)
        metrics: Sums = {}
        for name in algorithm.monitor:
            metrics |= sums(name, {"mean": view[name]}, mask)
        ours = algorithm.plan.compared
        if ours is not None and ours in view and not algorithm.plan.evaluates(POLICY, ours, live=False):
            metrics |= mismatch(jax.lax.stop_gradient(view[ours]), view["rollout_logps"], mask)
        return metrics

    def _factors(self, view: View, hyper: dict[str, Floats]) -> tuple[Array, Sums]:
        """Return the factors with which corrections and loss masks multiply the policy loss, and their metrics."""
        mask = view["mask"]
        factors, metrics = jnp.ones(mask.shape), Sums()
        for field in ("is_weights", "loss_weights"):
            if field in view:
                factors = factors * view[field]
        for part in self.algorithm.at("loss_terms", self.model):
            chosen, found = part(view, hyper)
            if isinstance(chosen, tuple):
                raise part.component.wrong(
                    "reads 'logps', so it is asked with the loss, a micro-batch at a time, and cannot change the mask;"
                    " return weights only"
                )
            chosen = jax.lax.stop_gradient(chosen).astype(factors.dtype)
            factors = factors * chosen
            name = f"{part.label.partition('/')[0]}/{part.component.name}"
            metrics = merge(metrics, part.sums(found | {"weight_mean": chosen}, mask, name))
        return factors, metrics


def mini_batches(
    batch: dict[str, Array], size: int, epochs: int, key: Key[Array, ""], rows_per_prompt: int = 1
) -> list[dict[str, Array]]:
    """Split a batch into mini-batches, shuffled anew for each epoch; a ragged last one is padded with empty rows.

    Blocks of `rows_per_prompt` consecutive rows stay together, so that their prompt is computed once; `size` is a
    multiple of it. A single mini-batch is not shuffled. `draw_ids` identify rows and epochs.
    """
    rows = batch["tokens"].shape[0]
    pieces = []
    for epoch in range(epochs):
        numbered = batch | {"draw_ids": jnp.arange(epoch * rows, (epoch + 1) * rows, dtype=jnp.int32)}
        if size >= rows:
            pieces.append(numbered)
            continue
        order = jax.random.permutation(jax.random.fold_in(key, epoch), jnp.arange(rows).reshape(-1, rows_per_prompt))
        order = order.reshape(-1)
        pieces += [_take(numbered, order[start : start + size], size) for start in range(0, rows, size)]
    return pieces


def _take(batch: dict[str, Array], rows: Array, size: int) -> dict[str, Array]:
    filling = size - rows.shape[0]

    def take(array: Array) -> Array:
        taken = jnp.take(array, rows, axis=0)
        return jnp.pad(taken, [(0, filling)] + [(0, 0)] * (array.ndim - 1)) if filling else taken

    return {name: take(array) for name, array in batch.items()}
