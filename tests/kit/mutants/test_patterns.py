"""What is changed of regular expressions."""

import ast

import pytest

from dovetail_kit.mutants.patterns import is_pattern, other_patterns


@pytest.mark.parametrize(
    ("pattern", "others"),
    [
        (r"^\bx(?!\w)[^a]$", [r"\bx(?!\w)[^a]$", r"^x(?!\w)[^a]$", r"^\bx[^a]$", r"^\bx(?!\w)[^a]"]),
        (r"-?\d+(\.\d*)?", [r"-\d+(\.\d*)?", r"-?\d(\.\d*)?", r"-?\d+(\.\d+)?", r"-?\d+(\.\d*)"]),
        (r"[a?+]+(?:b)(?P<c>d)", [r"[a?+](?:b)(?P<c>d)"]),
        (r"a\s*b.*?c *\?", []),
    ],
)
def test_boundaries_and_repetitions_are_left_out(pattern, others):
    found = changed(f"re.findall({pattern!r}, x)")
    assert [ast.unparse(each) for each in found] == [f"re.findall({other!r}, x)" for other in others]


def test_parts_of_a_pattern_with_values_are_changed():
    assert [ast.unparse(each) for each in changed("re.match(rf'a+{re.escape(b)}c?', x)")] == [
        "re.match(f'a{re.escape(b)}c?', x)",
        "re.match(f'a+{re.escape(b)}c', x)",
    ]


@pytest.mark.parametrize("flags", ["re.I | re.M", "flags=re.DOTALL"])
def test_flags_are_left_out(flags):
    assert [ast.unparse(each) for each in changed(f"re.compile('a', {flags})")] == ["re.compile('a')"]


def test_other_calls_have_no_pattern():
    assert not any(is_pattern(ast.parse(code, mode="eval").body) for code in ("f('a+')", "x.sub('a+', y)", "re.sub(p)"))


def changed(code):
    node = ast.parse(code, mode="eval").body
    assert isinstance(node, ast.Call)
    assert is_pattern(node)
    for owner, field, new in other_patterns(node):
        before = getattr(owner, field)
        setattr(owner, field, new)
        yield ast.parse(ast.unparse(node), mode="eval").body
        setattr(owner, field, before)
