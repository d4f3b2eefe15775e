"""Where a change is, and what stands around it, is told."""

import ast

import pytest

from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.tree import mutants_of


@pytest.mark.parametrize(
    ("lines", "around"),
    [
        ("    return (x < 0) | (x > 0)", ["x < 0", "x > 0"]),
        ("    return x[:, 0] + x[0:-1]", ["x[:, 0]", "x[0:-1]", "x[0:-1]"]),
        ("    π = f(x, far=2); return π - 1", ["f(x, far=2)", "π - 1"]),
        ("    return folder / 'a' / f'{x}'", []),
    ],
)
def test_equal_numbers_of_a_line_are_told_apart(lines, around):
    source = f"def f(x):\n{lines}\n"
    numbers = [each for each in mutants_of(ast.parse(source), source.splitlines(), Known()) if each.before.isdigit()]
    assert [each.within for each in numbers] == around
    assert [lines[each.column - 1] for each in numbers] == [each.before for each in numbers]
