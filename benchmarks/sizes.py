"""Say how large a model fits on which hardware: `python benchmarks/sizes.py > sizes.md`.

The estimate of `dovetail plan` for models in the shapes of Qwen2.5-0.5B, -1.5B and -7B, all parameters or LoRA of rank
64, its default, on one device and on eight (`mesh.fsdp = 8`): weights and activations in bfloat16, masters, gradients
and AdamW's two moments in float32, GRPO without a reference, 8 prompts with 8 completions each, sampled by `vanilla`.
A device may use nine tenths of its memory. The step has rows of 2,048 tokens, half prompt and half completion, with
everything recomputed and one completion per device at a time. With `--longer` each cell has the longest row that fits,
and the largest micro-batch per device of rows of 2,048 tokens. For that two more steps are planned, and memory is taken
to be linear in between and beyond: in the length from 2,048 and 8,192 tokens, in the micro-batch from one and eight
completions, by as much on one device as on each of eight. Nothing is computed or allocated; programs are traced as on a
GPU without cuDNN's kernels.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from unittest import mock

import jax
from flax import nnx
from workloads import COMMON, SHAPES, register

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import Settled
from dovetail.step.algorithm import assemble
from dovetail.training.models import Models
from dovetail_memory import footprint
from dovetail_memory.device import SHARE

MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B")
TRAINED = {"LoRA": ("train.adapter=lora",), "all": ()}
MEMORY = (16, 24, 40, 80, 141)
SHORT, LONG, LONGEST = 2048, 8192, 32_768
GROUP, ROWS = 8, 64
STEP = (
    "train.prompts=8",
    "train.group_size=8",
    "train.kl_coef=0",
    "eval.every=None",
    "model.decoder.dtype=bfloat16",
    "model.decoder.param_dtype=bfloat16",
)


@functools.cache
def peak(model: str, trained: str, devices: int, length: int, micro: int) -> int:
    """Return the planned peak bytes of each device, with everything recomputed."""
    sizes = (f"train.max_prompt_tokens={length // 2}", f"sampling.max_tokens={length // 2}", f"mesh.fsdp={devices}")
    config = load(None, [*COMMON, *SHAPES[model], *STEP, *TRAINED[trained], *sizes])
    place = Devices.abstract(config.mesh, config.apart)
    vocabulary = config.choice("train.tokenizer").bind().vocab_size
    models = Models(config=config, devices=place, vocab_size=vocabulary)
    graphdef, weights = models.shapes()
    mode = nnx.merge(graphdef, *weights).modes[-1]
    step = footprint.Footprint(config, assemble(config), models, place)
    return step.account(Settled(mode=mode, micro_batch_size=micro * devices, positions=None)).peak


def planned(model: str, trained: str, devices: int) -> list[str]:
    """Return the bytes of a step with short rows, and whether it fits into each memory."""
    least = peak(model, trained, devices, SHORT, 1)
    fits = ("fits" if least <= SHARE * gigabytes * 1e9 else "does not fit" for gigabytes in MEMORY)
    return [f"{least / 1e9:.1f} GB", *fits]


def longer(model: str, trained: str, devices: int) -> list[str]:
    """Return the bytes of a step with short rows, and the longest row and largest micro-batch for each memory."""
    alone = functools.partial(peak, model, trained, 1)
    per_token = (alone(LONG, 1) - alone(SHORT, 1)) / (LONG - SHORT)
    per_row = (alone(SHORT, GROUP) - alone(SHORT, 1)) / (GROUP - 1)
    least = peak(model, trained, devices, SHORT, 1)
    fits = [fitting(SHARE * gigabytes * 1e9 - least, per_token, per_row, ROWS // devices) for gigabytes in MEMORY]
    return [f"{least / 1e9:.1f} GB", *fits]


def fitting(left: float, per_token: float, per_row: float, rows: int) -> str:
    """Return the longest row, and the largest micro-batch of `rows` at most, for what a step of the short row leaves.

    >>> fitting(-1.0, per_token=1.0, per_row=10.0, rows=64)
    'does not fit'
    >>> fitting(2048.0, per_token=1.0, per_row=1000.0, rows=64)
    '4,096; 2'
    """
    if left < 0:
        return "does not fit"
    longest = max(n for n in (SHORT, 4096, LONG, 16_384, LONGEST) if (n - SHORT) * per_token <= left)
    micro = max(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= rows and (n - 1) * per_row <= left)
    return f"{longest:,}; {micro}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="|".join(MODELS))
    parser.add_argument("--longer", action="store_true", help="also say which rows and micro-batches fit")
    options = parser.parse_args()
    if unknown := set(options.models) - set(SHAPES):
        parser.error(f"unknown model {min(unknown)!r}; there are {', '.join(SHAPES)}")
    register()
    cells = longer if options.longer else planned
    # only traced, so that it does not matter that there is no such device
    gpu = mock.patch.object(jax, "default_backend", return_value="gpu")
    with gpu, mock.patch.object(footprint, "base", return_value=0):
        print(f"| model | trained | devices | planned | {' | '.join(f'{each} GB' for each in MEMORY)} |")
        print("|---" * (4 + len(MEMORY)) + "|")
        for model, trained, devices in itertools.product(options.models, TRAINED, (1, 8)):
            print(f"| {model} | {trained} | {devices} | {' | '.join(cells(model, trained, devices))} |", flush=True)


if __name__ == "__main__":
    main()
