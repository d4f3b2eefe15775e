"""Writes `docs/golden.md`: how many of the golden cases are reproduced, and every departure with its reason.

    python -m tests.golden_report

The tests are the only source: the function `facts` of a test file returns its cases and reasons from the tables that
parametrise its tests.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.golden import GOLDEN, Fact, load

PAGE = Path(__file__).parents[1] / "docs" / "golden.md"
FILES = (
    "tests.advantage.test_golden",
    "tests.advantage.test_golden_agents",
    "tests.advantage.test_golden_catalogue",
    "tests.lab.evaluation.test_golden_verl",
    "tests.loss.loss_term.test_orpo",
    "tests.loss.test_golden_agents",
    "tests.loss.test_golden_around",
    "tests.loss.test_golden_trl",
    "tests.loss.test_golden_tunix",
    "tests.loss.test_golden_verl",
    "tests.loss.test_golden_verl_policy",
    "tests.loss.correction.test_golden_verl",
    "tests.reward.reward_shaping.test_by_turns",
    "tests.reward.test_golden_verl",
    "tests.rollout.decoding.test_sampling",
)
NO_COUNTERPART = {
    "masked_": "a helper of the library; the functions that use it are compared",
    "compute_advantage, ": "the library's dispatch to the estimators above",
    "get_adv_estimator_fn": "the library's registry",
    "compute_advantage_for_multi_trajectories": "the library's own batching of agent trajectories",
    "calculate_workload": "balances sequence lengths among workers, which has no counterpart here",
    "get_seqlen_balanced_partitions": "balances sequence lengths among workers, which has no counterpart here",
    "np_make_completion_mask": "infers a mask from ids, which Dovetail never does",
    "build_positions_from_mask": "a helper of the library's own models",
}
"""Reasons for not running a function's cases, by a part of the function's name."""
LIBRARIES = {
    "verl": "verl 0.9.1",
    "tunix": "google-tunix 0.1.7",
    "trl": "TRL 1.16.0",
    "agents": "the code of papers on agents",
    "verl_rewards": "verl 0.9.1, scorers",
}


def facts() -> list[Fact]:
    """Return every case that a test runs."""
    return sorted(fact for file in FILES for fact in importlib.import_module(file).facts())


def rest(run: list[Fact]) -> list[Fact]:
    """Return the cases that none of `FILES` runs, each with its reason in place of the reason of a departure.

    Raises:
        KeyError: if a case has no reason.
    """
    done = {(fact.library, fact.case) for fact in run}
    found = []
    for library in ("verl", "tunix", "trl", "agents"):
        for case in load(library)[0]:
            name = case.get("id") or case["name"]
            if (library, name) not in done:
                function = case.get("function") or case["kind"]
                label = f"compute_advantage, {function}" if case.get("kind") == "compute_advantage" else function
                found.append(Fact(library, label, name, _reason(label, name)))
    return sorted(found)


def _reason(function: str, case: str) -> str:
    for part, reason in NO_COUNTERPART.items():
        if part in function:
            return reason
    raise KeyError(f"no test runs {case} of {function}, and nobody says why")


def page() -> str:
    """Return the report."""
    run = facts()
    departing = sum(bool(fact.departure) for fact in run)
    versions = ", ".join(dict.fromkeys(title.split(",")[0] for title in LIBRARIES.values()))
    lines = [
        "# Golden facts",
        "",
        "This page compares Dovetail's components with inputs and outputs of other libraries' released code (`tests/golden`): values and",
        "gradients, at 1e-9 in float64 and 1e-5 in float32. `python -m tests.golden_report` writes this page from the tables of the",
        f"tests that run the cases, and a test checks that it is up to date. Libraries: {versions}.",
        "",
        f"**{len(run)} cases are run: {len(run) - departing} reproduced, {departing} departures, each with its reason below and a test of"
        " what Dovetail does instead.**",
        "",
    ]
    for library, title in LIBRARIES.items():
        mine = [fact for fact in run if fact.library == library]
        lines += [f"## {title}", "", *_counts(mine), "", *_departures(mine)]
    return "\n".join([*lines, "## Cases that are not compared", "", *_left(rest(run)), ""])


def _counts(mine: list[Fact]) -> Iterator[str]:
    yield "| function | cases | reproduced | departures |"
    yield "|---|---:|---:|---:|"
    cases, apart = Counter(f.function for f in mine), Counter(f.function for f in mine if f.departure)
    for function, count in sorted(cases.items()):
        yield f"| {function} | {count} | {count - apart[function]} | {apart[function]} |"
    yield f"| **all** | {len(mine)} | {len(mine) - apart.total()} | {apart.total()} |"


def _departures(mine: list[Fact]) -> Iterator[str]:
    reasons: dict[str, Counter[str]] = {}
    for fact in mine:
        if fact.departure:
            reasons.setdefault(fact.departure, Counter())[fact.function] += 1
    if reasons:
        yield "| departure | cases | in |"
        yield "|---|---:|---|"
        for reason, functions in sorted(reasons.items()):
            where = "; ".join(f"{function} {count}" for function, count in sorted(functions.items()))
            yield f"| {reason} | {functions.total()} | {where} |"
        yield ""


def _left(left: list[Fact]) -> Iterator[str]:
    yield "| library | function | cases | why |"
    yield "|---|---|---:|---|"
    for (library, function, reason), count in sorted(
        Counter((f.library, f.function, f.departure) for f in left).items()
    ):
        yield f"| {library} | {function} | {count} | {reason} |"
    scorers = json.loads((GOLDEN / "verl_rewards.json").read_text())["rows"]
    run = sum(fact.library == "verl_rewards" for fact in facts())
    yield f"| verl_rewards | errors, and scorers without a counterpart | {len(scorers) - run} | see `tests/reward/verl_rows.py` |"


if __name__ == "__main__":
    PAGE.write_text(page())
