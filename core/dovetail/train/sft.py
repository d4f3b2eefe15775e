"""The supervised warm start: next-token loss on a task's demonstrations."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from dovetail.config import Config
from dovetail.devices.compiled import share
from dovetail.errors import DataError
from dovetail.host.prompts import LengthReport, Limit, encode, encode_completions, fit, rendered
from dovetail.protocols import Example, Weights
from dovetail.step.algorithm import part
from dovetail.step.forward import Model, quantities
from dovetail.step.gradients import Optimiser, accumulate
from dovetail.step.parts import Floats, Part, Sums, masked_sum
from dovetail.step.update import Trained
from dovetail.train.settled import sizing
from dovetail.train.setup import Setup
from dovetail.train.texts import prompt_limit


def longest(config: Config) -> tuple[str, int]:
    """Return the setting that limits the demonstrations of the warm start, and its value."""
    if config.sft.max_tokens:
        return "sft.max_tokens", config.sft.max_tokens
    return "sampling.max_tokens", config.sampling.max_tokens


def demonstrations(setup: Setup, setting: str, most: int) -> tuple[Any, list[LengthReport]]:
    """Return the demonstrations of at most so many tokens, and reports of those that do not fit.

    Args:
        setup: what the run is made of.
        setting: the setting that limits them, for messages.
        most: its value, tokens of a completion with its end.

    Raises:
        DataError: if the task does not have demonstrations.
    """
    config = setup.config
    examples = setup.task.examples("sft")
    if not len(examples) or "completion" not in examples[0]:
        name = config.choice("train.task").component.name
        readers = [call.label for call in setup.algorithm.plan.calls if call.inputs == "demonstrations"]
        advice = f"{readers[0]} reads them, take another task" if readers else "set sft.steps = 0"
        raise DataError(f"task {name} has no demonstrations (examples with a completion); {advice}")
    completions = Limit(
        split="sft",
        column="completion",
        tokens=most - 1,
        setting=f"{setting} - 1",
        action=config.sft.long_completions,
        action_setting="sft.long_completions",
    )
    examples, first = fit(rendered(examples, setup.render), setup.tokenizer, prompt_limit(config, "sft"))
    examples, second = fit(examples, setup.tokenizer, completions)
    return examples, [first, second]


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
