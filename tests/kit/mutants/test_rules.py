"""What is changed of a piece of code, one place at a time."""

import ast

import pytest

from dovetail_kit.mutants.known import Known
from dovetail_kit.mutants.tree import mutants_of

KNOWN = Known(frozenset({"cap", "share"}), frozenset({"share"}), frozenset({"sort"}))


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("x < y", ["x >= y", "x <= y"]),
        ("x >= y", ["x < y", "x > y"]),
        ("x == y", ["x in y", "x != y"]),
        ("x == 'yes'", ["x in 'yes'", "x != 'yes'"]),
        ("split == 'sft'", ["split != 'sft'"]),
        ("said['role'] == 'user'", ["said['role'] != 'user'"]),
        ("self.sort == 'open'", ["self.sort != 'open'"]),
        ("x - y == z", ["x - y != z", "x + y"]),
        ("len(x) == y", ["len(x) >= y", "len(x) <= y", "len(x) != y", "len(x) - 1 == y"]),
        ("x in known", ["x in [x for _ in known if _ in x]"]),
        ("'a' in known", []),
        ("x is None", ["not x"]),
        ("x is not None", ["x"]),
        ("1 - x", ["1 + x", "1 - (1 - x)", "2"]),
        ("True - x", ["True + x", "False"]),
        ("x[-1]", ["x[0]", "+1", "2"]),
        ("x[0]", ["x[-1]", "1"]),
        ("x.shape[0]", ["1"]),
        ("jnp.where(c, x, 0.0)", ["jnp.where(c | True, x, 0.0)", "1.0"]),
        ("jnp.where(c, x, y)", ["jnp.where(c | True, x, y)", "jnp.where(c & False, x, y)"]),
        ("jnp.where(c)", []),
        ("jnp.where(x > 0, x, 1.0)", []),
        ("jnp.where(x * y > 0, x * y, 1.0)", ["x / y"]),
        ("jnp.abs(x)", ["jnp.positive(x)"]),
        ("abs(x)", ["float(x)"]),
        ("sorted(x)", ["list(x)"]),
        ("x.startswith(y)", ["x.endswith(y)", "x.__contains__(y)"]),
        ("x.strip()", ["x.strip('')"]),
        ("x.lower()", ["x.__str__()"]),
        ("re.fullmatch(p, x)", ["re.match(p, x)"]),
        ("re.match(p, x)", ["re.search(p, x)"]),
        ("min(x, y)", ["min(x, x)", "min(y, y)"]),
        ("max(x, 1)", ["min(x, 1)", "2"]),
        ("max(x, 0)", ["min(x, 0)", "max(x, x)", "1"]),
        ("f(x, mask)", ["f(x, mask | True)"]),
        ("f(x, where=kept)", ["f(x, where=kept | True)"]),
        ("jax.lax.stop_gradient(x)", ["(lambda x: x)(x)"]),
        ("mask.argmax()", ["mask.argmin()", "(mask | True).argmax()"]),
        ("mask * x", ["mask / x", "(mask | True) * x"]),
        ("jnp.floor(x)", ["jnp.ceil(x)"]),
        ("x & y", ["y", "x"]),
        ("x | y", ["y", "x"]),
        ("x and y and z", ["y and z", "x and z", "x and y"]),
        ("x or y", ["y", "x"]),
        ("x**2", ["x ** 1", "3"]),
        ("x // y", ["round(x / y) * y // y"]),
        ("x >= 2", ["x < 2", "x > 2", "x >= 1", "3"]),
        ("x >= 1", ["x < 1", "x > 1", "2"]),
        ("jnp.square(x)", ["(lambda x: x)(x)"]),
        ("len(set(x))", ["list(x)"]),
        ("max(x, key=f)", ["max(x)", "min(x, key=f)"]),
        ("found.end(1)", ["found.end()", "2"]),
        ("found.end(0)", ["1"]),
        ("{'<=': operator.le}", ["operator.lt"]),
        ("not x", ["x"]),
        ("n * x", ["n / x", "(n - 1) * x"]),
        ("len(x) > y", ["len(x) <= y", "len(x) >= y", "len(x) - 1 > y"]),
        ("range(each.size)", ["range(each.size - 1)"]),
        ("f(each.size)", []),
        ("n - 1", ["n + 1", "2"]),
        (
            "jnp.maximum(jnp.sum(mask), y)",
            [
                "jnp.maximum(jnp.sum(mask) - 1, y)",
                "jnp.maximum(jnp.sum(mask), jnp.sum(mask))",
                "jnp.maximum(y, y)",
                "jnp.mean(mask)",
                "jnp.sum(mask | True)",
            ],
        ),
        ("share * x", ["share / x", "(1 - share) * x"]),
        ("f(self.share)", ["f(1 - self.share)"]),
        ("1 - share", ["1 + share", "1 - (1 - share)", "2"]),
        (
            "jnp.minimum(x, cap)",
            ["jnp.minimum(jnp.maximum(x, 1 / cap), cap)", "jnp.minimum(x, x)", "jnp.minimum(cap, cap)"],
        ),
        ("jnp.minimum(x, y)", ["jnp.minimum(x, x)", "jnp.minimum(y, y)"]),
        ("jnp.clip(x, -cap, cap)", ["jnp.clip(x, None, cap)", "jnp.clip(x, -cap, None)", "+cap"]),
        ("jnp.clip(x, 0, cap)", ["jnp.clip(x, 0, None)", "1"]),
    ],
)
def test_what_is_changed_of_an_expression(code, changed):
    check(f"it = {code}", changed)


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("seen.add(x)", ["seen.add"]),
        ("self.mean = x", ["self.mean = self.mean"]),
        ("kept[key] = kept[other]", ["kept[key] = kept[key]"]),
        ("self.mean = self.mean", []),
        ("for x in y:\n    f = x\n    break", ["pass"]),
        ("PATTERN = re.compile('a+')", ["re.compile('a')"]),
    ],
)
def test_what_is_changed_of_a_statement(code, changed):
    check(code, changed)


def check(code, changed):
    tree = ast.parse(code)
    before = ast.dump(tree, include_attributes=True)
    mutants = list(mutants_of(tree, code.splitlines(), KNOWN))
    assert [each.after for each in mutants] == changed
    for mutant in mutants:
        mutant.make()
        compile(tree, "<mutant>", "exec")
        assert ast.dump(tree) != ast.dump(ast.parse(code))
        mutant.undo()
    assert ast.dump(tree, include_attributes=True) == before
