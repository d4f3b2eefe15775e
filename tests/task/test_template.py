import pytest

from dovetail.errors import ConfigError
from dovetail_task._template import check_template


def check(template):
    check_template(template, ["question", "hint"], "task.x.template", must="question")


@pytest.mark.parametrize("template", ["{question}", "{{{question}}}", "{hint}: {question} {question}\n"])
def test_names_of_columns_and_doubled_braces_are_fine(template):
    check(template)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{qestion}",
            r"task\.x\.template: unknown placeholder \{qestion\}\. Did you mean 'question'\? Columns: hint, question",
        ),
        ("{hint}", r"lacks the placeholder \{question\}"),
        ("{question", r"'\{question': expected '\}' before end of string; write \{\{ or \}\} for a brace"),
        ("{question} }", r"Single '\}' encountered"),
        ("{}", r"placeholder \{\} is more than the name of a column"),
        ("{question.__class__}", r"placeholder \{question\.__class__\} is more than"),
        ("{question[0]}", r"placeholder \{question\[0\]\} is more than"),
        ("{question!r}", r"placeholder \{question!r\} is more than"),
        ('{"json": {question}}', r'placeholder \{"json": \{question\}\} is more than the name of a column'),
    ],
)
def test_anything_else_is_explained(template, message):
    with pytest.raises(ConfigError, match=message) as raised:
        check(template)
    assert "\n" not in str(raised.value)
