"""Graders and readers of tool calls on texts of 100,000 characters that are made to take for ever: none does.

What is bounded is processor time, which a busy machine does not change: a pattern that tries everything twice takes
minutes or years here, one that does not takes milliseconds.
"""

import signal
from contextlib import contextmanager

import pytest

import dovetail
from dovetail_reward._equations import find_equations
from dovetail_reward.reward._outputs import same_json, same_text

LONG = 100_000
SECONDS = 4.0
"""Of processor time for one grader and one text."""


def repeated(*parts: str) -> str:
    text = "".join(parts)
    return text * (LONG // len(text))


def between(head: str, part: str, tail: str) -> str:
    return head + repeated(part) + tail


TEXTS = {
    "spaces": between("1x", " ", "!"),
    "spaces after a fence": between("```", " ", ""),
    "letters after a fence": between("```", "a", ""),
    "fences": repeated("```"),
    "fences in lines": repeated("```\n"),
    "spaces after an answer": between("Answer:", " ", "x"),
    "line breaks after an answer": between("answer:", "\n", "x"),
    "answers": repeated("answer "),
    "answers with colons": repeated("Answer:"),
    "boxes that do not end": repeated(r"\boxed{"),
    "boxes in boxes": r"\boxed{" * 10_000 + "1" + "}" * 10_000,
    "a box of braces": between(r"\boxed{", "{", ""),
    "a box of backslashes": between(r"\boxed{", "\\", "}"),
    "texts that do not end": repeated(r"Answer: \text{"),
    "texts without a line break": between("Answer: ", r"\text{", ""),
    "fractions of nothing": between(r"\boxed{", r"\frac", "}"),
    "fractions of fractions": between("Answer: ", r"\frac1", ""),
    "roots": between("Answer: ", r"\sqrt", ""),
    "dollars": between("Answer: ", "$", ""),
    "letters without a dollar": between("Answer: ", "a", "$"),
    "brackets of mathematics": between("Answer: ", r"\(", r"\)"),
    "displays that do not end": between("Answer: ", r"\[", ""),
    "displays of spaces": between(r"Answer: \[", " ", r"\] x"),
    "asterisks after an answer": between("Answer", "*", "x"),
    "answers that are": repeated("answer is "),
    "remarks": "Answer: 42" + " (since (a" * 90,
    "remarks in remarks": "Answer: 42 (since " + "(a)" * 300 + "(",
    "spaces before a remark": "Answer: 42" + " " * 980 + "(",
    "boxes of spaces": r"\boxed{42" + " " * 990 + "}",
    "units of units": r"\boxed{" + r"5\text{ cm}" * 80 + "x}",
    "words of text": r"\boxed{5\text{" + "and" * 320 + "}}",
    "minus signs of fractions": r"\boxed{\frac{-" + r"\sqrt" * 190 + "}",
    "marks after hashes": between("####", "*", "72"),
    "backslashes after hashes": between("####", r"\boxed{", "72"),
    "hashes without a space": repeated("#"),
    "separators": between("1", "{,}", "111"),
    "groups of digits": between("1", "{,}111", "x"),
    "digits": repeated("9"),
    "digits with commas": between("1", ",111", "1"),
    "digits with periods": repeated("1."),
    "an exponent": between("#### 1e", "9", ""),
    "a large exponent": "#### 1e999999999999 <answer>1e999999999999</answer> \\boxed{1e999999999999}",
    "a small exponent": "#### 1e-999999999 <answer>1e-999999999</answer> \\boxed{1e-999999999}",
    "signs": repeated("-"),
    "signs and digits": repeated("-1"),
    "products": repeated("9*"),
    "equations": repeated("9*9="),
    "brackets": repeated("("),
    "brackets and equations": between("", "(1+", "=2"),
    "crosses and spaces": repeated("1 x  "),
    "hashes": repeated("#### "),
    "reasoning": repeated("<reasoning>"),
    "ends of reasoning": between("<reasoning>a", "</reasoning>", ""),
    "answers in tags": between("<reasoning>a</reasoning>", "<answer>", ""),
    "ends of answers": between("<reasoning>a</reasoning><answer>1", "</answer> ", "x"),
    "thoughts": repeated("<think>"),
    "ends of thoughts": between("<think>", "</think>\n", "<tool_call>\n1\n</tool_call>"),
    "calls": repeated("<tool_call>\n"),
    "calls of nothing": between("<think></think>\n<tool_call>\n", '{"name": "f", "parameters": {}}\n', "</tool_call>"),
    "functions without an end": repeated("<function="),
    "functions": repeated("<function=f>"),
    "parameters without an end": between("<function=f>", "<parameter=", "</function>"),
    "parameters": between("<function=f>", "<parameter=a>", "</function>"),
    "actions": repeated("Action:"),
    "an action of spaces": between("Action: a", " ", "a\nAction Input: 1"),
    "an action of words": between("Action: ", "a ", "\nAction Input: 1"),
    "lines of actions": repeated("Action: a\n"),
    "observations": repeated("Observation:\n"),
    "JSON in JSON": repeated('{"name":'),
    "JSON brackets": repeated("["),
    "a call in Python": between("[f(", "(", ")]"),
    "a name in Python": between("[", "a.", ""),
    "minus signs in Python": between("[f(a=", "-", "1)]"),
    "sums in Python": between("[f(a=1", "+1", ")]"),
    "letters": repeated("a"),
    "words": repeated("the a "),
    "capitals with accents": repeated("İ"),
    "digits of other scripts": repeated("４"),
    "surrogates": repeated("\ud800"),
    "zeros": repeated("\0"),
}


@contextmanager
def bounded(name):
    """Fail where what runs takes more processor time than it may."""

    def late(*_):
        raise AssertionError(f"{name} is still at it after {SECONDS} s of a processor")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def graders():
    """Return the rewards that read a completion and a right answer, with all their ways of doing so."""
    found = {}
    for name in dovetail.names("reward"):
        component = dovetail.get("reward", name)
        if set(component.reads) != {"completions", "answer"} or name in ("math_verify", "geo3k"):  # work elsewhere
            continue
        found[name] = component.bind()
        if "verl_compatible" in component.params:
            found[f"{name}, as verl"] = component.bind(verl_compatible=True)
    return found


GRADERS = graders()
ANSWERS = {"rlla": '<think>so</think>\n<tool_call>\n{"name": "f", "parameters": {"a": 1}}\n</tool_call>'}


@pytest.mark.parametrize("name", GRADERS)
def test_a_grader(name):
    answer = next((given for begin, given in ANSWERS.items() if name.startswith(begin)), "72")
    for text in TEXTS.values():
        with bounded(name):
            GRADERS[name]([text], [answer])


@pytest.mark.slow
def test_graders_that_use_a_library_in_a_process_of_its_own():
    pytest.importorskip("math_verify")
    for name in ("math_verify", "geo3k"):
        reward = dovetail.get("reward", name).bind(time_limit=0.2)
        texts = [TEXTS[each] for each in ("boxes in boxes", "digits", "products", "fractions of fractions", "letters")]
        with bounded(name):
            assert reward(texts, ["72"] * len(texts)) == [0.0] * len(texts)


@pytest.mark.parametrize("name", dovetail.names("tool_format"))
def test_a_tool_format(name):
    parse = dovetail.get("tool_format", name).bind().parse
    for text in TEXTS.values():
        with bounded(name):
            parse(text)


@pytest.mark.parametrize("name", ["boxed", "last_number", "tagged"])
def test_an_answer(name):
    find = dovetail.get("answer", name).bind()
    for text in TEXTS.values():
        with bounded(name):
            find([text])


@pytest.mark.parametrize("name", ["spaces", "crosses and spaces", "equations", "brackets", "digits with commas"])
def test_equations(name):
    with bounded(name):
        list(find_equations(TEXTS[name]))


def test_what_code_is_and_prints():
    from dovetail_reward.reward.code import code_of

    for text in TEXTS.values():
        with bounded("code"):
            code_of(text)
            same_text(text, "72 73")
            same_json(text, [72])
