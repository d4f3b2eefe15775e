"""vLLM in this process: its `LLM`, run one step at a time."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.config.settings import Sampling
from dovetail.errors import ConfigError, RunError
from dovetail.extras import needs
from dovetail.progress import SAMPLING, so_far
from dovetail_rollout.hosted.handover import adapted, dtype_of
from dovetail_rollout.hosted.host import Answer, Ends, Failure, HostLost, Request
from dovetail_rollout.hosted.vllm_server import ADAPTER, CHUNK, check_temperature, completion_settings, lora_rank

WORKER: Final = "dovetail_rollout.inside.dovetail_vllm_worker.DovetailWorker"
NOT_OURS: Final = ("return_token_ids", "return_tokens_as_token_ids")
"""Settings that only the server's answers have."""


@attrs.define(kw_only=True, eq=False)
class VllmInProcess:
    """A `Host` that is vLLM's own `LLM`, with `options` as further arguments."""

    vllm: Any
    options: Mapping[str, Any]
    sleeps: bool
    llm: Any = None
    adapter: Any = None
    asleep: bool = False
    reading: tuple[Path, ...] = ()
    numbers: Any = attrs.field(factory=lambda: itertools.count(1), init=False, repr=False)

    @classmethod
    def open(cls, flags: Sequence[str], *, sleeps: bool) -> VllmInProcess:
        """Import vLLM.

        Raises:
            ConfigError: if it is not installed, or does not know the flags.
        """
        # The engine's core runs in this process too: a child process would need everything that a server needs.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        try:
            vllm = importlib.import_module("vllm")
        except ImportError as error:
            needed = needs("rollout.vllm.mode = 'in_process'", "vLLM in this environment", "vllm")
            raise ConfigError(f"{needed} ({error})") from error
        return cls(vllm=vllm, options=_options(flags), sleeps=sleeps)

    def start(self, folder: Path) -> None:
        """Make the `LLM` of a folder."""
        adapter = adapted(folder)
        base = Path(adapter["base_model_name_or_path"]) if adapter else folder
        lora = {"enable_lora": True, "max_lora_rank": lora_rank(adapter["r"])} if adapter else {}
        settings = {
            "model": str(base),
            "dtype": dtype_of(folder),
            "skip_tokenizer_init": True,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "worker_extension_cls": WORKER,
            "distributed_executor_backend": "uni",
            "enable_sleep_mode": self.sleeps,
            "use_tqdm_on_load": False,
        }
        try:
            self.llm = self.vllm.LLM(**(settings | lora | dict(self.options)))
        except Exception as error:
            raise RunError(f"vLLM cannot serve {folder}: {type(error).__name__}: {error}") from error
        if adapter:
            self.load(folder)

    def complete(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Add all requests and step until all have ended; those that contain a stop string are aborted."""
        check_temperature(sampling)
        self._wake()
        settings = {name: value for name, value in completion_settings(sampling, ends).items() if name not in NOT_OURS}
        names = [str(next(self.numbers)) for _ in requests]
        found: dict[str, Answer | Failure] = {}
        for name, request in zip(names, requests, strict=True):
            own = {"seed": request.seed, "max_tokens": request.most(sampling.max_tokens)}
            params = self.vllm.SamplingParams(**{**settings, **own}, detokenize=False)
            try:
                self._engine.add_request(name, {"prompt_token_ids": request.prompt}, params, lora_request=self.adapter)
            except ValueError as error:
                found[name] = Failure(" ".join(str(error).split()))
        try:
            while self._engine.has_unfinished_requests():
                for output in self._engine.step():
                    self._take(output, found, ends)
                so_far(SAMPLING, len(found), len(names))
        except Exception as error:
            raise HostLost(f"vLLM: {type(error).__name__}: {error}") from error
        finally:
            self._engine.abort_request([name for name in names if name not in found])
        if self.sleeps:
            self.llm.sleep(level=1)
            self.asleep = True
        return [found[name] for name in names]

    @property
    def _engine(self) -> Any:
        return self.llm.llm_engine

    def _take(self, output: Any, found: dict[str, Answer | Failure], ends: Ends) -> None:
        """Keep what has ended, and check every few tokens whether a stop string ends a completion."""
        tokens = list(output.outputs[0].token_ids)
        due = ends.stopped if len(tokens) % CHUNK == 0 else None
        stops = due is not None and due(tokens, max(len(tokens) - CHUNK, 0)) is not None
        if stops and not output.finished:
            self._engine.abort_request([output.request_id])
        if stops or output.finished:
            chosen = zip(tokens, output.outputs[0].logprobs, strict=True)
            answer = Answer(tokens, [logprobs[token].logprob for token, logprobs in chosen])
            found[output.request_id] = answer if tokens else Failure("vLLM returned no token")

    def load(self, folder: Path) -> None:
        """Read the weights in place; an adapter gets a new number, which tells vLLM that it has changed."""
        self._wake()
        try:
            if adapted(folder):
                request = importlib.import_module("vllm.lora.request").LoRARequest
                old, self.adapter = self.adapter, request(ADAPTER, next(self.numbers), str(folder))
                if old is not None:
                    self._engine.remove_lora(old.lora_int_id)
                self._engine.add_lora(self.adapter)
            else:
                self.llm.collective_rpc("dovetail_reload", kwargs={"folder": str(folder)})
            self.llm.reset_prefix_cache()
        except Exception as error:
            raise HostLost(f"vLLM does not take the weights: {type(error).__name__}: {error}") from error

    def stop(self) -> None:
        """Release the `LLM`."""
        if self.llm is not None:
            self._engine.engine_core.shutdown()
            self.llm = None

    def _wake(self) -> None:
        if self.asleep:
            self.llm.wake_up()
            self.asleep = False


def _options(flags: Sequence[str]) -> dict[str, Any]:
    """Parse command-line flags as vLLM's server does, and return them as arguments of `LLM`.

    Raises:
        ConfigError: for a flag that vLLM does not have.
    """
    utils = importlib.import_module("vllm.utils.argparse_utils")
    arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs
    parser = arguments.add_cli_args(utils.FlexibleArgumentParser(exit_on_error=False))
    unset = vars(parser.parse_args([]))
    try:
        given, unknown = parser.parse_known_args(list(flags))
    except Exception as error:
        raise ConfigError(f"rollout.vllm.flags: {error}") from error
    if unknown:
        raise ConfigError(f"rollout.vllm.flags: vLLM has no {' '.join(unknown)}")
    return {name: value for name, value in vars(given).items() if value != unset[name]}
