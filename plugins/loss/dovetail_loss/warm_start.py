"""The supervised warm start: next-token loss on a task's demonstrations."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from dovetail import progress
from dovetail.config import Config
from dovetail.data import prompt_stream
from dovetail.devices import processes
from dovetail.devices.compiled import share
from dovetail.host.prompts import encode, encode_completions
from dovetail.interruptions import stop_if_asked, uninterrupted
from dovetail.protocols import Example, Weights
from dovetail.step import keys
from dovetail.step.algorithm import part, sft_optimiser
from dovetail.step.forward import Model, quantities
from dovetail.step.gradients import Optimiser, accumulate
from dovetail.step.parts import Floats, Part, Sums, masked_sum
from dovetail.step.update import Trained
from dovetail.training.metrics import Clock, means
from dovetail.training.session import SFT, Run
from dovetail.training.settled import sizing
from dovetail.training.setup import Setup
from dovetail.training.texts import demonstrations


def warm_start(run: Run) -> Any:
    """Train on demonstrations for `sft.steps` steps; return the policy's trained parameters."""
    setup, total = run.setup, run.config.sft.steps
    optimiser, hyper = sft_optimiser(run.config)
    policy = Trained(setup.weights.trained, optimiser.init(setup.weights.trained))
    found, reports = demonstrations(setup, *longest(run.config))
    stream = prompt_stream(found, run.config.run.seed, run.config.sft.batch_size)
    first = 0
    if saved := run.resumes(SFT):
        policy, first = run.restore(policy, policy), saved.step
        stream.set_state(saved.data)
    else:
        run.tell(*reports)
    update = compile_sft(setup, optimiser)
    for step in range(first, total):
        clock = Clock()
        stop_if_asked()
        progress.begin("warm start", total=None)
        examples = next(stream)
        batch = processes.told_arrays(lambda examples=examples: as_batch(examples, setup))
        with uninterrupted():
            run.forget()
            dropout = keys.stream(run.config.run.seed, keys.DROPOUT, step)
            policy, sums = update(
                policy, setup.weights.frozen, batch, jnp.int32(step), jnp.int32(total), dropout, hyper
            )
            metrics = means(sums)
            run.stop_if_not_finite(SFT, step, metrics, ("sft/loss", "sft/grad_norm"), batch)
            clock.mark("update")
            keep = partial(run.keep, SFT, step + 1, policy, stream.get_state())
            run.record(SFT, step + 1, metrics, clock.timings(int(batch["mask"].sum())), keep)
        if run.due(step + 1, total):
            run.checkpoint(SFT, step + 1, policy, stream.get_state())
    return policy.params


def longest(config: Config) -> tuple[str, int]:
    """Return the setting that limits the demonstrations of the warm start, and its value."""
    if config.sft.max_tokens:
        return "sft.max_tokens", config.sft.max_tokens
    return "sampling.max_tokens", config.sampling.max_tokens


def as_batch(examples: list[Example], setup: Setup) -> dict[str, np.ndarray]:
    """Return demonstrations as the fields of a batch of the warm start."""
    config = setup.config
    _, width = longest(config)
    prompt_tokens, prompt_mask = encode(
        [e["prompt"] for e in examples], setup.tokenizer, config.train.max_prompt_tokens
    )
    tokens, mask = encode_completions([e["completion"] for e in examples], setup.tokenizer, width)
    return {"prompt_tokens": prompt_tokens, "prompt_mask": prompt_mask, "tokens": tokens, "mask": mask}


@attrs.frozen(kw_only=True)
class SftUpdate:
    """One optimiser step on the mean negative log-likelihood of completion tokens, their EOS included."""

    graphdef: Any
    logps: Part
    optimiser: Optimiser
    micro_batch_size: int

    def __call__(
        self,
        policy: Trained,
        frozen: Any,
        batch: dict[str, Array],
        step: Int[Array, ""],
        total: Int[Array, ""],
        dropout: Key[Array, ""],
        hyper: dict[str, Floats],
    ) -> tuple[Trained, Sums]:
        """Return the updated policy and metric sums."""
        mask = batch["mask"].astype(jnp.float32)
        weights = mask / jnp.maximum(jnp.sum(mask), 1.0)
        batch = batch | {"weights": weights, "draw_ids": jnp.arange(len(mask), dtype=jnp.int32)}
        wanted = {"logps": self.logps}

        def loss_fn(params: Any, micro: dict[str, Array]) -> tuple[Array, Sums]:
            one = jnp.float32(1)
            model = Model(self.graphdef, Weights(params, frozen))
            found = quantities(model, micro, wanted, one, hyper, dropout=dropout)
            return masked_sum(micro["weights"], -found["logps"]), {}

        grads, loss, _ = accumulate(loss_fn, policy.params, batch, self.micro_batch_size)
        params, state, found = self.optimiser.apply(policy.params, policy.optimiser, grads, step, total, hyper)
        metrics = {"sft/loss": loss} | {f"sft/{name}": value for name, value in found.items()}
        return Trained(params, state), {name: (value, jnp.float32(1)) for name, value in metrics.items()}


def compile_sft(setup: Setup, optimiser: Optimiser) -> Any:
    """Return the compiled update."""
    config = setup.config
    update = SftUpdate(
        graphdef=setup.graphdef,
        logps=part("field.logps", config.component("field", "logps")),
        optimiser=optimiser,
        micro_batch_size=config.sft.micro_batch_size
        or sizing(config).warm_start(config, setup.graphdef, setup.weights, setup.devices),
    )
    return share(update, donate=(0,))
