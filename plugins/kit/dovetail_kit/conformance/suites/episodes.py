"""Claims about tools, formats of their calls, and interactions."""

from __future__ import annotations

import builtins
import contextlib
import copy
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError, listing
from dovetail.kinds.data import ASSISTANT
from dovetail.protocols import Call, Parsed, Result, Step, Tool, Turn
from dovetail.ranges import plain
from dovetail.registry import Component, current
from dovetail_agent.signature import arguments, schema
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject

CALLS = (
    Call("search", {"query": 'two "quoted" words\nin lines, é', "limit": 3}),
    Call("now", {}),
    Call("set_up", {"on": True, "share": 0.25, "note": None}),
    Call("draw", {"points": [1, 2, 3], "style": {"color": "red", "dash": {"on": [2, 1]}}, "last": [{"x": 1}]}),
)
TEXTS = ("", "1", "It is 3.", "7 or 8?", "left", "\x00", "x" * 10_000, "\N{SNOWMAN}", '{"name": 1}', "[]", "<a>")
MARK = "dovetail_has_run_it"
TURNS = 12
MADE_UP: Final = (int, str, lambda number: [number, number + 1])
"""What a column may hold, as a function of a number."""
WHICH: Final = re.compile(r"\b(first|last) (?:number|integer)\b", re.IGNORECASE)
NUMBERS: Final = ("3", "8", "12", "25", "345", "678", "1234", "9876", "12345", "67890")
"""Of one to five digits, two of each."""
BEYOND: Final = "9876543210"
SMALL: Final = ("1", "2", "3")
EPISODES: Final = 8
REGRET: Final = {"regret", "cumulative_regret", "total_regret", "mean_regret"}
STEADY: Final = ("sky", "1 + 2", "3")
"""Texts that arguments may hold."""
ANSWERS: Final = (str, int, float, list, dict, Result)
"""What a tool may return; a bool is an int."""


@check(
    "tool_format",
    fix="Escape in `write` what `parse` would take for the end of a value, and keep the order; write what is not a text"
    " as JSON: true, null, [1, 2].",
)
def reads_what_it_writes(subject: Subject) -> None:
    """A call that is written and parsed again is the same call: its name, its arguments and their values.

    It writes the calls in demonstrations, which would otherwise teach calls with a different meaning. Where a format
    gives all values as texts, those that are not texts are read as JSON.
    """
    format_ = subject.bind()
    for call in CALLS:
        found = format_.parse(format_.write(call))
        if found.error is not None or len(found.calls) != 1:
            raise Failed(f"{call} is written as {format_.write(call)!r} and read as {found}")
        (read,) = found.calls
        values = {name: _meant(value, call.arguments.get(name), read.texts) for name, value in read.arguments.items()}
        if read.name != call.name or values != call.arguments:
            raise Failed(f"{call} is written as {format_.write(call)!r} and read as {read}")


def _meant(value: Any, wanted: Any, texts: bool) -> Any:
    """Return a value as it is read, from JSON where a format gives texts and something else was written."""
    if not texts or isinstance(wanted, str):
        return value
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        raise Failed(f"wrote {wanted!r} as {value!r}; a value that is not a text is written as JSON") from None


@check("tool_format", fix="Return Parsed(error=...) for what cannot be read; the policy reads it.")
def reads_anything(subject: Subject) -> None:
    """Any text is parsed without raising: as calls, or as an error, but never as both.

    A policy writes incomplete calls and all kinds of nonsense; none of these may end a run.
    """
    format_ = subject.bind()
    for text in (*TEXTS, *_broken(format_)):
        try:
            found = format_.parse(text)
        except Exception as error:
            raise Failed(f"{text[:80]!r} raises {type(error).__name__}: {error}") from error
        if not isinstance(found, Parsed) or (found.calls and found.error is not None):
            raise Failed(f"{text[:80]!r} is read as {found!r}")


@check("tool_format", fix="Find all of the calls; return Parsed(error=...) where only one is allowed.")
def reads_all_calls(subject: Subject) -> None:
    """Two calls in a turn are read as two, in the order written, or as an error, and never as one of them.

    A call that is dropped without a word looks to the policy like a tool that does not answer.
    """
    format_ = subject.bind()
    for first, second in ((CALLS[0], CALLS[2]), (CALLS[2], CALLS[1])):
        text = f"{format_.write(first)}\n{format_.write(second)}"
        found = format_.parse(text)
        names = [call.name for call in found.calls]
        if found.error is None and len(names) == 1:
            raise Failed(f"{text[:200]!r} is read as a single call, of {names[0]}")
        if len(names) == 2 and names != [first.name, second.name]:
            raise Failed(f"{text[:200]!r} is read as calls of {names[0]} and {names[1]}, in this order")


@check("tool_format", fix="Return Parsed(error=...) where a call begins that cannot be read; do not pass over it.")
def tells_of_a_broken_call(subject: Subject) -> None:
    """Of the ways to cut a written call short, one at least is read as an error.

    A call that is passed over ends the turn: the policy is not told what was wrong, and waits for no answer.
    """
    format_ = subject.bind()
    whole = format_.write(CALLS[0])
    if all(format_.parse(whole[:end]).error is None for end in range(1, len(whole))):
        raise Failed(f"no beginning of {whole!r} is read as an error")


@check("tool_format", fix="Read values with json.loads or ast.literal_eval, which run nothing; never with eval.")
def runs_nothing(subject: Subject) -> None:
    """A call whose arguments are code is read, not run.

    What the policy writes is not trusted: it may read the answers, or end the process.
    """
    format_ = subject.bind()
    text = format_.write(Call("add", {"a": "VALUE"}))
    code = f"__import__('builtins').__dict__.setdefault('{MARK}', 1)"
    for written in (text.replace('"VALUE"', code), text.replace("'VALUE'", code), text.replace("VALUE", code)):
        format_.parse(written)
        if hasattr(builtins, MARK):
            delattr(builtins, MARK)
            raise Failed(f"parsing {written!r} runs the code in it")


@check("tool_format", fix="Use the hyperparameter in `write` and in `parse`, or take it out.")
def every_text_counts(subject: Subject) -> None:
    """Another text as a hyperparameter changes how a call is written.

    A marker that is written into the code looks like a setting, and none of its values changes anything.
    """
    for name, value in subject.params.items():
        if isinstance(value, str) and plain(subject.component.hints[name]) is str:
            written = [subject.bind(**{name: text}).write(CALLS[0]) for text in (value, f"{value}_or")]
            if written[0] == written[1]:
                raise Failed(f"'{name}' = {value!r} can be changed to '{value}_or' unseen")


def _broken(format_: Any) -> Iterator[str]:
    """Yield written calls that are cut at every place, doubled, nested, or continued with brackets."""
    for call in CALLS:
        whole = format_.write(call)
        yield from (whole[:end] for end in range(len(whole)))
        yield from (whole[start:] for start in range(1, len(whole), 7))
        yield from (whole * 3, whole.replace("search", whole), whole.replace("3", "[" * 5000))


@check("tool", fix="Annotate what the model writes with str, int, float, bool, list[...], dict or Literal[...].")
def can_be_told_of(subject: Subject) -> None:
    """There is a JSON schema of its arguments, with a description.

    The chat template passes it to the model, which could not call the tool without it.
    """
    tool = tool_of(subject)
    try:
        told = schema(tool)["function"]
    except DovetailError as error:
        raise Failed(str(error)) from error
    if not told["description"]:
        raise Failed("its docstring does not begin with a sentence")
    json.dumps(told)


def _example_of(said: Mapping[str, Any], text: str) -> Any:
    """Return a value of a JSON schema's type."""
    if "enum" in said:
        return said["enum"][len(text) % len(said["enum"])]
    plain = {"string": text, "integer": len(text), "number": 0.5 * len(text), "boolean": True, "object": {"a": text}}
    return (
        [_example_of(said.get("items", {"type": "string"}), text)] if said["type"] == "array" else plain[said["type"]]
    )


def tool_of(subject: Subject) -> Tool:
    """Return the tool with its hyperparameters.

    Raises:
        Inapplicable: if it stands for several.
    """
    tool = Tool(name=subject.component.name, function=subject.bind(), target=subject.component.load())
    if hasattr(tool.function, "tools"):
        raise Inapplicable("it stands for the tools of a server, which says what they are")
    return tool


def called(tool: Tool, text: str, state: Any = None, *, empty: bool = False) -> Any:
    """Return what a tool answers, or the exception whose message the model reads; its lists may be empty.

    Raises:
        Failed: if it changes its arguments.
    """
    try:
        types = schema(tool)["function"]["parameters"]["properties"]
        made = {name: _example_of(said, text) for name, said in types.items()}
        made |= {name: [] for name, value in made.items() if empty and isinstance(value, list)}
        given = arguments(tool, made, state)
    except (DovetailError, ValueError) as error:
        raise Inapplicable(f"it cannot be called with made-up arguments: {error}") from error
    before = copy.deepcopy(given)
    try:
        answer = tool.function(*given)
    except (DovetailError, ConnectionError) as error:
        raise Inapplicable(f"it cannot be called here: {error}") from error
    except Exception as error:  # the model reads its message
        answer = error
    if given != before:
        raise Failed(f"it changes its arguments from {before} to {given}")
    return answer


@check(
    "tool",
    when=lambda component: component.declares.get("deterministic", True),
    fix="Keep what an episode must remember in a Result's state, not in the module, and take no clock; or declare"
    " deterministic=False. Return a text, a number, a list, a dict or a Result.",
)
def answers_alike(subject: Subject) -> None:
    """The same first call of an episode gets the same answer whatever was asked before, and changes no argument.

    Episodes are resumed, branched and played again, beside others in the same process. What is neither a text, a
    number, a list, a dict nor a `Result` the model cannot read.
    """
    tool = tool_of(subject)
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    first = [called(tool, text) for text in STEADY]
    for text, answer in zip(STEADY, first, strict=True):
        if not isinstance(answer, (*ANSWERS, Exception)):
            raise Failed(f"called with {text!r} it returns {answer!r}, of type {type(answer).__name__}")
        again = called(tool, text)
        if repr(again) != repr(answer):
            raise Failed(f"called with {text!r} it answers {answer!r}, and later {again!r}")
    if before != (random.getstate(), repr(np.random.get_state())):  # noqa: NPY002
        raise Failed("it draws from a random number generator of the whole process")


@check("tool", fix="Raise an exception whose message says what is wrong with the call, such as ValueError.")
def no_answer_is_nan(subject: Subject) -> None:
    """No number that it answers is NaN, also where it is called with zero, an empty text or an empty list.

    The model reads `nan` as if it were an answer, and a sum that it goes into has none.
    """
    tool = tool_of(subject)
    for text in ("", *STEADY):
        for empty in (False, True):
            answer = called(tool, text, empty=empty)
            if _has_nan(answer.reward if isinstance(answer, Result) else answer):
                raise Failed(f"called with {'empty lists' if empty else repr(text)} it answers {answer!r}")


def _has_nan(answer: Any) -> bool:
    if isinstance(answer, Mapping):
        return any(map(_has_nan, answer.values()))
    if isinstance(answer, list | tuple):
        return any(map(_has_nan, answer))
    return isinstance(answer, float) and bool(np.isnan(answer))


@check(
    "tool",
    reads=["state"],
    fix="Return a new state, Result(text, state=(*state, note)), and leave the one that is given as it is.",
)
def leaves_its_state(subject: Subject) -> None:
    """A call changes neither the state that it is given nor the one that an earlier call has returned.

    Episodes are branched and replayed from their states: notes of one branch would appear in another.
    """
    tool = tool_of(subject)
    state, kept = None, list[tuple[str, Any, Any]]()
    for text in STEADY:
        answer = called(tool, text, state)
        if not isinstance(answer, Result) or answer.state is None:
            continue
        kept.append((text, answer.state, copy.deepcopy(answer.state)))
        state = answer.state
        for said, ours, before in kept:
            if repr(ours) != repr(before):
                raise Failed(f"called with {said!r} it returns the state {before!r}, which a later call makes {ours!r}")


@check(
    "interaction",
    fix="Draw from the generator that is given, make a new state instead of changing one, and answer every turn but the"
    " last with a message.",
)
def is_a_function(subject: Subject) -> None:
    """The same state, turn and generator give the same step, old states are not modified, and a turn is answered.

    Otherwise episodes could be neither resumed nor branched, and no run with them would be repeatable.
    """
    interaction = subject.bind()
    generators = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    first = episodes_of(interaction)
    for number, text in enumerate(TEXTS):
        state, said = interaction.reset(_example(interaction), np.random.default_rng(number))
        again = interaction.reset(_example(interaction), np.random.default_rng(number))
        if (state, tuple(said)) != (again[0], tuple(again[1])):
            raise Failed("reset with the same generator gives another state or other messages")
        _walk(interaction, state, text)
    if generators != (random.getstate(), repr(np.random.get_state())):  # noqa: NPY002
        raise Failed("it draws from a random number generator of the whole process, not from the one that it is given")
    for earlier, later in zip(first, episodes_of(interaction), strict=False):
        if earlier != later:
            raise Failed(
                f"after other episodes it gives {later[:120]}, and {earlier[:120]} at first: it keeps something"
            )


@check(
    "interaction",
    when=lambda component: hasattr(component.load(), "anchor"),
    fix="Return what the policy sees of the state, a number or a tuple; no id(), no counter and no time.",
)
def equal_states_are_anchored_alike(subject: Subject) -> None:
    """`anchor` gives the same value for equal states of two episodes, and one that can be compared.

    Steps of different episodes are grouped by it: with a value of its own for each, no step has another one beside it.
    """
    interaction: Any = subject.bind()
    for number, text in enumerate(TEXTS[:5]):
        state, _ = interaction.reset(_example(interaction), np.random.default_rng(number))
        for turn in range(TURNS):
            ours, theirs = interaction.anchor(state), interaction.anchor(copy.deepcopy(state))
            if ours != theirs or hash(ours) != hash(theirs):
                raise Failed(f"a state has the anchor {ours!r}, and one that equals it {theirs!r}")
            step = interaction.step(state, Turn(text=text, number=turn), np.random.default_rng(turn))
            if step.done:
                break
            state = step.state


@check("interaction", fix="Name every column that reset reads in `columns`; what has a default is not there otherwise.")
def announces_its_columns(subject: Subject) -> None:
    """It looks at no column of an example that `columns` does not announce.

    A column that is not announced is not asked of the task: with another one, all episodes begin with the default.
    """
    interaction: Any = subject.bind()
    seen: set[str] = set()
    interaction.reset(_Watched(_example(interaction), seen), np.random.default_rng(0))
    unannounced = seen - {"prompt", *interaction.columns}
    if unannounced:
        raise Failed(f"reset looks at {listing(map(repr, unannounced))}, and `columns` is {interaction.columns}")


@check(
    "interaction",
    when=lambda component: bool(WHICH.search(_told_of(component))),
    fix="Take the last match, re.findall(...)[-1], if the docstring says the last; or correct what it says.",
)
def the_number_that_it_says(subject: Subject) -> None:
    """If its docstring speaks of the last number of a turn, or of the first, a turn of two is answered as that alone.

    What comes before is what a policy thinks aloud: an episode would go by a number that it has considered and dropped.
    """
    said = {word.lower() for word in WHICH.findall(_told_of(subject.component))}
    if len(said) > 1:
        raise Inapplicable("its docstring speaks of the first number and of the last one")
    (which,) = said
    interaction: Any = subject.bind()
    state, _ = interaction.reset(_example(interaction), np.random.default_rng(0))

    def answer(text: str) -> Any:
        step = interaction.step(state, Turn(text=text, number=0), np.random.default_rng(0))
        return repr((step.state, step.messages, step.reward, step.done))

    other_one: list[str] = []
    for one, other in ((one, other) for one, other in itertools.permutations(NUMBERS, 2) if len(one) == len(other)):
        text, (meant, passed_over) = f"{one}, or {other}", (other, one) if which == "last" else (one, other)
        if answer(meant) == answer(passed_over):
            continue
        if answer(text) != answer(passed_over):
            return
        other_one.append(f"'{text}' is answered as '{passed_over}' is, and its docstring says the {which} number")
    if other_one:
        raise Failed(other_one[0])


@check(
    "interaction",
    when=lambda component: bool(WHICH.search(_told_of(component))),
    fix="Treat a turn without a number by itself: with -1 as its index, names[-1] is the last of the names.",
)
def no_number_is_no_answer(subject: Subject) -> None:
    """A turn that has no number is answered otherwise than one with a number that counts, or as one out of range, or
    as every small number.

    A policy that names no arm, and pulls the last one by it, learns to say nothing.
    """
    interaction: Any = subject.bind()
    for seed in range(EPISODES):
        state, _ = begun(interaction, seed)

        def answer(text: str, state: Any = state, seed: int = seed) -> Any:
            step = interaction.step(state, Turn(text=text, number=0), np.random.default_rng(seed))
            return repr((step.messages, step.reward, step.done))

        silent, beyond = answer(STEADY[0]), answer(BEYOND)
        like = [number for number in SMALL if answer(number) == silent]
        # if all small numbers are answered alike, they too are no choice, such as offers that are too low
        if like and silent != beyond and len(like) < len(SMALL):
            raise Failed(f"{STEADY[0]!r}, in which there is no number, is answered as '{like[0]}' is: {silent[:200]}")


@check(
    "interaction",
    fix="Take it from what was to be expected of the choice, max(p) - p[arm], not from what came out: max(p) - won.",
)
def regret_is_no_luck(subject: Subject) -> None:
    """After a first turn no metric called `regret` is below zero.

    Nothing is better than the best choice. Taken from what came out, it falls with good luck, and its curve shows that.
    """
    interaction: Any = subject.bind()
    for seed, text in itertools.product(range(EPISODES), SMALL):
        state, rng = begun(interaction, seed)
        metrics = interaction.step(state, Turn(text=text, number=0), rng).metrics
        for name in REGRET & {*metrics}:
            if metrics[name] < -1e-6:
                raise Failed(f"after a first turn of '{text}' the metric '{name}' is {metrics[name]:.6g}")


def begun(interaction: Any, seed: int) -> tuple[Any, np.random.Generator]:
    """Return the state of an episode that begins, and its generator.

    Raises:
        Inapplicable: if it cannot begin here, for want of a server, say, of which `is_a_function` tells.
    """
    rng = np.random.default_rng(seed)
    try:
        return interaction.reset(_example(interaction), rng)[0], rng
    except DovetailError:
        raise Inapplicable("it begins no episode here") from None


def _told_of(component: Component) -> str:
    """Return its docstring in one line."""
    return " ".join(component.doc.split())


class _Watched(dict[str, Any]):
    """An example that notes which columns are looked at by name."""

    def __init__(self, example: Mapping[str, Any], seen: set[str]) -> None:
        super().__init__(example)
        self._seen = seen

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(name)
        return super().get(name, default)


def played(subject: Subject) -> list[str]:
    """What an interaction says and rewards in some episodes."""
    return episodes_of(subject.bind())


def episodes_of(interaction: Any, *, states: bool = False) -> list[str]:
    """What an interaction says and rewards in some episodes, and the states that they begin in, if they are numbers."""
    found = []
    for text in TEXTS:
        rng = np.random.default_rng(0)
        state, said = interaction.reset(_example(interaction), rng)
        found.append(repr((state, said) if states and isinstance(state, int | float | str) else said))
        for turn in range(3 * TURNS):
            step = interaction.step(state, Turn(text=text, number=turn), rng)
            found.append(repr((step.messages, step.reward, step.done)))
            if step.done:
                break
            state = step.state
    return found


def _walk(interaction: Any, state: Any, text: str) -> None:
    for turn in range(TURNS):
        said = Turn(text=text, number=turn)
        before = copy.deepcopy(state)
        step, other = (interaction.step(state, said, np.random.default_rng(turn)) for _ in range(2))
        if not isinstance(step, Step):
            raise Failed(f"it answers {text[:40]!r} with {type(step).__name__}, not with a Step")
        if state != before:
            raise Failed(f"the answer to {text[:40]!r} changes the state {before} to {state}")
        if (step.state, tuple(step.messages), step.reward, step.done) != (
            other.state,
            tuple(other.messages),
            other.reward,
            other.done,
        ):
            raise Failed(f"{text[:40]!r} in the state {before} is answered with {step}, and then with {other}")
        _can_go_on(step, text)
        if step.done:
            return
        state = step.state


def _can_go_on(step: Step, text: str) -> None:
    roles = [message.get("role") for message in step.messages]
    for message in step.messages:
        if not {"role", "content"} <= {*message}:
            raise Failed(f"it answers {text[:40]!r} with the message {dict(message)}, which has no role or no content")
    if ASSISTANT in roles:
        raise Failed(f"it answers {text[:40]!r} in the role '{ASSISTANT}', which is the policy's")
    if not np.isfinite(step.reward):
        raise Failed(f"it answers {text[:40]!r} with a reward of {step.reward}")
    if not step.done and not roles:
        raise Failed(
            f"it answers {text[:40]!r} with no message, although the episode goes on: there is nothing to read"
        )


def _example(interaction: Any) -> Mapping[str, Any]:
    return examples(interaction, 1)[0]


def examples(interaction: Any, count: int) -> Sequence[Mapping[str, Any]]:
    """Return examples of a task that has what the interaction reads, or some that are made up, if it takes those.

    Raises:
        Inapplicable: if no task that can be built has, and numbers and texts will not do.
    """
    wanted = set(interaction.columns)
    if not wanted:
        return [{"prompt": "Begin."}] * count
    for name in current().names("task"):
        try:
            task: Any = current().get("task", name).bind()
            if wanted <= set(task.columns):
                of_task = task.examples("train")
                return [of_task[index % len(of_task)] for index in range(count)]
        except (DovetailError, ImportError, TypeError):
            continue
    for value in MADE_UP:
        made = [_made_up(sorted(wanted), value, 2 + index) for index in range(count)]
        with contextlib.suppress(Exception):
            for example in made:
                interaction.reset(copy.deepcopy(example), np.random.default_rng(0))
            return made
    raise Inapplicable(f"no task has the columns {', '.join(sorted(wanted))}; register one beside the interaction")


def _made_up(columns: Sequence[str], value: Callable[[int], Any], first: int) -> Mapping[str, Any]:
    return {"prompt": "Begin.", **{name: value(number) for number, name in enumerate(columns, first)}}
