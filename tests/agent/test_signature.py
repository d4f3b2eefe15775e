"""A tool's signature determines the schema that the model reads and the check of its arguments."""

import math
from typing import Any, Literal

import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, PluginError
from dovetail.protocols import Call, Tool
from dovetail_agent.signature import arguments, called, schema


def search(query: str, limit: int | None, sort: Literal["new", "old"], tags: list[str], *, corpus: str = "") -> str:
    """Search a corpus.

    More that nobody reads.

    Args:
        query: words to look for,
            in any order.
        limit: how many results.
        corpus: not the model's business.
    """
    return query


def tool(function):
    return Tool(name=function.__name__, function=function, target=function)


def test_the_schema_has_the_positional_parameters_and_what_the_docstring_says_of_them():
    assert schema(tool(search)) == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search a corpus.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "words to look for, in any order."},
                    "limit": {"type": "integer", "description": "how many results."},
                    "sort": {"type": "string", "enum": ["new", "old"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["query", "sort", "tags"],
            },
        },
    }


def test_arguments_stand_in_the_order_of_the_parameters_and_optional_ones_may_be_missing():
    found = arguments(tool(search), {"tags": ["a"], "sort": "new", "query": "x"})
    assert found == ["x", None, "new", ["a"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"query": "x", "sort": "best", "tags": []}, "the argument 'sort' of search: expected"),
        ({"query": "x", "sort": "new", "tags": [1]}, "the argument 'tags' of search: expected"),
        ({"query": "x", "sort": "new", "tags": [], "corpus": "/etc"}, "search has no argument 'corpus'"),
        ({"query": "x", "sort": "new", "tags": [], "limit": True}, "the argument 'limit' of search: expected"),
        ({"sort": "new", "tags": []}, "search needs the argument 'query'"),
    ],
)
def test_other_arguments_are_refused_in_words_for_the_model(given, message):
    with pytest.raises(ValueError, match=message):
        arguments(tool(search), given)


@pytest.mark.parametrize("written", [math.nan, math.inf, -math.inf])
def test_no_tool_is_given_what_is_not_a_finite_number(written):
    def weigh(share: float, more: dict) -> str:
        """Weigh."""
        return f"{share} {more}"

    for given in ({"share": written, "more": {}}, {"share": 0.5, "more": {"of": [1.0, written]}}):
        with pytest.raises(ValueError, match=rf"the argument '\w+' of weigh: {written} is not a finite number"):
            called(tool(weigh), Call("weigh", given))
    served = Tool(name="weigh", function=weigh, target=weigh, schema={"parameters": {"properties": {"share": {}}}})
    with pytest.raises(ValueError, match=f"the argument 'share' of weigh: {written} is not a finite number"):
        called(served, Call("weigh", {"share": written}))


def test_a_parameter_without_a_type_that_json_has_is_refused():
    def bare(query) -> str:
        """Do."""

    def odd(query: Any) -> str:
        """Do."""

    with pytest.raises(ConfigError, match="tool bare: its parameter 'query' has no annotation"):
        schema(tool(bare))
    with pytest.raises(ConfigError, match="tool odd: its parameter 'query' is annotated typing.Any, which a model"):
        schema(tool(odd))


def test_defaults_that_neither_a_config_nor_a_model_can_write_are_refused():
    def unspelt(query: str, *, corpus: object = object()) -> str:
        """Do."""

    def given(query: str, limit: int = 3) -> str:
        """Do."""

    dovetail.register("tool", "unspelt", unspelt)
    with pytest.raises(ConfigError, match=r"default of tool.unspelt.corpus .* <object object .*> is not a gin value"):
        load(None, ["train.agent_loop=tool_agent", "train.tools=['unspelt']"])
    with pytest.raises(
        PluginError, match=r"'limit' a default; .* in a tool annotate what a model may leave out with '\| "
    ):
        dovetail.register("tool", "given", given)
