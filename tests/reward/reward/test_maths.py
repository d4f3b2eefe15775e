"""Rewards `math`, `math_dapo` and `math_verify`, and how they find and compare answers."""

from __future__ import annotations

import importlib.util
import re

import pytest
from tests.limits import limit_only

import dovetail
from dovetail.errors import ConfigError
from dovetail_reward._latex import LONGEST_ANSWER, bare, boxed_answer, same_answer, stated_answer
from dovetail_reward._verl import hendrycks
from dovetail_reward.reward._minerva import minerva
from dovetail_reward.reward.math import hendrycks_math
from dovetail_reward.reward.math_dapo import math_dapo
from dovetail_reward.reward.math_verify import MathVerify

needs_library = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="needs math-verify")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{1} then \boxed{2}.", "2"),
        (r"\boxed{2} then \boxed 4$", "4"),
        (r"\boxed {42}", "42"),
        (r"\fbox{42}", "42"),
        (r"\boxed{\frac{\sqrt{2}}{3}}", r"\frac{\sqrt{2}}{3}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{\\{a}}", r"\\{a}"),
        (r"\boxed{}", ""),
        (r"\boxed{1}\boxed{2", None),
        (r"\boxed", None),
        (r"\boxed ", None),
        (r"\boxedup{42}", None),
        (r"\boxed{" + "9" * LONGEST_ANSWER + "}", "9" * LONGEST_ANSWER),
        (r"\boxed{" + "9" * (LONGEST_ANSWER + 1) + "}", None),
        ("42", None),
    ],
)
def test_boxed_answer(text, answer):
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 42", "42"),
        ("The final ANSWER :42 ", "42"),
        ("Answer: 41\nAnswer: 42\nbye", "42"),
        ("Answer:\n\n42\nbye", "42"),
        ("Answer: 42\n\nAnswer: **", "42"),
        ("**Answer:** 42", "42"),
        ("**Answer**: 42", "42"),
        ("__Answer__: 42", "42"),
        ("Answer：42", "42"),
        ("The answer is: 42", "42"),
        ("Answer: The final answer is $42$. I hope it is correct.", "$42$."),
        ("Answer:\n\\[\n42\n\\]\nbye", "\\[\n42\n\\]"),
        ("**Answer:**\n\n$$\n42\n$$", "$$\n42\n$$"),
        (r"Answer: \[1\] or \[2\]", r"\[1\] or \[2\]"),
        ("Answer:\n\n$$\n\\boxed{42}\n$$", "42"),
        (r"Answer: 41, no: \boxed{42}", "42"),
        ("Answer: 42 (since f(6) = 42).", "42"),
        ("Answer: 42 (mod 7)", "42 (mod 7)"),
        ("Answer: (1, 2)", "(1, 2)"),
        ("Answer: f (as)", "f (as)"),
        ("Answer: 42 (since 1), 43 (since 2)", "42 (since 1), 43"),
        ("Answer: `42`", "42`"),
        ("Answer:\n```\n42\n```", "42"),
        ("Answer: " + "9" * (LONGEST_ANSWER + 1), None),
        ("Answer:", None),
        ("Answer 42", None),
    ],
)
def test_stated_answer(text, answer):
    assert stated_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "42。",
        "`42`",
        r"\[42\]",
        "\\[\n42.\n\\]",
        " 42. ",
        "$42$",
        "**42**",
        "** 42",
        "$42.$",
        r"\(42\)",
        "**$42$.**",
        "42 .",
        "$$42$$",
    ],
)
def test_bare(text):
    assert bare(text) == "42"


@pytest.mark.parametrize(
    ("guess", "truth"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac 1 2", "1/2"),
        (".50", r"\frac12"),
        (r"\sqrt 3", r"\sqrt{3}"),
        ("x = 1,000", "1000"),
        (r"5\,\mathrm{cm}^2", "5"),
        (r"5 \text{ cm}", "5"),
        (r"\text{Monday}", "Monday"),
        (r"90^{\circ}", "90"),
        (r"\left( 1,\ 2 \right)", "(1,2)"),
        (r"\$5.00", "5"),
        (r"50\%", "50"),
        (r"\frac", r"\frac"),
        ("a/b", "a / b"),
        (r"5\text{ a}\text{ b}", r"5 \text{ a}\text{ b}"),
        (r"-\frac{1}{2}", "-1/2"),
        (r"\frac{-2}{3}", "-2/3"),
        (r"\frac{-\sqrt{3}}{2}", r"-\frac{\sqrt{3}}{2}"),
        ("-0.5", r"-\frac{1}{2}"),
        (r"60\text{ miles per hour}", "60"),
        (r"2\pi\text{ cm}", r"2\pi"),
        (r"\frac{1}{2}\text{ inches}", "1/2"),
        (r"5~\mathrm{m}^{2}", "5"),
        (r"12 \text{ and } 13", "12 and 13"),
        (r"11:30\text{ a.m.}", "11:30 a.m."),
        ("3 1/2", r"3\frac{1}{2}"),
        (r"1\,000", "1 000"),
        ("90°", r"90^\circ"),
        ("2π ± 1", r"2\pi\pm1"),
        ("−x", "-x"),
        ("€72", "72"),
        (r"\textbf{(A)}", "A"),
        (r"x^{2} + y_{1}", "x^2+y_1"),
        (r"2516_{8}", "2516_8"),
    ],
)
def test_the_same_but_for_typography(guess, truth):
    assert same_answer(guess, truth)
    assert same_answer(truth, guess)


@pytest.mark.parametrize(
    ("guess", "truth"),
    [
        ("5", "-5"),
        ("2/4", "1/2"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("1+x^2", "x^2+1"),
        ("0.333", "1/3"),
        (r"3\mathrm{i}", "3"),
        ("Monday", "Tuesday"),
        ("0.5000001", "0.5"),
        ("", "0"),
        (r"12 \text{ and } 13", r"12 \text{ and } 14"),
        (r"5 \text{ or } 7", "5"),
        (r"3 \text{ if } x>0", "3"),
        (r"2.5 \text{ million}", "2.5"),
        (r"3 \text{ dozen}", "3"),
        (r"10\text{ cm} \times 5\text{ cm}", "10"),
        (r"11:30\text{ a.m.}", r"11:30\text{ p.m.}"),
        (r"5_{\text{base }6}", "5"),
        (r"30\text{ north}", r"30\text{ south}"),
        (r"\text{John}\text{ Smith}", "John"),
        (r"\text{ a {b} }1", r"\text{ a {b} }2"),
        (r"\frac{-1-x}{2}", r"-\frac{1-x}{2}"),
        ("3 1/2", "31/2"),
        ("12 13", "1213"),
        (r"x^{2}3", "x^23"),
        (r"x^{2} 3", "x^23"),
    ],
)
def test_not_the_same(guess, truth):
    assert not same_answer(guess, truth)
    assert not same_answer(truth, guess)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (r"\frac1b", r"\frac{1}{b}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac{1}{2}+\tfrac34", r"\frac{1}{2}+\frac{3}{4}"),
        (r"\sqrt2\sqrt{3}", r"\sqrt{2}\sqrt{3}"),
        ("y=2", "2"),
        ("abc=2", "abc=2"),
        ("1=2=3", "1=2=3"),
        ("0.5", r"\frac{1}{2}"),
        ("02/4", "02/4"),
        (".5x", "0.5x"),
        (r"\frac1", r"\frac1"),
        ("", ""),
    ],
)
def test_hendrycks(text, form):
    assert hendrycks(text) == form


@pytest.mark.parametrize("text", [r"\frac", r"\sqrt", r"1\text{ a}\text{ b}", "x/2"])
def test_hendrycks_does_not_work_out(text):
    with pytest.raises(ValueError, match=r".+"):
        hendrycks(text)
    assert hendrycks_math([rf"\boxed{{{text}}}"], [text], verl_compatible=True) == [1.0]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("x=3", "3"),
        ("so $\\frac12$ it is", r"\frac{1}{2}"),
        (r"\textbf{a}", "a"),
        (r"\overline{AB}", "AB"),
        (r"\boxed{3}", "3"),
        (r"\sqrt3", r"\sqrt{3}"),
        ("12 square feet", "12"),
        ("an apple", "apple"),
        ("1,234,567", "1234567"),
        ("1,234.5", "1,234.5"),
    ],
)
def test_minerva(text, form):
    assert minerva(text) == form


@pytest.mark.parametrize(
    ("text", "truth", "right"),
    [
        (r"thus $\boxed{x=\dfrac{3}{4}}$.", r"\frac{3}{4}", 1.0),
        (r"\boxed{42}" + "x" * 5000, 42, 1.0),
        (r"\boxed{42} no, \boxed{41}", 42, 0.0),
        ("42", 42, 0.0),
        (r"\boxed{42}", None, None),
    ],
)
def test_math(text, truth, right):
    assert hendrycks_math([text], [truth]) == [right]


@pytest.mark.parametrize(
    ("text", "truth", "loose", "strict"),
    [
        ("Answer: 42.", 42, 1.0, -1.0),
        ("**Answer:** **42**", 42, 1.0, -1.0),
        ("Answer: $\\frac12$", "1/2", 1.0, -1.0),
        ("Answer: 42 apples", 42, -1.0, -1.0),
        ("Answer: 12 dollars" + "\n" * 400, 12, 1.0, -1.0),
        (r"Answer: the box \boxed{42} has it", 42, 1.0, 1.0),
        (r"\boxed{42} Answer: 41", 42, -1.0, 1.0),
        ("Answer: 41?\nNo, it is \\boxed{42}", 42, 1.0, 1.0),
        ("Answer: $12$ or $13$", 12, -1.0, -1.0),
        ("Answer: x = 1, x = 2", 2, -1.0, -1.0),
        ("Answer: x = 1, x = 2", "1,2", 1.0, -1.0),
        ("Answer: 3 1/2", "31/2", -1.0, -1.0),
        (r"Answer: \$5 and \$6", "5", -1.0, -1.0),
        (r"\boxed{\dfrac12}", r"\frac12", 1.0, -1.0),
        (r"\boxed{42}" + " " * 400, 42, 1.0, 1.0),
        ("42", 42, -1.0, -1.0),
        (r"\boxed{42}", None, None, None),
    ],
)
def test_math_dapo(text, truth, loose, strict):
    assert math_dapo([text], [truth]) == [loose]
    assert math_dapo([text], [truth], strict_box_verify=True) == [strict]


def test_math_verify_without_the_library_is_refused_when_built(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        MathVerify()
    assert re.fullmatch(r"it needs the library math-verify: pip install .*\[math\].?", str(caught.value))


@needs_library
@pytest.mark.parametrize(
    ("text", "truth", "right"),
    [
        (r"\boxed{1+x^2}", "x^2+1", 1.0),
        (r"\boxed{\frac{2}{4}}", "0.5", 1.0),
        (r"\boxed{\{2,1\}}", r"\{1,2\}", 1.0),
        (r"\boxed{(2,1)}", "(1,2)", 0.0),
        (r"\boxed{1}\boxed{2\sqrt{2}}", r"\sqrt{8}", 1.0),
        ("Answer:1/2", 0.5, 1.0),
        ("It is $10^{3}$ in all", "1000", 1.0),
        ("So it is 42.\nAnswer: ?", "42", 1.0),
        ("**Final Answer:**\n\\[\n42\n\\]", "42", 1.0),
        (r"\boxed{12 \text{ and } 13}", r"12 \text{ and } 14", 0.0),
        (r"\boxed{12 \text{ and } 13}", r"\{12, 13\}", 1.0),
        (r"\boxed{2.5 \text{ million}}", "2.5", 0.0),
        (r"\boxed{11:30\text{ a.m.}}", r"11:30\text{ p.m.}", 0.0),
        (r"\boxed{-\frac{1}{2}}", "-1/2", 1.0),
        (r"\boxed{42}", "41", 0.0),
        (r"\boxed{}", "41", 0.0),
        ("", "41", 0.0),
        (r"\boxed{__import__('os').system('exit')}", "0", 0.0),
    ],
)
def test_math_verify(text, truth, right):
    assert MathVerify()([text], [truth]) == [right]


@needs_library
def test_math_verify_bounds_time(monkeypatch):
    limit_only(monkeypatch, "9^{9^")
    tower = r"\boxed{9^{9^{9^{9}}}}"
    assert MathVerify(time_limit=1.0)([tower, r"\boxed{3-1}", tower], ["3", "2", "3"]) == [0.0, 1.0, 0.0]


def test_aliases():
    assert dovetail.get("reward", "hendrycks_math") is dovetail.get("reward", "math")
    assert dovetail.get("reward", "prime_math") is dovetail.get("reward", "math_verify")
    assert dovetail.get("reward", "aime") is dovetail.get("reward", "math_dapo")
