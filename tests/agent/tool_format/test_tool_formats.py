"""Formats of calls: what each model family writes, calls that are cut off, and round trips."""

import pytest

import dovetail
from dovetail.protocols import Call, Parsed, Tool
from dovetail_agent.record import identity
from dovetail_agent.runner import Runner

FORMATS = {name: dovetail.get("tool_format", name).bind() for name in dovetail.names("tool_format")}
CALLS = (
    Call("add", {"a": 1, "b": -2}),
    Call("search", {"query": 'towns by "the sea"\n é', "limit": None}),
    Call("now", {}),
)


def add(a: int, b: float | None, why: str | None) -> str:
    """Add."""
    return f"{a!r} {b!r} {why!r}"


RUN = Runner((Tool(name="add", function=add, target=add),), 1000)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_call_is_read_as_it_is_written(name, call):
    (found,) = FORMATS[name].parse(FORMATS[name].write(call)).calls
    assert found.name == call.name
    if not found.texts:
        assert found.arguments == call.arguments


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_with_its_types_arrives(name):
    format_ = FORMATS[name]
    (found,) = format_.parse(format_.write(Call("add", {"a": 3, "b": 0.5, "why": "3"}))).calls
    assert RUN(found, None).text == "3 0.5 '3'"
    (wrong,) = format_.parse(format_.write(Call("add", {"a": "three"}))).calls
    assert RUN(wrong, None).text.startswith("error: the argument 'a' of add: expected int, got 'three'")
    (unknown,) = format_.parse(format_.write(Call("ad", {}))).calls
    assert RUN(unknown, None).text == "error: there is no tool 'ad'. Did you mean 'add'? Tools: add"


@pytest.mark.parametrize("name", FORMATS)
def test_wherever_a_call_is_cut_it_is_an_error_or_nothing_and_never_another_call(name):
    """In line formats an action without input is a call without arguments, and so is an action cut off at that point."""
    whole = FORMATS[name].write(Call("add", {"a": 12, "b": 3}))
    said = [FORMATS[name].parse(whole[:end]) for end in range(len(whole))]
    called = [call for found in said for call in found.calls if found != FORMATS[name].parse(whole)]
    assert all(name == "react" and call == Call("add", {}, texts=True) for call in called)
    assert any(found.error for found in said)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "react"])
@pytest.mark.parametrize("text", ["", "It is 3.", "[1, 2]", '{"answer": 3}', "```\nx = 1\n```", "a < b > c"])
def test_other_text_calls_nothing(name, text):
    assert FORMATS[name].parse(text) == Parsed()


CASES = {
    "hermes": [
        ('<tool_call>\n{"name": "add", "arguments": "{\\"a\\": 1}"}\n</tool_call>', {"a": 1}),
        ("<tool_call>{", "the call does not end with </tool_call>"),
    ],
    "llama3_json": [
        ('<|python_tag|>{"name": "add", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "add", "arguments": {"a": 1}}; {"name": "now", "parameters": {}}', {"a": 1}),
        ('{"name": "add", "parameters": {"a": 1}', "the call is not valid JSON: Expecting ',' delimiter"),
        ('{"name": "add", "parameters": [1]}', 'a call is a JSON object {"name": "...", "parameters": {...}}'),
        ('{"name": "add", "parameters": {}} I think', "the call is not valid JSON: Expecting value"),
        ('{"name": "add", "parameters": {}}\n\n42 is it', 'a call is a JSON object {"name": "...", "parameters"'),
        ('{"name": "add", "parameters": ' + "[" * 100_000, "the call is not valid JSON"),
    ],
    "pythonic": [
        ("```tool_code\n[add(a=1)]\n```", {"a": 1}),
        ("[add(a=1), now()]", {"a": 1}),
        ("[add(1)]", "arguments are written by name: add(argument=value)"),
        ("[add(a=1 + 1)]", "the argument 'a' is not a literal that JSON has: 1 + 1"),
        ("[add(a=1), 3]", "not a call: 3; calls are [name(argument=value), ...]"),
        ("[add(a=__import__('os'))]", "the argument 'a' is not a literal that JSON has: __import__('os')"),
        ("[add(a=" + "(" * 1000, "the calls are not valid Python: [add(a=((("),
        ("[add(a=" + "+".join(["1"] * 900) + ")]", "the argument 'a' is not a literal that JSON has: 1+1+1"),
        ("[add(a={1, 2})]", "the argument 'a' is not a literal that JSON has: {1, 2}"),
        ("[add(a=0x" + "f" * 4000 + ")]", "the argument 'a' is not a literal that JSON has: 0xfff"),
        ("[add(" + "a." * 900 + "b(x=1)=2)]", "the calls are not valid Python"),
        ("[" + "a." * 900 + "b(1)]", "arguments are written by name: a.a.a"),
        ('[add(a={1: (2, "b"), "c": None})]', {"a": {"1": [2, "b"], "c": None}}),
    ],
    "react": [
        ("Thought: x\nAction: add\nAction Input: {\"a\": 1}\nObservation:", {"a": 1}),
        ("Action: add\nAction Input: 1", {"": "1"}),
        ("I think.", "write either 'Action: ...' with 'Action Input: ...', or 'Final Answer: ...'"),
        ("Action: add\nAction Input: 1\nObservation: 3\nFinal Answer: 3", "you have written an observation yourself"),
        ("Action: add\nFinal Answer: 3", "write either 'Action: ...' with 'Action Input: ...', or 'Final Answer: ...', "
         "and not both"),
        ("Action: add", "an action is a line 'Action: NAME' and a line 'Action Input: ...'"),
        ('Action: add\nAction Input: {"a": ', "the call is not valid JSON: Expecting value"),
    ],
    "xml": [
        ("Let me.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", {"a": "1"}),
        ("<function=add>\n<parameter=a>\n1\n2\n</parameter></function>", {"a": "1\n2"}),
        ("<tool_call>\n<function=add>\n<parameter=a>\n1", "the call does not end with </function>"),
        ("<function=add><parameter=a>1</function>", "the parameter 'a' does not end with </parameter>"),
        ('<tool_call>{"name": "add"}</tool_call>', "a call is <tool_call><function=NAME><parameter=NAME>value"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "wanted"), [(n, *case) for n, cases in CASES.items() for case in cases])
def test_what_models_write(name, text, wanted):
    found = FORMATS[name].parse(text)
    if isinstance(wanted, str):
        assert found.error.startswith(wanted)
        assert not found.calls
    else:
        assert found.error is None
        assert (found.calls[0].name, found.calls[0].arguments) == ("add", wanted)


PIECES = (
    "1+" * 400,
    "a." * 400,
    "-" * 400,
    "not " * 400,
    "(" * 90,
    "{1:2,'a':3}",
    "\ud800",
    "1e999",
    "42",
    "null",
    "\0",
)


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_that_a_policy_repeats_or_adds_is_an_exception(name):
    """A resumed run samples the same text again, so that it could never get past it."""
    written = FORMATS[name].write(Call("add", {"a": 1}))
    for piece in PIECES:
        for text in (written + piece, f"{written}\n{piece}", piece + written, written.replace("1", piece), piece):
            for call in FORMATS[name].parse(text).calls:
                assert len(identity("turn", 0, call, None)) == 32


def test_every_format_has_cases():
    assert CASES.keys() == FORMATS.keys()


def test_an_argument_without_a_name_is_that_of_the_only_parameter():
    (call,) = FORMATS["react"].parse("Action: add\nAction Input: 7").calls
    assert RUN(call, None).text == "7 None None", "the others may be left out"

    def both(a: int, b: int) -> int:
        return a + b

    run = Runner((Tool(name="add", function=both, target=both),), 1000)
    assert run(call, None).text == "error: add has 2 arguments, so write their names: a, b"
