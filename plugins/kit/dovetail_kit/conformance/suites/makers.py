"""Claims about makers of models: that their numbers count, and what they export."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.errors import DovetailError
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.hyperparameters import FIX, numbers_of, others, refuse_unseen
from dovetail_kit.conformance.suites.models import make_model, parameters_of, token_batch

OF_COMPUTING: Final = re.compile(
    r"chunk|block|tile|unroll|remat|drop|noise|jitter|loss|smooth|max_|length|limit|capacity|aux|balance|router"
)
"""In names, that a number decides how a model is computed or trained, or matters beyond the length of a few tokens."""


@check("model", name="every_number_counts", slow=True, fix=FIX)
def every_number_of_a_model_counts(subject: Subject) -> None:
    """Another value of any number, such as a width, an epsilon or a base, changes the weights or what is computed.

    A size that is written into the code would go unnoticed: a sweep over it would compare identical runs.
    """
    numbers = {name: value for name, value in numbers_of(subject).items() if not OF_COMPUTING.search(name)}
    if not numbers:
        return
    weights, computed = _shown(subject, {})
    unseen = {}
    for name, value in numbers.items():
        tried = []
        for other in others(subject.component, name, value):
            try:
                changed = _shown(subject, {name: other}, alike=weights)
            except (Inapplicable, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
                continue  # it does not go with the other numbers
            if changed is None or not np.array_equal(changed[1], computed, equal_nan=True):
                tried = []
                break
            tried.append(other)
        if tried:
            unseen[name] = tried
    refuse_unseen(subject, unseen, f"in the weights, and in hidden states and logits of {computed.shape[1]} tokens")


def _shown(subject: Subject, changed: dict[str, Any], alike: dict[str, Any] | None = None) -> Any:
    """Return the weights of a model with its hidden states and logits; None if its weights are not those given."""
    model = make_model(Subject(subject.component, {**subject.given, **changed}))
    weights = parameters_of(model)
    if alike is not None and not _equal(weights, alike):
        return None
    tokens, mask = token_batch()
    hidden = model(tokens, mask)[0]
    computed = np.concatenate([np.asarray(each, np.float32) for each in (hidden, model.logits(hidden))], axis=-1)
    return weights, np.where(mask[..., None], computed, 0.0)


def _equal(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[path], theirs[path]) for path in ours)


def _exported(
    subject: Subject, model: Any, dtype: Literal["float32", "bfloat16"] | None = None
) -> dict[str, bytes] | None:
    """Return the files of weights that are exported; None if this type is refused.

    Raises:
        Inapplicable: if it cannot be exported.
        Failed: if a file that it names is not there.
    """
    asked = {} if dtype is None else {"dtype": dtype}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "exported")
        try:
            files = subject.bind().export(model, folder, adapter=False, **asked)
        except (DovetailError, ImportError, NotImplementedError) as error:
            if dtype is not None:
                return None
            raise Inapplicable(f"it cannot be exported here: {error}") from error
        missing = [path for path in files if not path.is_file()]
        if missing:
            raise Failed(f"it returns {missing[0].name}, which is not there")
        return {path.name: path.read_bytes() for path in files}


def _has_export(subject: Subject) -> Any:
    """Return a model to export.

    Raises:
        Inapplicable: if its maker exports nothing.
    """
    if not hasattr(subject.bind(), "export"):
        raise Inapplicable("it has no `export`")
    return make_model(subject)


@check("model", slow=True, fix="Convert each array to the type that is asked for, and to none if that is None.")
def exports_in_the_type_asked_for(subject: Subject) -> None:
    """Exported in bfloat16, its files are other ones than in float32, and without a type they keep that of the weights.

    A model of twice the size fills the memory of whoever serves it; one in half precision is not the one trained.
    """
    model = _has_export(subject)
    if any(leaf.dtype != np.float32 for leaf in parameters_of(model).values()):
        raise Inapplicable("its parameters are not in float32")
    kept, full, half = (_exported(subject, model, dtype) for dtype in (None, "float32", "bfloat16"))
    if full is not None and full == half:
        raise Failed("its files are the same whether float32 or bfloat16 is asked for")
    if half is not None and kept == half:
        raise Failed("without a type its files are those in bfloat16, and its parameters are in float32")


@check("model", slow=True, fix="Write every parameter: nnx.state(model, nnx.Param) has them all.")
def exports_every_parameter(subject: Subject) -> None:
    """Another value of any parameter changes an exported file; exporting changes none of them.

    A scale or a bias that is left out begins anew wherever the model is loaded, and it says something else.
    """
    model = _has_export(subject)
    before = parameters_of(model)
    _exported(subject, model)
    if not _equal(parameters_of(model), before):
        raise Failed("exporting it changes its parameters")
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    leaves, tree = jax.tree.flatten(params)
    for number, path in enumerate(before):
        moved = [leaf + jnp.ones((), leaf.dtype) if at == number else leaf for at, leaf in enumerate(leaves)]
        files = _exported(subject, model)  # again each time, as a file may tell the time
        if _exported(subject, nnx.merge(graphdef, tree.unflatten(moved), rest)) == files:
            raise Failed(f"with other numbers in {path} its files are the same")
