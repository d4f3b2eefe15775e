"""How instruct models end a completion, and which rewards and extractors of answers find it right: judged by hand.

Each row has an ending, the right answer, and what finds the one in the other. `strict` and `flexible` are the methods of
`gsm8k`. Nothing may find a wrong answer right, but for a number at the end, which is all that `flexible` and `last` look
at, and Minerva's rule of the last side of an equation. A right answer may be missed: `math` reads boxes alone, `math_verify`
prefers a box in the reasoning and takes some units for variables, and `boxed` keeps units.
"""

from __future__ import annotations

import importlib.util

import pytest

import dovetail
from dovetail_reward.answer._vote import vote

ENDINGS = [
    ("**Final Answer:**\n\\[\n\\boxed{42}\n\\]", "42", "flexible math dapo verify last boxed"),
    ("Answer:\n\\[\n\\boxed{42}\n\\]", "42", "flexible math dapo verify last boxed"),
    ("**Answer:**\n\n$$\n\\boxed{42}\n$$", "42", "flexible math dapo verify last boxed"),
    ("**Final Answer:**\n\\[\n42\n\\]", "42", "flexible dapo verify last"),
    ("**Answer**: 42", "42", "flexible dapo verify last"),
    ("**Answer: 42**", "42", "flexible dapo verify last"),
    ("Answer: \\[42\\]", "42", "flexible dapo verify last"),
    ("Answer: `42`", "42", "flexible dapo verify last"),
    ("Answer:\n```\n42\n```", "42", "flexible dapo verify last"),
    ("Answer: 42 (since 6 * 7 = 42)", "42", "flexible dapo verify last"),
    ("Answer: 42 (mod 7)", "42", ""),
    ("### Answer:\n\n**42**", "42", "flexible dapo verify last"),
    ("Final Answer: The final answer is $42$. I hope it is correct.", "42", "flexible dapo verify last"),
    ("Final Answer: The final answer is 42. I hope it is correct.", "42", "flexible dapo verify last"),
    ("The answer is: 42.", "42", "flexible dapo verify last"),
    ("The answer is: $42.", "42", "flexible dapo verify last"),
    ("So the answer is 42.", "42", "flexible verify last"),
    ("Answer：42。", "42", "flexible dapo verify last"),
    ("<think>Answer: 41? No.</think>\n\nThe answer is \\boxed{42}.", "42", "flexible math dapo verify last boxed"),
    ("<think>It is \\boxed{41}.</think>\n\n**Answer:** 42", "42", "flexible dapo last"),
    ("Answer: \\boxed{41}\n\nWait, that is wrong. Answer: \\boxed{42}", "42", "flexible math dapo verify last boxed"),
    ("Therefore, the total is $\\boxed{42}$ dollars.", "42", "flexible math dapo verify last boxed"),
    ("\\boxed{\\$42}", "42", "flexible math dapo verify last boxed"),
    ("\\boxed{\\$1{,}234.50}", "1234.5", "flexible math dapo verify last boxed"),
    ("\\boxed{1\\,234}", "1234", "flexible math dapo verify last boxed"),
    ("\\boxed{1,\\!234}", "1234", "flexible math dapo verify last boxed"),
    ("\\boxed{**42**}", "42", "flexible math dapo verify last boxed"),
    ("\\boxed{42.}", "42", "flexible math dapo verify last boxed"),
    ("\\boxed{42\\%}", "42", "flexible math dapo verify last boxed"),
    ("\\boxed{42^\\circ}", "42", "flexible math dapo verify last"),
    ("\\boxed{42°}", "42", "flexible math dapo verify last"),
    ("\\boxed{42 \\text{ cm}}", "42", "flexible math dapo verify last"),
    ("\\boxed{42\\ \\mathrm{m/s}^2}", "42", "math dapo verify"),
    ("\\boxed{42~\\text{m}^{2}}", "42", "math dapo verify"),
    ("\\boxed{\\text{42 apples}}", "42", "flexible last"),
    ("\\boxed{€42}", "42", "flexible math dapo verify last"),
    ("\\boxed{42 \\text{ million}}", "42", "flexible last"),
    ("\\boxed{42 \\text{ and } 43}", "42", ""),
    ("\\boxed{42 \\text{ and } 43}", "42, 43", "dapo verify"),
    ("\\boxed{42 \\text{ if } x > 0}", "42", ""),
    ("\\boxed{11:30 \\text{ a.m.}}", "11:30 p.m.", ""),
    ("\\boxed{11:30 \\text{ a.m.}}", "11:30 \\text{ a.m.}", "math dapo verify boxed"),
    ("\\boxed{\\dfrac{1}{2}}", "\\frac{1}{2}", "math dapo verify"),
    ("\\boxed{-\\frac{1}{2}}", "-1/2", "math dapo verify"),
    ("\\boxed{\\frac{-\\sqrt{3}}{2}}", "-\\frac{\\sqrt{3}}{2}", "math dapo verify"),
    ("\\boxed{-0.5}", "-\\frac{1}{2}", "math dapo verify"),
    ("\\boxed{3\\frac{1}{2}}", "3 1/2", "math dapo verify"),
    ("\\boxed{3 1/2}", "31/2", ""),
    ("\\boxed{[0, 1)}", "[0,1)", "math dapo verify"),
    ("\\boxed{[0, 1)}", "[0,1]", ""),
    ("\\boxed{x \\in [0,1)}", "[0,1)", "verify"),
    ("\\boxed{\\{1, 2\\}}", "\\{1,2\\}", "math dapo verify"),
    ("\\boxed{\\{1, 2\\}}", "\\{2,1\\}", "verify"),
    ("\\boxed{±3}", "\\pm 3", "math dapo verify"),
    ("\\boxed{\\pm 3}", "3", "flexible last"),
    ("\\boxed{2π}", "2\\pi", "math dapo verify"),
    ("\\boxed{\\text{(A)}}", "A", "math dapo verify"),
    ("\\boxed{\\textbf{(A)}}", "B", ""),
    ("\\boxed{42}\n\\boxed{43}", "42", ""),
    ("Answer: $x = 42$ or $x = 43$", "42", ""),
    ("Answer: x = 42, x = 43", "43", "flexible last"),
    ("Answer: x = 42, x = 43", "x = 42, x = 43", "dapo verify"),
    ("Answer: $42$ and $43$", "42", ""),
    ("Answer: 42 and 43", "4243", ""),
    ("Answer: 42 dollars", "42", "flexible dapo last"),
    ("Answer: 42 apples", "42", "flexible verify last"),
    ("#### 42", "42", "strict flexible last"),
    ("#### 42 ####", "42", "strict flexible last"),
    ("#### 42\n####", "42", "strict flexible last"),
    ("#### 42\n\n#### End of solution", "42", "strict flexible last"),
    ("#### **42**", "42", "strict flexible last"),
    ("#### \\$42", "42", "strict flexible last"),
    ("#### \\boxed{42}", "42", "strict flexible math dapo verify last boxed"),
    ("#### $\\boxed{42}$", "42", "strict flexible math dapo verify last boxed"),
    ("#### €42", "42", "strict flexible last"),
    ("#### 42 apples", "42", "strict flexible last"),
    ("#### 42/2", "42", ""),
    ("#### 42:30", "42", ""),
    ("#### 42 1/2", "42", ""),
    ("#### 42%", "42", "strict flexible last"),
    ("#### 1{,}234", "1234", "strict flexible last"),
    ("#### -42", "42", ""),
    ("#### 42,5", "42", ""),
    ("The answer is: 42.\n<|im_end|>", "42", "flexible dapo verify last"),
]
REWARDS = {
    "strict": ("gsm8k", {}),
    "flexible": ("gsm8k", {"method": "flexible"}),
    "math": ("math", {}),
    "dapo": ("math_dapo", {}),
    "verify": ("math_verify", {}),
}
EXTRACTORS = {"last": "last_number", "boxed": "boxed"}


@pytest.mark.parametrize("name", REWARDS)
def test_a_reward(name: str) -> None:
    component, params = REWARDS[name]
    if name == "verify" and importlib.util.find_spec("math_verify") is None:
        pytest.skip("math-verify is not installed")
    rows = [row for row in ENDINGS if name != "verify" or not row[0].startswith("####")]
    reward = dovetail.get("reward", component).bind(**params)
    scores = reward([text for text, _, _ in rows], [truth for _, truth, _ in rows])
    assert [row for row, score in zip(rows, scores, strict=True) if (score == 1.0) != (name in row[2].split())] == []


@pytest.mark.parametrize("name", EXTRACTORS)
def test_an_extractor_of_answers(name: str) -> None:
    found = dovetail.get("answer", EXTRACTORS[name])([text for text, _, _ in ENDINGS])
    right = [answer is not None and answer == vote(row[1]) for row, answer in zip(ENDINGS, found, strict=True)]
    assert [row for row, same in zip(ENDINGS, right, strict=True) if same != (name in row[2].split())] == []
