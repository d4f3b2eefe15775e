"""Claims about pools: whose result is whose, and how long a call may take."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, Final

from dovetail.errors import DovetailError
from dovetail.registry import Component, current
from dovetail.step.parts import split_metrics
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.workers import LATE

VALUES: Final = (20, 3, 1_000, 55_555, 7, 101)
"""Sorting them is not its own inverse, so that a pool which sorts calls and forgets the inverse is seen."""
LIMIT: Final = 1.0
"""In seconds; what takes four times as long is late on any machine."""


def wait(seconds: float, value: int) -> int:
    """Return a value after so many seconds."""
    time.sleep(seconds)
    return value


def _is_here(component: Component) -> bool:
    """Tell whether its workers are on this machine; a cluster has an address, and may be lost while it is tried."""
    return "address" not in component.params


def _mapped(subject: Subject, calls: list[tuple[float, int]], time_limit: float) -> list[Any]:
    pool: Any = subject.bind(**({"workers": 2} if "workers" in subject.component.params else {}))
    try:
        workers = pool.open(wait, "the conformance suite")
    except (DovetailError, ImportError) as error:
        raise Inapplicable(f"it cannot be opened here: {error}") from error
    except NotImplementedError:
        raise Inapplicable("it is not written yet") from None
    with closing(workers):
        return workers.map(calls, time_limit=time_limit)


@check(
    "pool",
    slow=True,
    when=_is_here,
    fix="Return the results in the order of the calls: found[order[i]] belongs to place i.",
)
def results_of_their_calls(subject: Subject) -> None:
    """The results come in the order of the calls, whichever of them end first.

    In another order each completion has the reward of another one, and nothing else is wrong.
    """
    found = _mapped(subject, [(0.05 * (value % 3), value) for value in VALUES], 60.0)
    if found != list(VALUES):
        raise Failed(f"calls that return {list(VALUES)} have the results {found}")


@check("pool", slow=True, when=_is_here, fix="Return the scores in the order of the completions.")
def scores_of_their_completions(subject: Subject) -> None:
    """A reward that runs in it gives each completion its own score, however long the completions are.

    In another order each completion has the reward of another one, and nothing else is wrong.
    """
    reward = current().get("reward", "exact_match")
    texts = ["42", "the answer is 7", "", "<answer>42</answer>", "42 " * 40, "4", "42"]
    columns = {"completions": texts, "answer": ["42"] * len(texts)}
    given = [columns[name] for name in reward.reads]
    pool: Any = subject.bind(**({"workers": 2} if "workers" in subject.component.params else {}))
    try:
        made = reward.bind()
        expected, found = (list(split_metrics(each(*given))[0]) for each in (made, pool.around(reward, made)))
    except (DovetailError, ImportError) as error:
        raise Inapplicable(f"it cannot be opened here: {error}") from error
    except NotImplementedError:
        raise Inapplicable("it is not written yet") from None
    if found != expected:
        raise Failed(f"completions whose scores are {expected} get {found}")


@check("pool", slow=True, when=_is_here, fix="Pass the time limit on as it is.")
def late_calls_end(subject: Subject) -> None:
    """A call that takes four times its time limit has no result: it is `LATE`.

    A grader that hangs would hold up each step of a run by more than what the config allows.
    """
    late, *_ = _mapped(subject, [(4 * LIMIT, 1), (0.0, 2)], LIMIT)
    if late is not LATE:
        raise Failed(f"with a time limit of {LIMIT:g} s, a call of {4 * LIMIT:g} s has the result {late!r}")
