"""A small batch with every field that a component may read. It is consistent: log-probabilities come from logits.

Its mask has padding, gaps and a row without any policy token; its groups have sizes 4, 2 and 2, are interleaved, and
have arbitrary labels. The gaps contain observations, so that its rows are episodes of one to three turns.
"""

from __future__ import annotations

import functools
import re
import zlib
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.kinds.fields import HIDDEN, LOGITS
from dovetail.plan.roles import COMPLETIONS, INPUTS, WEIGHTS_OF
from dovetail.registry import Component, current
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.fields import quantity_in

ROWS, TOKENS, PROMPT, VOCABULARY, WIDTH, REWARDS, ROLES = 8, 9, 4, 7, 5, 2, 2
LENGTHS: Final = (9, 5, 0, 1, 3, 6, 4, 8)
HOLES: Final = ((1, 2), (5, 1), (5, 3), (7, 2), (7, 3), (7, 5))
GROUP_IDS: Final = (5, -3, 5, 40, -3, 5, 40, 5)
TURNS: Final = (1, 2, 2, 1, 1, 3, 1, 3)
"""The number of turns in each episode; the empty one had turns, but was excluded afterwards."""
ANCHOR_IDS: Final = ((0, -1, -1), (0, 4, -1), (0, 2, -1), (0, -1, -1), (0, -1, -1), (0, 2, 3), (0, -1, -1), (0, 2, 2))
"""In the group of four, two episodes visit the same state in turn 1, and one of them visits it again. Numbers are not
comparable across groups."""

TEXTS: Final = ("answer", "demo")
"""Texts other than the completion that have tokens of their own."""

VERSION: Final = 7
"""The version of the weights that are trained."""
NEWER: Final = 3
"""The token from which on newer weights have drawn the older completions."""

LOGPS: Final = re.compile(r"(^|_)logps$")

Fields = dict[str, Any]


def make_mask() -> np.ndarray:
    """Return the mask."""
    mask = np.arange(TOKENS) < np.array(LENGTHS)[:, None]
    for hole in HOLES:
        mask[hole] = False
    return mask


def make_turns() -> Fields:
    """Return the fields about turns: which turn each token belongs to, and the records of each turn."""
    rng, mask = np.random.default_rng(77), make_mask()
    observed = np.zeros_like(mask)
    for hole in HOLES:
        observed[hole] = True
    begins = mask & np.roll(observed, 1, axis=1)
    there = np.arange(max(TURNS)) < np.array(TURNS)[:, None]
    return {
        "observed": observed,
        "turns": np.where(mask | observed, np.cumsum(begins, axis=1), 0).astype(np.int32),
        "turn_mask": there,
        "turn_rewards": np.where(there, rng.normal(size=there.shape), 0).astype(np.float32),
        "anchor_ids": np.array(ANCHOR_IDS, np.int32),
        "void_turns": there & (np.arange(ROWS)[:, None] % 5 == 1),
        "tool_calls": np.array(TURNS, np.int32) - 1,
        "tool_errors": (np.arange(ROWS, dtype=np.int32) % 3) // 2,
    }


def _first_of_groups() -> np.ndarray:
    """Return which rows are the first of their groups; a demonstration, shared by a group, counts only there."""
    return np.array([label not in GROUP_IDS[:row] for row, label in enumerate(GROUP_IDS)])


def _ages() -> np.ndarray:
    """Return how many updates older than the policy the weights are that drew each token; no later one is older."""
    drawn_anew = np.arange(TOKENS) >= NEWER
    return np.maximum(np.arange(ROWS)[:, None] % 3 - drawn_anew, 0).astype(np.int32)


@functools.cache
def known_fields(seed: int = 0) -> Fields:
    """Return every field that the engine provides, including the inputs that a forward pass offers to a field."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return rng.normal(scale=scale, size=shape or (ROWS, TOKENS)).astype(np.float32)

    mask = make_mask()
    old_logits = normal(ROWS, TOKENS, VOCABULARY, scale=1.5)
    old_values = normal()
    lengths = mask.sum(axis=1).astype(np.int32)
    rng_demo = np.random.default_rng(seed + 1000)
    fields = {
        "prompt_tokens": rng.integers(0, VOCABULARY, (ROWS, PROMPT)).astype(np.int32),
        "prompt_mask": np.ones((ROWS, PROMPT), bool),
        "tokens": rng.integers(0, VOCABULARY, (ROWS, TOKENS)).astype(np.int32),
        "answer_tokens": rng.integers(0, VOCABULARY, (ROWS, TOKENS)).astype(np.int32),
        "answer_mask": mask[::-1].copy(),
        "demo_prompt_tokens": rng_demo.integers(0, VOCABULARY, (ROWS, PROMPT)).astype(np.int32),
        "demo_prompt_mask": np.ones((ROWS, PROMPT), bool),
        "demo_tokens": rng_demo.integers(0, VOCABULARY, (ROWS, TOKENS)).astype(np.int32),
        "demo_mask": mask[::-1] & _first_of_groups()[:, None],
        "mask": mask,
        "group_ids": np.array(GROUP_IDS, np.int32),
        "versions": VERSION - _ages(),
        "staleness": _ages(),
        "role_ids": (np.arange(ROWS, dtype=np.int32) // 2) % ROLES,
        "lengths": lengths,
        "truncated": lengths == TOKENS,
        "logits": old_logits + normal(ROWS, TOKENS, VOCABULARY, scale=0.3),
        "old_logits": old_logits,
        "ref_logits": old_logits + normal(ROWS, TOKENS, VOCABULARY, scale=0.3),
        "hidden_states": normal(ROWS, TOKENS, WIDTH),
        "old_hidden_states": normal(ROWS, TOKENS, WIDTH),
        "ref_hidden_states": normal(ROWS, TOKENS, WIDTH),
        "answer_hidden_states": normal(ROWS, TOKENS, WIDTH),
        "answer_logits": normal(ROWS, TOKENS, VOCABULARY),
        "values": old_values + normal(scale=0.3),
        "old_values": old_values,
        "returns": old_values + normal(),
        "advantages": np.where(mask, normal(), 0).astype(np.float32),
        "is_weights": np.where(mask, np.exp(normal(scale=0.2)), 0).astype(np.float32),
        "scores": np.abs(normal(ROWS)),
        "greedy_scores": normal(ROWS),
        "score_table": np.abs(normal(ROWS, REWARDS)),
        "token_rewards": np.where(mask, normal(), 0).astype(np.float32),
        "process_rewards": np.where(mask, rng_demo.normal(size=mask.shape), 0).astype(np.float32),
        "loss_weights": np.where(mask, rng_demo.uniform(0.5, 1.5, mask.shape), 0).astype(np.float32),
        "schedule_weight": np.float32(0.5),
        "progress": np.float32(0.25),
        "key": jax.random.key(seed),
        "row_keys": jax.random.split(jax.random.key(seed + 1), ROWS),
    }
    fields["support"] = _support(fields["tokens"])
    fields |= {"choices": fields["support"][..., :2] % 4, "prompt_choices": np.zeros((ROWS, PROMPT, 2), np.int32)}
    fields |= make_turns()
    fields["rollout_logps"] = field("old_logps", fields) + normal(scale=0.1)
    fields["weights"] = np.where(mask, rng.uniform(0.5, 1.5, mask.shape), 0).astype(np.float32)
    return fields


def _support(tokens: np.ndarray) -> np.ndarray:
    """Return a support for each token: some ids, including its own, as a sampler's cut would leave."""
    others = np.where(tokens % 2 == 0, (tokens + 1) % VOCABULARY, -1)
    return np.stack([tokens, others, (tokens + 2) % VOCABULARY], axis=-1).astype(np.int32)


def field(name: str, known: Fields) -> Any:
    """Return a field: a known one, the result of the component that provides it, or otherwise a column of numbers."""
    if name in known:
        return known[name]
    quantity = quantity_in(name, current())
    bare = quantity.name if quantity else name
    if not current().has("field", bare):
        for offered in (LOGITS, HIDDEN):
            if name.endswith(f"_{offered}"):
                return _of_another(name, known[offered])
        written = _written(name, known)
        # a column is a grade or a weight, which turned round would turn round what multiplies by it
        return np.abs(_normal(name, (ROWS,))) if written is None else written
    prefix = name.removesuffix(bare)
    provider = current().get("field", bare)
    value = Subject(provider).bind()(*(_offered(read, prefix, known) for read in provider.reads))
    value = np.asarray(value[0] if isinstance(value, tuple) else value)
    if value.dtype == bool and value.shape == known["mask"].shape:  # a loss mask, which may be empty by default
        return np.random.default_rng(len(name)).random(value.shape) < 0.5
    return value


def _written(name: str, known: Fields) -> Any:
    """Return a field that components of a plugin's kind write; None if there is no such kind or component."""
    for kind in current().kinds.values():
        for writer in current().components(kind.name) if name in kind.writes else ():
            values = Subject(writer).bind()(*(_array(field(read, known)) for read in writer.reads))
            return np.asarray((values if isinstance(values, tuple) else (values,))[kind.writes.index(name)])
    return None


def _offered(read: str, prefix: str, known: Fields) -> Any:
    """Return an input of a provider: a field of the batch or, under a prefix, of that model and its inputs."""
    if not prefix or read not in ("tokens", "mask", LOGITS, HIDDEN):
        return _array(field(read, known))
    if prefix + read in known:
        return jnp.asarray(known[prefix + read])
    if read in ("tokens", "mask"):
        inputs = next((each for each in INPUTS.values() if each.prefix and prefix.endswith(each.prefix)), COMPLETIONS)
        return jnp.asarray(known[inputs.prefix + read])
    return jnp.asarray(_of_another(prefix + read, known[read]))


def _of_another(name: str, own: np.ndarray) -> np.ndarray:
    """Return another model's array of this name, close to the policy's."""
    return own + np.float32(0.3) * _normal(name, own.shape)


def _normal(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return random numbers that depend only on a name."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape).astype(np.float32)


def _array(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def read_by(component: Component, seed: int = 0) -> Fields:
    """Return the fields that a component reads, the mask of its tokens, and weights for a sum over them.

    If a component reads another mask instead of `mask`, its tokens are those of that mask: demonstrations or
    observations.
    """
    known = known_fields(seed)
    names = dict.fromkeys((*component.reads, "mask", "weights"))
    fields = {name: field(name, known) for name in names if name != "state"}
    about = next((name for name in component.reads if name in WEIGHTS_OF), "mask")
    if "mask" in component.reads or about == "mask":
        return fields
    own = known[about]
    return fields | {"mask": own, "weights": np.where(own, np.float32(1.0), np.float32(0.0))}


def is_array(value: Any) -> bool:
    """Tell whether a field is an array with a row for each completion."""
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == ROWS


def has_tokens(value: Any) -> bool:
    """Tell whether a field has a position for each token."""
    return is_array(value) and value.ndim > 1 and value.shape[1] == TOKENS


def is_float(value: Any) -> bool:
    """Tell whether a field is an array of floats, of any precision."""
    return is_array(value) and jnp.issubdtype(value.dtype, jnp.floating)


def without_turns(fields: Fields) -> Fields:
    """Let the completions without policy tokens be episodes that have failed before their first turn."""
    empty = ~fields["mask"].any(axis=1)
    records = ("turn_mask", "turn_rewards", "void_turns", "tool_calls", "tool_errors")
    gone = {
        name: np.where(empty.reshape(-1, *[1] * (fields[name].ndim - 1)), 0, fields[name])
        for name in records
        if name in fields
    }
    return fields | {name: value.astype(fields[name].dtype) for name, value in gone.items()}


def in_one_turn(fields: Fields) -> Fields:
    """Give every episode a single turn, which starts from the same state."""
    rows = np.arange(ROWS)
    of_turns = np.where(np.arange(max(TURNS)) == 0, 0, -1) + 0 * rows[:, None]
    one = {
        "turns": np.zeros((ROWS, TOKENS), np.int32),
        "turn_mask": of_turns == 0,
        "anchor_ids": of_turns.astype(np.int32),
    }
    return fields | {name: value for name, value in one.items() if name in fields}


def take_rows(fields: Fields, rows: Any) -> Fields:
    """Select or reorder completions."""
    return {name: value[rows] if is_array(value) or name == "row_keys" else value for name, value in fields.items()}


def widened(fields: Fields, columns: int) -> Fields:
    """Add padding on the right: NaN in float arrays, zero in others."""

    def wide(value: np.ndarray) -> np.ndarray:
        filling = np.nan if is_float(value) else 0
        more = np.full((len(value), columns, *value.shape[2:]), filling, value.dtype)
        return np.concatenate([value, more], axis=1)

    wide_fields = {name: wide(value) if has_tokens(value) else value for name, value in fields.items()}
    return wide_fields | {"weights": np.nan_to_num(wide_fields["weights"])}


def spoilt(fields: Fields, value: float) -> Fields:
    """Write a value where components must not read: outside the mask, and in completions without policy tokens.

    What is about answers or demonstrations has their mask.
    """
    mask = fields["mask"]

    def spoil(name: str, array: np.ndarray) -> np.ndarray:
        seen = _own_mask(name, fields) if has_tokens(array) else mask.any(axis=1)
        if name == "turn_rewards":
            seen = make_turns()["turn_mask"] & seen[:, None]
        return np.where(seen.reshape(seen.shape + (1,) * (array.ndim - seen.ndim)), array, np.float32(value))

    dirty = {name: spoil(name, array) for name, array in fields.items() if is_float(array) and name != "weights"}
    return fields | dirty


def _own_mask(name: str, fields: Fields) -> np.ndarray:
    """Return the mask of the tokens that a field is about."""
    own = next((text for text in TEXTS if re.search(rf"(^|_){text}_", name)), "")
    if own:
        known = fields.get(f"{own}_mask", known_fields()[f"{own}_mask"])
    elif any(fields.get(f"{text}_mask") is fields["mask"] for text in TEXTS):  # the policy's tokens are others
        known = known_fields()["mask"]
    else:
        known = fields["mask"]
    return known if known.shape == fields["mask"].shape else fields["mask"]


def renumbered(fields: Fields, number: int) -> Fields:
    """Write a number where components must not read: the turns of tokens outside the mask, and the ids of padding.

    The ids in gaps are kept: they are observations, which the policy has read.
    """
    mask = fields["mask"]
    seen = {"turns": mask, "tokens": np.cumsum(mask[:, ::-1], axis=1)[:, ::-1] > 0}
    return fields | {name: np.where(seen[name], fields[name], np.int32(number)) for name in seen if name in fields}


def closed(fields: Fields) -> Fields:
    """Move the tokens inside the mask to the front of their rows, which closes the gaps."""
    order = np.argsort(~fields["mask"], axis=1, kind="stable")

    def moved(value: np.ndarray) -> np.ndarray:
        index = order.reshape(order.shape + (1,) * (value.ndim - 2))
        return np.take_along_axis(value, index, axis=1)

    return {name: moved(value) if has_tokens(value) else value for name, value in fields.items()}


def with_mask(fields: Fields, mask: np.ndarray) -> Fields:
    """Replace the mask, and the fields that follow from it."""
    lengths = mask.sum(axis=1).astype(np.int32)
    own = {name: mask for name in WEIGHTS_OF if fields.get(name) is fields["mask"]}
    follow = own | {"mask": mask, "lengths": lengths, "truncated": lengths == mask.shape[1]}
    return fields | {name: value for name, value in follow.items() if name in fields}


def scaled(fields: Fields, factor: float) -> Fields:
    """Return fields whose floats are farther apart, or nearer."""
    return fields | {
        name: (value * np.float32(factor)).astype(value.dtype)
        for name, value in fields.items()
        if is_float(value) and name != "weights"
    }


def eventful(fields: Fields) -> Fields:
    """Let what is rare happen: good completions repeat themselves, and in each turn a call of a tool fails."""
    periods = 1 + (np.arange(ROWS, dtype=np.int32)[:, None] + 1) % 3
    tokens = np.arange(TOKENS, dtype=np.int32) % periods
    rare = {"tokens": tokens, "tool_calls": 2 * np.array(TURNS, np.int32), "tool_errors": np.array(TURNS, np.int32)}
    good = {"advantages": np.abs(fields["advantages"])} if "advantages" in fields else {}
    return fields | good | {name: value for name, value in rare.items() if name in fields}


def farther(fields: Fields, name: str, shift: float) -> Fields:
    """Add a number to a field. A log-probability is at most zero, so what would raise it lowers those beside it."""
    beside = [other for other in fields if LOGPS.search(other) and other != name]
    if shift < 0 or not LOGPS.search(name):
        return fields | {name: fields[name] + np.float32(shift)}
    return fields | {other: fields[other] - np.float32(shift) for other in beside}


def with_scores(fields: Fields, scores: Any) -> Fields:
    """Replace the rewards in every form: scores, their table, and token rewards (on the last policy token).

    The rewards of turns are set to zero, so that the scores are outcome rewards.
    """
    scores = np.asarray(scores, np.float32)
    mask = fields["mask"]
    last = mask & (np.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    forms = {
        "scores": scores,
        "score_table": np.repeat(scores[:, None], REWARDS, axis=1),
        "token_rewards": np.where(last, scores[:, None], 0).astype(np.float32),
        "turn_rewards": np.zeros((ROWS, max(TURNS)), np.float32),
    }
    return fields | {name: value for name, value in forms.items() if name in fields}
