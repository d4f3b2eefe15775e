"""What other variable is put in the place of one."""

import ast

import pytest

from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.names import partners_of
from dovetail_kit.mutants.tree import mutants_of, together


@pytest.mark.parametrize(
    ("code", "others"),
    [
        ("def f(x, y): return x + y", {"x": ("y",), "y": ("x",)}),
        ("def f(x):\n y = 2 * x\n return x * y", {"x": ("y",), "y": ("x",)}),
        ("def f(x):\n return g(x)\n y = 1", {}),
        ("def f(x):\n y = float(x)\n return y", {}),
        ("def f(x):\n y = jnp.asarray(x)\n return y", {}),
        ("def f(x, mask): return x, mask", {}),
        ("def f(mask):\n low = x < 1\n return low", {"low": ("mask",)}),
        ("def f(x, *, a: float, b: float): return a * x", {"a": ("b",)}),
        ("def f(x, *, a: float, b: int): return a * x", {}),
        ("def f(self, x): return self.low * x", {"self.low": ("high",)}),
        ("def f(self, x): return self.count * x", {}),
        ("def f(s): return s['m'] + s['v'] / t['w']", {"s['m']": ("v",), "s['v']": ("m",)}),
        ("def f(x, y): return x.shape, jnp.zeros_like(x), indicator(True, x), indicator(True, like=x)", {}),
        ("def f(x, y): return (x and x is None and not x) or (1 if x else 2)", {}),
        ("def f(x, _): return x", {}),
        ("def f(x):\n seen = []\n seen.append(x)", {"seen": ("x",)}),
        ("def f(x):\n a = 1\n b = 2\n c = 3\n d = 4\n return x", {"x": ("d", "c", "b", "a")}),
        ("def f(x, y, z, u, v): return x", {"x": ("y", "z", "u", "v")}),
        ("def f(x, y): return y(2)", {}),
    ],
)
def test_what_is_of_the_same_sort_and_was_there_before(code, others):
    function = ast.parse(code).body[0]
    assert isinstance(function, ast.FunctionDef)
    fields = {"low": "float", "high": "Annotated[float, Gt(0)]", "count": "int"}
    found = partners_of(function, fields)
    assert {ast.unparse(node): partners for node, partners in found.items()} == others


@pytest.mark.parametrize(
    ("made", "counted", "others"),
    [
        ("[2 * i for i in x]", "len(y)", False),
        ("[2 * i for i in x]", "sum(y)", True),
        ("[i for i in x if i]", "len(y)", True),
        ("[i + j for i in x for j in x]", "len(y)", True),
        ("g(x)", "len(y)", True),
    ],
)
def test_a_list_is_as_long_as_what_it_has_an_item_for_each_of(made, counted, others):
    function = ast.parse(f"def f(x):\n y = {made}\n return {counted}").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = {ast.unparse(node): partners for node, partners in partners_of(function, {}).items()}
    assert ("x" in found.get("y", ())) == others


def test_the_others_of_a_variable_are_told_together():
    code = "def f(x, y, z): return x"
    mutants = list(mutants_of(ast.parse(code), [code], Known()))
    assert [each.after for each in mutants] == ["y", "z"]
    assert [str(each) for each in together(mutants)] == ["1:24: x  as  y or z"]


def test_conditions_that_are_left_out_are_told_apart():
    code = "def f(x, y): return x and y"
    mutants = list(mutants_of(ast.parse(code), [code], Known()))
    told = [str(each) for each in together(mutants) if each.before == "x and y"]
    assert told == ["1:21: x and y  as  y", "1:21: x and y  as  x"]


def test_the_fields_of_a_class_are_those_of_its_methods():
    code = "class C:\n low: float\n high: float\n def f(self): return self.low"
    mutants = mutants_of(ast.parse(code), code.splitlines(), Known())
    assert [each.after for each in mutants] == ["self.high"]
