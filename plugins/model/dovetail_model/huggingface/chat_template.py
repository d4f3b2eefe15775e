"""Chat templates turn a conversation into the text that a model was trained on."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from dovetail.errors import ConfigError, DataError
from dovetail.extras import needs
from dovetail.kinds.data import ASSISTANT
from dovetail_kit.workers import LATE, workers

if TYPE_CHECKING:
    import jinja2

    from dovetail.protocols import Message

DUMMIES = ("\u2042", "<think>\n\u2058\n</think>\n\n\u2059")
"""Two made-up turns, one of them with reasoning, which some templates remove when the conversation continues."""

REASONING_ENDS: Final = "</think>"
"""What templates that strip the reasoning from earlier turns look for."""
FILE, MOMENT = "chat_template.jinja", "chat_template.time"
SECONDS: Final = 10.0
"""The time limit for one conversation; the templates of published models need less than a millisecond."""
MEMORY: Final = 1 << 30
"""The limit of the rendering process's address space in bytes, including Python's own."""
LARGEST: Final = 16_000_000
"""The greatest number of characters in a rendered text."""
LONGEST_REASON: Final = 1000
_HALF: Final = re.compile("[\ud800-\udfff]")
_KEPT: Final = 64
"""The number of compiled templates to cache."""


@attrs.frozen(kw_only=True)
class ChatTemplate:
    """A jinja2 template over `messages`, with the variables and functions that published templates use.

    A template is a program that comes with a model, perhaps from a stranger. Therefore it runs in jinja2's immutable
    sandbox and in a process of its own, where `SECONDS`, `MEMORY` and `LARGEST` limit each conversation: the sandbox
    protects objects but does not end loops. Blocks are trimmed, and `break` and `continue` are available. There are the
    variables `messages`, `add_generation_prompt`, `tools` and `documents` (None), the functions `raise_exception` and
    `strftime_now`, the filter `tojson` (no HTML escapes), and the block `generation`, which has no effect.

    Args:
        source: the template.
        place: where it comes from, for error messages.
        tokens: special tokens by their names in templates: `bos_token`, `eos_token`, ...
        options: further variables, such as `enable_thinking`.
        moment: the time that `strftime_now` formats, in ISO 8601. It is saved with a run, so that a run resumed the
            next day has the same prompts.
        keep_reasoning: whether earlier turns of the assistant that contain reasoning stay as they were, whatever the
            template makes of them.

    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    >>> template = ChatTemplate(source=turns + "{% if add_generation_prompt %}<assistant>{% endif %}", place="chat",
    ...     tokens={"eos_token": "</s>"}, options={}, moment="2026-01-31T00:00:00")
    >>> template.render([{"role": "user", "content": "6 * 7?"}])
    '<user>6 * 7?</s><assistant>'
    """

    source: str
    place: str = attrs.field(eq=False)
    tokens: Mapping[str, str]
    options: Mapping[str, Any]
    moment: str = attrs.field(eq=False)
    keep_reasoning: bool = False

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the conversation's text up to the beginning of the assistant's next turn.

        Raises:
            DataError: if the messages are not a valid conversation, or the template refuses them.
            ConfigError: if the template is broken, or jinja2 is not installed.
        """
        check_messages(messages)
        if importlib.util.find_spec("jinja2") is None:
            raise ConfigError(needs("a chat template", "jinja2", "hf"))
        given, kept = _set_aside(messages) if self.keep_reasoning else (list(messages), {})
        variables = {"documents": None, **self.tokens, **self.options, "tools": list(tools) if tools else None}
        variables |= {"messages": given, "add_generation_prompt": add_generation_prompt}
        rendered = workers(renderer, 1).call(self.source, self.moment, variables, time_limit=SECONDS)
        if rendered is LATE:
            raise DataError(
                f"the chat template {self.place} is not done with {_shown(messages)} within {SECONDS:g} s and"
                f" {MEMORY >> 20} MiB"
            )
        how, text = rendered
        if how == "broken":
            raise ConfigError(f"the chat template {self.place}, {text}")
        if how != "done":
            raise DataError(f"the chat template {self.place} {how} {_shown(messages)}: {text}")
        if (size := len(text) + sum(text.count(mark) * len(kept[mark]) for mark in kept)) > LARGEST:
            raise DataError(f"the chat template {self.place} fails on {_shown(messages)}: {_too_long(size)}")
        return functools.reduce(lambda text, mark: text.replace(mark, kept[mark]), kept, text)

    def between(self, messages: Sequence[Message]) -> str:
        """Return the text that the template writes after an assistant's turn: the messages, and the start of the next.

        To find it, two different made-up turns are rendered, followed by these messages.

        Raises:
            ConfigError: if the texts after the two turns differ, or a turn does not appear verbatim. In that case the
                template rewrites turns depending on the messages that follow, so that the sampled ids would not be
                those of the conversation. With `keep_reasoning` it cannot do so to turns with reasoning.
        """
        found = set()
        for dummy in DUMMIES:
            opening = [{"role": "user", "content": "?"}, {"role": "assistant", "content": dummy}]
            before, there, after = self.render([*opening, *messages]).partition(dummy)
            found.add(after if there and before else None)
        (said, *others) = found
        if others or said is None:
            roles = ", ".join(dict.fromkeys(str(message["role"]) for message in messages))
            some = " (some take the reasoning out of them)"
            keep = "set tokenizer.huggingface.keep_reasoning=True, or "
            raise ConfigError(
                f"the chat template {self.place} rewrites the assistant's earlier turns when a message of role {roles}"
                f" follows{'' if self.keep_reasoning else some}, so an episode cannot go on where it stopped;"
                f" {'' if self.keep_reasoning else keep}name a template that leaves them as they were with --set"
                " tokenizer.NAME.chat_template=FILE"
            )
        return said

    def save(self, folder: Path) -> None:
        """Write the template under its usual file name, and the moment if the template uses it."""
        (folder / FILE).write_text(self.source, encoding="utf-8")
        if "strftime_now" in self.source:
            (folder / MOMENT).write_text(self.moment + "\n")


def _set_aside(messages: Sequence[Message]) -> tuple[list[Message], dict[str, str]]:
    """Return messages with a mark in place of earlier turns that contain reasoning, and these turns by their marks.

    A template writes a mark as it writes a turn without reasoning. No message can guess one.
    """
    given, kept = list(messages), dict[str, str]()
    for index, message in enumerate(given[:-1]):
        content = message["content"]
        if message["role"] == ASSISTANT and isinstance(content, str) and REASONING_ENDS in content:
            mark = secrets.token_hex(16)
            kept[mark] = content
            given[index] = {**message, "content": mark}
    return given, kept


def read_source(folder: Path | None, replacement: str | None, setting: str) -> tuple[str, str] | None:
    """Return a template and its origin: the file that a setting names, else the folder's own; None without either.

    Raises:
        DataError: if the file cannot be read.
    """
    own = folder / FILE if folder is not None and (folder / FILE).exists() else None
    file = own if replacement is None else Path(replacement).expanduser()
    if file is None:
        return None
    if file.exists() and not file.is_file():  # a pipe would be read forever
        raise DataError(f"{setting}: '{file}' is not a file")
    try:
        return str(file), file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{setting}: '{file}' cannot be read: {error}") from error


def now() -> str:
    """Return the current time as an ISO 8601 string, the `moment` of a new tokenizer."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def saved_moment(folder: Path) -> str:
    """Return the moment saved in a folder, or the current time if its template does not use one.

    Raises:
        DataError: if it is not a moment.
    """
    file = folder / MOMENT
    if not file.is_file():
        return now()
    text = file.read_text(encoding="utf-8", errors="replace").strip()
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise DataError(f"'{file}' does not hold a moment: {error}; restore it") from error
    return text


def check_messages(messages: Sequence[Message]) -> None:
    """Check that the messages are a valid conversation.

    Raises:
        DataError: naming the first invalid message and its defect.

    >>> check_messages([{"role": "user", "text": "hello"}])
    Traceback (most recent call last):
    dovetail.errors.DataError: message 0 has no 'content'; it holds: role, text
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise DataError(f"messages must be a list of at least one {{'role': ..., 'content': ...}}, not {messages!r}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise DataError(f"message {index} is {message!r}; write {{'role': ..., 'content': ...}}")
        for key in ("role", "content"):
            if key not in message:
                raise DataError(
                    f"message {index} has no '{key}'; it holds: {', '.join(map(str, message)) or 'nothing'}"
                )
        if not isinstance(message["role"], str):
            raise DataError(f"message {index}: its role is {message['role']!r}, not text")


class _Refused(Exception):
    """Raised by a template that calls `raise_exception`."""


def renderer() -> Callable[[str, str, Mapping[str, Any]], tuple[str, str]]:
    """Return, in a process of its own, what renders templates; the answer is a text, or what is wrong and why."""
    import jinja2

    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    compiled = functools.lru_cache(_KEPT)(_compile)

    def rendered(source: str, moment: str, variables: Mapping[str, Any]) -> tuple[str, str]:
        try:
            text = compiled(source, moment).render(**variables)
        except jinja2.TemplateSyntaxError as error:
            return "broken", f"line {error.lineno}: {error.message}"
        except _Refused as error:
            return "refuses", _reason(str(error))
        except Exception as error:
            beyond = f"more than {MEMORY >> 20} MiB" if isinstance(error, MemoryError) else error
            return "fails on", _reason(f"{type(error).__name__}: {beyond}")
        if len(text) > LARGEST:
            return "fails on", _too_long(len(text))
        if not text.isascii() and _HALF.search(text):
            return "fails on", "it makes half of a surrogate pair of it, which no tokenizer can read"
        return "done", text

    return rendered


def _too_long(size: int) -> str:
    return f"it makes {size:,} characters of it; at most {LARGEST:,}"


def _reason(text: str) -> str:
    return " ".join(text[:LONGEST_REASON].split())


def _compile(source: str, moment: str) -> jinja2.Template:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_block()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = datetime.fromisoformat(moment).strftime
    return environment.from_string(source)


def _generation_block() -> type[Any]:
    """Return a jinja2 extension that ignores `{% generation %}`, with which templates mark the assistant's text."""
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - jinja2 declares it this way

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _shown(messages: Sequence[Message], limit: int = 120) -> str:
    text = json.dumps(list(messages), ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[:limit] + "..."


def after_turn(written: Sequence[int], eos_ids: Sequence[int], place: str) -> list[int]:
    """Return the ids after the token that ends a turn, given the ids after the turn's text.

    Raises:
        ConfigError: if `written` does not begin with one of `eos_ids`.
    """
    if not written or written[0] not in eos_ids:
        raise ConfigError(
            f"the chat template {place} does not end the assistant's turns with a token that ends a completion, so"
            " nothing says where a turn is over; name the template's own with tokenizer.NAME.eos_tokens"
        )
    return list(written[1:])
