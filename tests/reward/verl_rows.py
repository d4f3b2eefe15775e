"""Rows of verl's scorers, in the words of the rewards here; and where the two differ, with the reason."""

from __future__ import annotations

import json
from typing import Any

from tests.golden import GOLDEN

import dovetail

Row = dict[str, Any]

COVERED = {
    "gsm8k.compute_score": "gsm8k",
    "math_dapo.compute_score": "math_dapo",
    "math_verify.compute_score": "math_verify",
    "prime_math.compute_score": "math_verify",
    "geo3k.compute_score": "geo3k",
    "prime_code.compute_score": "code",
    "rlla.compute_score": "rlla",
    "search_r1.compute_score": "exact_match_qa",
    "search_r1.compute_score_subem": "exact_match_qa",
}
BY_SOURCE = {
    "openai/gsm8k": "gsm8k",
    "DigitalLearningGmbH/MATH-lighteval": "math",
    "math_dapo": "math_dapo",
    "aime24": "math_dapo",
    "searchR1_nq": "exact_match_qa",
}
"""The scorer that verl's `default_compute_score` picks for a `data_source`."""

MATHS = {
    "numbers are compared by value": [
        *((rf"\boxed{{{guess}}}", "1000") for guess in ("1,000", "1{,}000", r"1\!000", "1e3")),
        (r"\boxed{４２}", "42"),
        (r"\boxed{50\%}", "50"),
        (r"\boxed{50%}", "50"),
        (r"\boxed{0.5}", r"\frac{1}{2}"),
    ],
    "the unit is left out in every spelling": [(r"\boxed{5 \text{cm}}", "5")],
    "a word is equal inside and outside \\text": [(r"\boxed{yes}", r"\text{yes}")],
    "a letter is the same choice with and without parentheses": [(r"\boxed{(A)}", "A")],
    "\\fbox counts as a box, and so does \\boxed without braces": [
        (r"\fbox{42}", "42"),
        (r"\boxed 42", "42"),
        (r"$\boxed 42$", "42"),
    ],
}
DEPARTURES: dict[str, dict[str, list[tuple[str, Any]]]] = {
    "gsm8k": {
        "numbers are compared by value, not by text": [
            ("#### 72.", "72"),
            ("#### 72.0", "72"),
            ("#### .5", "0.5"),
            ("#### $72", "72"),
            ("#### −5", "-5"),
            ("#### 1e3", "1000"),
            ("#### -0", "0"),
            ("#### 1,234", "1234"),
            ("#### 1234", "1,234"),
            (" #### 72", " 72 "),
        ],
        "the whole completion is read": [("#### 72", "72")],
        "any white space, or none, is allowed after ####": [("####72", "72")],
        "a number after #### may be in a box": [(r"#### \boxed{72}", "72")],
        "a hyphen after a letter or digit is not a sign": [("cost 1.5-2", "2"), ("a-2", "2")],
        "points and commas alone are not a number": [("...", "72"), ("#### ,", "72")],
    },
    "math": MATHS,
    "math_dapo": MATHS
    | {
        "the content of a box is put into normal form, like the text after Answer:": [
            *((rf"\boxed{{{guess}}}", r"\frac{1}{2}") for guess in (r"\dfrac{1}{2}", r"\tfrac12", r"\frac12", "1/2")),
            *((rf"\boxed{{{guess}}}", "5") for guess in ("xyz=5", r"\$5", r"5\text{ cm}")),
            *((rf"\boxed{{{guess}}}", "90") for guess in (r"90^\circ", r"90^{\circ}")),
            (r"\boxed{5}", "x=5"),
            (r"\boxed{(1, 2)}", "(1,2)"),
            (r"\boxed{- 5}", "-5"),
        ],
        "the whole completion is read": [(r"\boxed{42}", "42")],
        "a final period does not count": [("Answer: 42.", "42")],
    },
    "code": {},
    "geo3k": {
        "a box counts in every spelling": [
            (r"\boxed 42", "42"),
            (r"\fbox{42}", "42"),
            (r"<think>a</think> \fbox{42}", "42"),
        ],
        "a fraction need not be in lowest terms": [
            (r"\boxed{\frac{2}{4}}", r"\frac{1}{2}"),
            (r"<think>a</think> \boxed{\frac{2}{4}}", r"\frac{1}{2}"),
        ],
        "an answer that is equal to an integer is right": [
            (r"\boxed{xyz=5}", "5"),
            (r"<think>a</think> \boxed{10^{3}}", "1000"),
        ],
        "a set has no order": [(r"\boxed{\{1,2\}}", r"\{2,1\}")],
    },
    "rlla": {},
    "math_verify": {
        "numbers are compared by value": [(r"\boxed{1e3}", "1000"), (r"\boxed{４２}", "42"), ("Answer:42", "42")],
        "the last box is the answer": [(r"\boxed{1}\boxed{42}", "42"), (r"\fbox{42}", "42")],
        "math-verify 0.9 reads 50% as 50; the rows come from 0.8": [(r"\boxed{50%}", "50")],
        "a box that is not closed does not count": [(r"\boxed{42", "42")],
        "prime_math does not read ####": [
            *((f"{marks} 72", "72") for marks in ("####", "###", "#####")),
            ("#### -5", "-5"),
            ("#### 1,234,567", "1234567"),
            ("#### 0.5", "0.5"),
            ("#### $72", "72"),
            ("#### 72%", "72"),
        ],
        "prime_math does not read asterisks or powers": [("Answer: **42**", "42"), (r"\boxed{10^{3}}", "1000")],
    },
    "exact_match_qa": {
        "tags between the first and the last closing one are part of the answer": [
            ("<answer>Paris" + "</answer>" * 12, ["Paris"])
        ],
        "words are found whole": [("<answer>theater</answer>", ["ater"])],
        "if normal form leaves nothing, the texts are compared unchanged": [("<answer>a</answer>", [""])],
    },
}
"""By reward and reason: completions (white space behind them aside) and right answers that verl scores otherwise."""

VERL_COMPATIBLE_DEPARTURES = {"math_verify": [(r"\boxed{50%}", "50")]}
"""What differs even so, as the library has changed since."""


def rows() -> list[Row]:
    """Return all rows."""
    return json.loads((GOLDEN / "verl_rewards.json").read_text())["rows"]


def reward_of(row: Row) -> str | None:
    """Return the name of the reward that covers a row of scores."""
    if row["function"] == "default_compute_score":
        return BY_SOURCE.get(row["data_source"])
    return COVERED.get(row["function"])


def ours(row: Row, **params: Any) -> float | None:
    """Score a row."""
    name = reward_of(row)
    assert name is not None
    component = dovetail.get("reward", name)
    params |= {key: row[key] for key in ("method", "format_score", "strict_box_verify") if key in row}
    if row["function"] == "search_r1.compute_score_subem":
        params["match"] = "contained"
    if "continuous" in row:
        params["score"] = "fraction" if row["continuous"] else "all"
    known = {key: value for key, value in params.items() if key in component.params}
    returned = component.bind(**known)([row["solution_str"]], [truth(row)])
    return returned[0][0] if isinstance(returned, tuple) else returned[0]


def truth(row: Row) -> Any:
    """Return the right answer of a row."""
    given = row["ground_truth"]
    return given["target"] if isinstance(given, dict) and "target" in given else given


def theirs(row: Row) -> float:
    """Return verl's score of a row."""
    score = row["score"]
    return float(score["score"] if isinstance(score, dict) else score[0] if isinstance(score, list) else score)


def case(row: Row) -> tuple[str, Any]:
    """Return what `DEPARTURES` knows a row by."""
    return row["solution_str"].rstrip(" "), truth(row)
