"""Which of vLLM's flags a user may set: all but those by which the engine and its server find each other.

A further flag overrides one that the engine sets, as the last one counts. That is what the user means by `--dtype`,
but it would leave the engine without a server whose address, key, weights or log-probabilities are what it expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail.errors import ConfigError

_ADDRESS: Final = "the engine chooses the address; for a server that you start yourself set rollout.vllm.url"
_WEIGHTS: Final = "the server gets the weights of the policy; for its config.json set rollout.vllm.folder"
_SAMPLES: Final = "the engine trains on log-probabilities at the sampling temperature, of token ids"
OURS: Final = {
    "--api-key": "each server gets a token of its own; one that you start yourself is named by rollout.vllm.url, and"
    " its key by the environment variable VLLM_API_KEY",
    "--host": _ADDRESS,
    "--port": _ADDRESS,
    "--uds": _ADDRESS,
    "--root-path": _ADDRESS,
    "--ssl-keyfile": _ADDRESS,
    "--ssl-certfile": _ADDRESS,
    "--model": _WEIGHTS,
    "--skip-tokenizer-init": _SAMPLES,
    "--no-skip-tokenizer-init": _SAMPLES,
    "--logprobs-mode": _SAMPLES,
    "--served-model-name": "the engine names the model in its requests",
    "--worker-extension-cls": "the engine replaces weights by a worker extension of its own",
    "--enable-sleep-mode": "set rollout.vllm.sleep",
    "--no-enable-sleep-mode": "set rollout.vllm.sleep",
    "--enable-lora": "set rollout.vllm.adapter",
    "--no-enable-lora": "set rollout.vllm.adapter",
}
"""The flags that the engine alone sets, and what to do instead. `--middleware` is not among them: vLLM adds each."""


def check_flags(flags: Sequence[str], *, starts: bool) -> None:
    """Refuse flags that contradict the engine's own, and flags for a server that somebody else has started.

    Args:
        flags: the words of `rollout.vllm.flags`.
        starts: whether the engine starts the server.

    Raises:
        ConfigError: in one line with the flag and what to set instead.
    """
    if flags and not starts:
        raise ConfigError(
            f"rollout.vllm.flags = {flags!r} would have no effect: the server at an address was started by somebody"
            " else; give it the flags there"
        )
    for word in flags:
        # vLLM reads `_` as `-`, and argparse takes the beginning of a flag for the flag
        flag = word.partition("=")[0].replace("_", "-")
        ours = next((each for each in OURS if flag == each or (len(flag) > 2 and each.startswith(flag))), None)
        if ours and flag.startswith("--"):
            raise ConfigError(f"rollout.vllm.flags: '{word}' contradicts the engine's own {ours}: {OURS[ours]}")
