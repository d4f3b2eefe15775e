"""Run by test_mesh.py in a process with eight devices: one step of collection and update under several meshes.

Its arguments are a file to write, the name of a variant, and meshes such as 4x1x2 (fsdp, cp and tp); without a variant
it measures memory.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.core.step.test_update import MODEL, moment, sampled

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights
from dovetail.step.algorithm import assemble
from dovetail.step.collect import Collector
from dovetail.step.forward import Model, hidden_states, quantities
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training.models import Models

VOCAB = 32
LONG = (1, 2048)
"""One row, whose prompt and completion have so many tokens."""
MESHES = ((1, 1, 1), (8, 1, 1), (1, 1, 2), (4, 1, 2), (1, 2, 1), (1, 4, 1), (2, 2, 2))
FULL = ("train.policy_loss=ppo", "train.kl_coef=0.1", "train.advantage=gae", "train.mini_batch_size=8")
LORA = ("train.adapter=lora", "adapter.lora.rank=2")
DORA = (*LORA, "adapter.lora.weight_decomposed=True")
VARIANTS = {
    "full": FULL,
    "lora": (*FULL, *LORA),
    "dora": (*FULL, *DORA),
    "sorted by length": (*FULL, "train.length_buckets=2"),
    "dora, sorted by length": (*FULL, *DORA, "train.length_buckets=2"),
    "packed": (*FULL, "train.length_buckets=2", "train.packing=True", "train.mini_batch_size=None"),
}
PLAIN = ("train.optimizer=sgd", "train.lr=1.0", "train.max_grad_norm=1e9", "train.lr_schedule=constant")


def step(overrides, fsdp, cp, tp):
    """Return the gradients of policy and critic (SGD's change of the parameters) and the loss."""
    mesh = (f"mesh.fsdp={fsdp}", f"mesh.cp={cp}", f"mesh.tp={tp}")
    config = load(None, ["train.prompts=2", "train.group_size=4", *MODEL, *PLAIN, *overrides, *mesh])
    devices = Devices.open(config.mesh)
    with devices.use():
        algorithm = assemble(config)
        models = Models(config=config, devices=devices, vocab_size=VOCAB)
        graphdef, weights = models.policy()
        critic_graphdef, critic_weights = models.critic(weights)
        batch = devices.rows({name: np.asarray(value)[:8] for name, value in sampled(rows=12).items()})
        reference = Weights(jax.tree.map(jnp.copy, weights.trained), weights.frozen)
        graphdefs = {"policy": graphdef, "critic": critic_graphdef}
        by_role = {"policy": weights, "reference": reference, "critic": critic_weights}
        collector = Collector(algorithm=algorithm, graphdefs=graphdefs)
        batch, *_ = jax.jit(collector.__call__)(by_role, batch, moment(), algorithm.hyper)
        (batch,) = mini_batches(batch, 8, 1, jax.random.key(0))
        found = {}
        for name, optimiser, (trained, frozen) in (("policy", "train", weights), ("critic", "critic", critic_weights)):
            update = Update(algorithm=algorithm, graphdefs=graphdefs, model=name)
            state = Trained(trained, algorithm.optimisers[optimiser].init(trained))
            after, sums = jax.jit(update.__call__)(state, frozen, {}, batch, moment(), algorithm.hyper)
            change = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), after.params, trained)
            found |= {f"{name}/{'.'.join(map(str, path))}": v.get_value() for path, v in nnx.to_flat_state(change)}
            found |= {f"{name}/{key}": np.asarray(value[0]) for key, value in sums.items() if isinstance(value, tuple)}
    cut = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(weights))
    return found | {"cut": np.int32(cut)}


def temporary(fsdp=1, cp=1, *, shape=(64, 32), vocabulary=VOCAB):
    """Return the bytes that a device needs beside the parameters and their gradients.

    `shape` is that of prompts, and of completions. With a vocabulary that is not the task's own, the result is that of
    the output layer too.
    """
    config = load(None, [*MODEL, f"mesh.fsdp={fsdp}", f"mesh.cp={cp}"])
    devices, algorithm = Devices.open(config.mesh), assemble(config)
    with devices.use():
        graphdef, weights = Models(config=config, devices=devices, vocab_size=vocabulary).policy()
        tokens, seen = (devices.rows(np.ones(shape, dtype)) for dtype in (np.int32, np.bool_))
        batch = {"prompt_tokens": tokens, "tokens": tokens, "prompt_mask": seen, "mask": seen}
        logps = {"logps": algorithm.fields["logps"]}

        def loss(trained):
            model = Model(graphdef, Weights(trained, weights.frozen))
            if vocabulary == VOCAB:
                return jnp.sum(hidden_states(model.merge(), batch).hidden ** 2)
            return jnp.sum(quantities(model, batch, logps, jnp.float32(1), algorithm.hyper, positions=1024)["logps"])

        compiled = jax.jit(jax.grad(loss)).lower(weights.trained).compile()
    return np.int64(compiled.memory_analysis().temp_size_in_bytes)


if __name__ == "__main__":
    assert jax.device_count() == 8, jax.devices()
    path, *words = sys.argv[1:]
    if words:
        variant, *meshes = words
        found = {
            f"{mesh}:{name}": value
            for mesh in meshes
            for name, value in step(VARIANTS[variant], *map(int, mesh.split("x"))).items()
        }
    else:
        found = {
            "activations": np.array([temporary(fsdp) for fsdp in (1, 8)]),
            "logits": np.array([temporary(fsdp, vocabulary=4096) for fsdp in (1, 8)]),
            "activations of a long row": np.array([temporary(cp=cp, shape=LONG) for cp in (1, 8)]),
            "logits of a long row": np.array([temporary(cp=cp, shape=LONG, vocabulary=4096) for cp in (1, 8)]),
        }
    np.savez(path, **found)
