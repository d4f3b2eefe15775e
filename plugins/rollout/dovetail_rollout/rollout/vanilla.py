"""The built-in engine: a jitted sampler in the trainer's own process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from flax import nnx
from jaxtyping import Array, Bool, Int, Key

import dovetail
from dovetail import Chooses
from dovetail.errors import CompletionsFailed, ConfigError, RunError
from dovetail.protocols import Completions, RolloutEngine, Sampling, Tokenizer, Weights
from dovetail.ranges import in_range
from dovetail_rollout.checks import SHORTEST_PROMPT, check_prompts, prompt_positions, unknown_ids
from dovetail_rollout.decoding.batching import SHORTEST, Batch, Prompts, length_axes
from dovetail_rollout.decoding.decode import Drawn, Fixed
from dovetail_rollout.decoding.sampling import SORTED, Numbers
from dovetail_rollout.decoding.slots import Schedule
from dovetail_rollout.decoding.stops import Stops
from dovetail_rollout.decoding.turns import Rounds
from dovetail_rollout.kinds import Launcher
from dovetail_rollout.launcher.local import Local
from dovetail_rollout.launcher.urls import Urls


@attrs.frozen(kw_only=True)
class Vanilla:
    """Samples with the trainer's own model, parameters and devices, in compiled steps with a key-value cache.

    Each prompt is read once, and all its completions use its keys and values in place. Completions are decoded in
    slots. When they have ended, waiting ones take their slots, or the last ones move into fewer slots, so ragged
    lengths do not wait for the longest. The slot does not influence a completion: its random numbers follow from its
    key and the positions of its tokens.

    Programs are compiled once per process: those that process prompts, for every bucket of their length (64, 128, 256,
    … positions, up to the given width), and those that decode, for every number of slots (halved with `shrink`, down to
    16, or to 2 if completions may become longer than 128 tokens and their prompts) at every length of the cache (128,
    256, … positions, up to `max_tokens`). Another `max_tokens`, `top_k` or number of prompts compiles all of them
    again. Unless completions wait for slots, the first call compiles what later ones need for prompts of that bucket,
    so that no step waits for it. Temperature, `top_p` and `min_p` can change without a compilation.
    `VanillaEngine.compiled` is the number of programs.

    The engine runs on the devices of the parameters, which it shares with the trainer without a copy, unless
    `rollout/mesh` gives the sampler its own devices. After an update that donates them, call `sync` before the next
    `generate`.

    Args:
        slots: completions decoded at a time; None means all of them. Fewer need less memory for keys and values.
        shrink: whether the last completions move into fewer slots, which costs compilations; None means yes on CPUs,
            where the cost of a step grows with its rows.
        cache_dtype: the type of keys and values; None means the model's own.
        replicas: 1 samples in this process, unless the launcher has settings. Otherwise each replica is a process with
            a device of its own and a copy of the weights; a completion has the same tokens wherever it is sampled.
            See `docs/fleet.md`.
        at_once: with replicas, how many completions are sampled in one call, in whole groups if one fits; None divides
            a batch into two calls for each replica. It does not depend on the replicas that there are at the moment,
            and neither does a completion.
        launcher: where the replicas run: 'local' or 'ray'.
        floor: the least number of replicas, including those being restarted; with fewer the run ends.
        restarts: how often within an hour each replica may be restarted.
        folder: with replicas, the Hugging Face folder that the model comes from; None if it is a `model.decoder`.
    """

    slots: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    shrink: bool | None = None
    cache_dtype: Literal["float32", "bfloat16"] | None = None
    replicas: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    at_once: Annotated[int, Ge(1)] | None = attrs.field(default=None, validator=in_range)
    launcher: Annotated[Any, Chooses("launcher")] = "dovetail/local"
    floor: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    restarts: Annotated[int, Ge(0)] = attrs.field(default=1, validator=in_range)
    folder: str | None = None

    declares: ClassVar[MappingProxyType[str, Any]] = MappingProxyType(
        {
            "batch_invariant": True,
            "keeps_support": SORTED,
            "keeps_choices": True,
            "versions": True,
            "placed": True,
            "files": ("folder",),
        }
    )

    def __attrs_post_init__(self) -> None:
        if self.floor > self.replicas:
            raise ConfigError(
                f"rollout.vanilla.floor = {self.floor}, and there are {self.replicas} replicas; it can be that at most"
            )
        launcher = self._launcher
        if isinstance(launcher, Urls):
            raise ConfigError("rollout.vanilla.launcher = 'urls': nobody else starts this engine; use 'local' or 'ray'")
        if isinstance(launcher, Local) and (several := [each for each in launcher.devices if "," in each]):
            raise ConfigError(
                f"launcher.local.devices has {several[0]!r}: a replica of rollout 'vanilla' computes on one device;"
                " name one for each, or use rollout 'vllm'"
            )

    @property
    def _launcher(self) -> Launcher:
        from dovetail_rollout.hosted.fleet import chosen_launcher

        return chosen_launcher(self.launcher)

    @property
    def apart(self) -> bool:
        """Whether it samples in processes of its own."""
        return self.replicas > 1 or self._launcher != Local()

    @property
    def claims(self) -> Mapping[str, Any]:
        """The slots; processes of their own do not keep support and choices, or use the devices of `rollout/mesh`."""
        slots = {"slots": self.slots} if self.slots else {}
        return slots | ({"keeps_support": 0, "keeps_choices": False, "placed": False} if self.apart else {})

    def check(self) -> None:
        """Check the launcher's requirements; without replicas there are none."""
        if self.apart:
            self._opening()

    def _opening(self) -> Any:
        """Return the opening of the replicas."""
        from dovetail_rollout.hosted.opening import of_vanilla

        launcher = self._launcher
        launcher.check()
        return of_vanilla(self, launcher)

    def open(self, graphdef: Any, weights: Weights, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from `nnx.merge(graphdef, *weights)`; its weights have version 0."""
        if self.apart:
            return self._opening().open(graphdef, weights, tokenizer)
        return VanillaEngine(
            slots=self.slots,
            shrink=jax.default_backend() == "cpu" if self.shrink is None else self.shrink,
            cache_dtype=self.cache_dtype,
            graphdef=graphdef,
            weights=weights,
            vocab_size=nnx.merge(graphdef, *weights).vocab_size,
            length_axes=length_axes(graphdef, weights),
            eos_ids=tuple(tokenizer.eos_ids),
            pad_id=tokenizer.pad_id,
            decode=tokenizer.decode,
        )

    def open_folder(self, folder: Path, tokenizer: Tokenizer) -> RolloutEngine:
        """Return an engine that samples from a Hugging Face folder, read by the model `pretrained`."""
        if self.apart:
            return self._opening().open_folder(folder, tokenizer)
        maker: Any = dovetail.get("model", "pretrained").bind(path=str(folder))
        model = maker.make(tokenizer.vocab_size, rngs=nnx.Rngs(0), place=lambda axes, shape: None)
        graphdef, trained, frozen = nnx.split(model, nnx.Param, ...)
        return self.open(graphdef, Weights(trained, frozen), tokenizer)


@attrs.define(kw_only=True, eq=False)
class VanillaEngine:
    """An open `Vanilla`; see `dovetail.protocols.RolloutEngine`."""

    slots: int | None
    shrink: bool
    cache_dtype: str | None
    graphdef: Any = attrs.field(repr=False)
    weights: Weights | None = attrs.field(repr=False)
    vocab_size: int
    length_axes: tuple[int | None, ...]
    eos_ids: tuple[int, ...]
    pad_id: int
    decode: Callable[[Sequence[int]], str] = attrs.field(repr=False)
    version: int = 0
    least_positions: int = SHORTEST_PROMPT
    shapes: set[tuple[Any, ...]] = attrs.field(factory=set, repr=False)

    @property
    def compiled(self) -> int:
        """The number of programs this engine has used so far; others in this process may have compiled them."""
        return len(self.shapes)

    def generate(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        *,
        keep_support: bool = False,
        keep_choices: bool = False,
    ) -> Completions:
        """Sample one completion for each key; `keep_support` goes with a `top_k` of at most 256.

        With `keep_choices`, also return what the model chose while it read each token.

        Raises:
            ConfigError: for shapes that do not match, and for prompts padded on the right.
            CompletionsFailed: if every completion failed.
            RunError: after `close`.
        """
        batch = self._batch(prompt_tokens, prompt_mask, keys, sampling, keep_support, keep_choices)
        drawn = jax.device_get(batch.run())
        return attrs.evolve(self.completions(drawn, batch.stops), **_choices(drawn, prompt_tokens.shape[1]))

    def turns(
        self,
        prompt_tokens: Int[np.ndarray, "prompt position"],
        prompt_mask: Bool[np.ndarray, "prompt position"],
        keys: Key[Array, "prompt sample"],
        sampling: Sampling,
        max_turn_tokens: int,
        *,
        keep_support: bool = False,
    ) -> VanillaTurns | None:
        """Return completions of several turns; None if `slots` has no place for all of them.

        Raises:
            ConfigError, RunError: as for `generate`.
        """
        if self.slots is not None and self.slots < keys.size:
            return None
        by_turn = attrs.evolve(sampling, max_tokens=min(max_turn_tokens, sampling.max_tokens))
        batch = self._batch(prompt_tokens, prompt_mask, keys, by_turn, keep_support)
        schedule = attrs.evolve(batch.schedule, halvings=2, long=False)
        rounds = Rounds.of(attrs.evolve(batch, schedule=schedule), sampling.max_tokens)
        return VanillaTurns(engine=self, rounds=rounds, sampling=by_turn)

    def _batch(
        self,
        prompt_tokens: Any,
        prompt_mask: Any,
        keys: Any,
        sampling: Sampling,
        keep_support: bool,
        keep_choices: bool = False,
    ) -> Batch:
        weights = self.open_weights()
        check_prompts(prompt_tokens, prompt_mask, keys)
        prompts, samples = keys.shape
        tokens, mask = _bucket(np.asarray(prompt_tokens, np.int32), np.asarray(prompt_mask, bool), self.least_positions)
        refused = unknown_ids(tokens, mask, self.vocab_size)
        return Batch(
            graphdef=self.graphdef,
            weights=weights,
            numbers=_numbers(sampling),
            fixed=Fixed(
                max_tokens=sampling.max_tokens,
                top_k=sampling.top_k,
                eos_ids=self.eos_ids,
                keep_support=keep_support,
                keep_choices=keep_choices,
            ),
            cache_dtype=self.cache_dtype,
            length_axes=self.length_axes,
            schedule=Schedule(
                prompts=prompts,
                samples=samples,
                slots=min(self.slots or keys.size, keys.size),
                shrink=self.shrink,
                long=sampling.max_tokens > max(SHORTEST, tokens.shape[1]),
            ),
            stops=self.stops(sampling, keys.size),
            prompts=Prompts(
                tokens=jnp.asarray(np.where(refused[:, None], 0, tokens)),
                mask=jnp.asarray(mask),
                keys=keys,
                refused=jnp.asarray(np.repeat(refused, samples)),
            ),
            compiled=self.shapes,
        )

    def completions(self, drawn: Drawn, stops: Stops | None) -> Completions:
        """Cut the arrays at the end of each row and say how it ended."""
        if drawn.failed.all():
            raise CompletionsFailed(
                "every completion failed: the policy's logits are NaN or infinite, or the prompts have ids outside its"
                f" vocabulary of {self.vocab_size}"
            )
        if drawn.failed.any():
            rows = np.flatnonzero(drawn.failed).tolist()
            warnings.warn(
                f"completions {rows} failed and are left out: see finish == 'error'", RuntimeWarning, stacklevel=3
            )
        mask = (np.arange(drawn.tokens.shape[1]) < drawn.lengths[:, None]) & ~drawn.failed[:, None]
        last = drawn.tokens[np.arange(len(drawn.tokens)), np.maximum(drawn.lengths - 1, 0)]
        finish = np.where(np.isin(last, self.eos_ids), "eos", "length")
        if stops is not None:
            finish = np.where(stops.found, "stop", finish)
        return Completions(
            tokens=np.where(mask, drawn.tokens, np.int32(self.pad_id)),
            mask=mask,
            logps=np.where(mask, drawn.logps, np.float32(0)),
            finish=np.where(drawn.failed, "error", finish),
            versions=np.full(len(drawn.tokens), self.version, np.int32),
            support=None if drawn.support is None else np.asarray(drawn.support),
        )

    def stops(self, sampling: Sampling, seqs: int) -> Stops | None:
        """Return the stop strings of so many completions, if there are any."""
        return Stops.of(sampling.stop, self.decode, seqs)

    def sync(self, weights: Weights, version: int) -> None:
        """Use these weights from now on."""
        self.open_weights()
        self.weights, self.version = weights, version

    def close(self) -> None:
        """Release the weights; a second call does nothing."""
        self.weights = None

    def open_weights(self) -> Weights:
        """Return the weights; there are none after `close`."""
        if self.weights is None:
            raise RunError("this rollout engine is closed; open another one with `Vanilla().open(...)`")
        return self.weights


@attrs.frozen(kw_only=True)
class VanillaTurns:
    """Completions of several turns; see `dovetail.protocols.Turns`. Their cache lives as long as this object."""

    engine: VanillaEngine
    rounds: Rounds
    sampling: Sampling

    def first(self) -> Completions:
        """Sample the first turns."""
        return self.engine.completions(jax.device_get(self.rounds.first()), self.rounds.batch.stops)

    def next(self, rows: Sequence[int], observed: Sequence[Sequence[int]], keys: Key[Array, "seq"]) -> Completions:
        """Sample the next turn of some completions.

        Raises:
            CompletionsFailed: if all of them failed.
            RunError: after `close`, and after a `sync`.
        """
        if self.engine.open_weights() is not self.rounds.batch.weights:
            raise RunError("the weights of this rollout engine were replaced in the middle of an episode")
        chosen, seqs = np.array(rows), len(self.rounds.tokens)
        known = [all(0 <= token < self.engine.vocab_size for token in ids) for ids in observed]
        refused = np.zeros(seqs, bool)
        refused[chosen] = np.logical_not(known)
        said = [ids if good else () for ids, good in zip(observed, known, strict=True)]
        stops = self.engine.stops(self.sampling, seqs)
        drawn = jax.device_get(self.rounds.next(rows, said, _spread(keys, chosen, seqs), refused, stops))
        if stops is not None:
            stops = attrs.evolve(stops, found=stops.found[chosen])
        return self.engine.completions(jax.tree.map(lambda array: array[chosen], drawn), stops)


def _spread(keys: Key[Array, "chosen"], rows: Int[np.ndarray, "chosen"], seqs: int) -> Key[Array, "seq"]:
    """Return a key for each completion, these for the chosen ones."""
    words = np.asarray(jax.random.key_data(keys))
    spread = np.zeros((seqs, *words.shape[1:]), words.dtype)
    spread[rows] = words
    return jax.random.wrap_key_data(jax.device_put(spread), impl=jax.random.key_impl(keys))


def _choices(drawn: Drawn, width: int) -> dict[str, Int[np.ndarray, "seq ..."]]:
    """Return the fields of `Completions` with what the model chose, if that was kept; each row has its prompt's."""
    if drawn.choices is None or drawn.prompt_choices is None:
        return {}
    prompts, read, _ = drawn.prompt_choices.shape
    padded = np.pad(drawn.prompt_choices, ((0, 0), (width - read, 0), (0, 0)), constant_values=-1)
    return {
        "choices": np.asarray(drawn.choices),
        "prompt_choices": np.repeat(padded, len(drawn.tokens) // prompts, axis=0),
    }


def _numbers(sampling: Sampling) -> Numbers:
    top_p, min_p = (None if cut is None else jnp.float32(cut) for cut in (sampling.top_p, sampling.min_p))
    return Numbers(jnp.float32(sampling.temperature), jnp.array(sampling.logps == "support"), top_p, min_p)


def _bucket(
    tokens: Int[np.ndarray, "prompt position"], mask: Bool[np.ndarray, "prompt position"], least: int = SHORTEST_PROMPT
) -> tuple[Int[np.ndarray, "prompt position"], Bool[np.ndarray, "prompt position"]]:
    """Drop positions that are padding in all rows, down to a bucket of lengths."""
    width = tokens.shape[1]
    used = width - int(np.argmax(np.append(mask.any(axis=0), True)))
    first = width - prompt_positions(used, width, least)
    return tokens[:, first:], mask[:, first:]
