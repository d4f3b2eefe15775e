"""Chat templates render as the templates of published models expect, and refuse with one line."""

import pickle

import pytest

from dovetail.errors import ConfigError, DataError
from dovetail_model.huggingface import chat_template as module
from dovetail_model.huggingface.chat_template import ChatTemplate, read_source, saved_moment

TURNS = """
{%- for message in messages %}
    {%- if message.role not in ('user', 'assistant', 'system') %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QUESTION = {"role": "user", "content": "6 * 7 < 50 & é?"}


def template(source=TURNS, **given):
    fields = {
        "place": "chat.jinja",
        "tokens": {"bos_token": "<s>"},
        "options": {},
        "moment": "2026-03-01T12:00:00+00:00",
    }
    return ChatTemplate(source=source, **fields | given)


def test_a_conversation_ends_where_the_assistant_begins():
    system = {"role": "system", "content": "Be brief."}
    assert template().render([system, QUESTION]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n6 * 7 < 50 & é?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template().render([QUESTION], add_generation_prompt=False).endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s>"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "6 * 7 < 50 & é?"}]'),
        ("{{ {'b': 1, 'a': '<'} | tojson(indent=1, sort_keys=true) }}", '{\n "a": "<",\n "b": 1\n}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{{ strftime_now('%d %b %Y') }}", "01 Mar 2026"),
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "023"),
        ("{% generation %}{{ messages[0].content[:1] }}{% endgeneration %}!", "6!"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ tools is none and documents is none }}", "True"),
    ],
)  # fmt: skip
def test_what_templates_take_for_granted(source, expected):
    assert template(source).render([QUESTION]) == expected


def test_options_are_variables():
    source = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    assert template(source, options={"enable_thinking": False}).render([QUESTION]) == "<think></think>"
    assert template(source).render([QUESTION]) == ""


@pytest.mark.parametrize(
    "source", ["{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ messages[0].update(a=1) }}"]
)
def test_the_sandbox_holds(source):
    messages = [dict(QUESTION)]
    with pytest.raises(DataError, match=r"the chat template chat\.jinja fails on .*SecurityError"):
        template(source).render(messages)
    assert messages == [QUESTION]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "is not done with"),
        (
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            "is not done with",
        ),
        ("{{ 9 ** (9 ** 9) }}", "is not done with"),
        ("{{ 'a' * 1000000000 }}", "MemoryError"),
        ("{{ 'a' * 20000000 }}", "it makes 20,000,000 characters of it; at most 16,000,000"),
        (
            "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "Memory|is not",
        ),
        ("{{ 'a'.ljust(1000000000) }}", "MemoryError"),
        ("{{ 'a' | center(1000000000) }}", "MemoryError"),
        ("{{ '%1000000000d' % 1 }}", "MemoryError"),
        ("{{ '{:>1000000000}'.format('a') }}", "MemoryError"),
        ("{{ [0] * 1000000000 }}", "MemoryError"),
        ("{{ range(1000000000) | list }}", "OverflowError: Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe|SecurityError"),
        ("{{ messages.__class__.__base__.__subclasses__() }}", "unsafe|SecurityError"),
        ("{{ raise_exception.__globals__.json }}", "unsafe|SecurityError"),
        ("{{ '\\ud800' }}", "half of a surrogate pair"),
        ("{{ messages | tojson(indent=1000000000) }}", "MemoryError: more than 1024 MiB"),
        ("{{ raise_exception('a' * 5000000) }}", "a{1000}$"),
        ("{{ raise_exception('a\\n\\r b') }}", "a b$"),
        ("{{ missing.content }}", "'missing' is undefined"),
        ("{{ strftime_now(1) }}", "must be str"),
        ("{{ messages.clear() }}", "unsafe|SecurityError"),
        ("{{ lipsum(n=100000000) }}", "is not done with"),
        ("{{ lipsum.__globals__['os'].popen('id').read() }}", "unsafe|SecurityError"),
    ],
)
def test_a_program_of_a_stranger_is_stopped(source, reason, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5 if "is not" in reason else 60.0)
    with pytest.raises(DataError, match=rf"the chat template chat\.jinja (?s:.*)(?:{reason})"):
        template(source).render([QUESTION])
    monkeypatch.setattr(module, "SECONDS", 60.0)
    assert template().render([QUESTION]).endswith("assistant\n"), "the next conversation is rendered as ever"


def test_a_refusal_quotes_the_template_and_the_messages():
    with pytest.raises(DataError, match=r'chat\.jinja refuses \[\{"role": "tool".*: unknown role tool$'):
        template().render([{"role": "tool", "content": ""}])


def test_a_broken_template_names_its_line():
    with pytest.raises(ConfigError, match=r"chat\.jinja, line 2: Encountered unknown tag 'fi'"):
        template("\n{% fi %}").render([QUESTION])


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([], "must be a list of at least one"),
        ("hello", "must be a list of at least one"),
        (["hello"], "message 0 is 'hello'"),
        ([QUESTION, {"role": "user"}], "message 1 has no 'content'; it holds: role"),
        ([{"role": None, "content": ""}], "its role is None, not text"),
    ],
)
def test_anything_but_a_conversation_is_refused(messages, wrong):
    with pytest.raises(DataError, match=wrong):
        template().render(messages)


def test_pickles_after_use():
    used = template()
    used.render([QUESTION])
    assert pickle.loads(pickle.dumps(used)).render([QUESTION]) == used.render([QUESTION])


def test_a_setting_goes_before_the_folder(tmp_path):
    (tmp_path / "other.jinja").write_text("other")
    own, other = tmp_path / "folder", str(tmp_path / "other.jinja")
    own.mkdir()
    assert read_source(own, None, "setting") is None
    assert read_source(None, None, "setting") is None
    (own / "chat_template.jinja").write_text("published")
    assert read_source(own, None, "setting") == (str(own / "chat_template.jinja"), "published")
    assert read_source(own, other, "setting") == (other, "other")


def test_the_moment_is_kept_where_it_is_asked_for(tmp_path):
    template().save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["chat_template.jinja"]
    dated = template("{{ strftime_now('%Y') }}", moment="1999-12-31T23:59:59+00:00")
    dated.save(tmp_path)
    again = template(dated.source, moment=saved_moment(tmp_path))
    assert again.render([QUESTION]) == "1999"


@pytest.mark.parametrize("moment", [b"", b"yesterday", b"\xff\x00"])
def test_a_moment_that_is_none_is_refused(moment, tmp_path):
    (tmp_path / "chat_template.time").write_bytes(moment)
    with pytest.raises(DataError, match=r"chat_template\.time' does not hold a moment"):
        saved_moment(tmp_path)


def test_an_absent_file_is_named_with_its_setting(tmp_path):
    with pytest.raises(DataError, match=r"tokenizer\.x\.chat_template: '.*none\.jinja' cannot be read"):
        read_source(tmp_path, str(tmp_path / "none.jinja"), "tokenizer.x.chat_template")


def test_turns_that_are_kept_count_among_the_characters_of_a_conversation():
    turn = {"role": "assistant", "content": "</think>" * 1000}
    source = "{% for i in range(5000) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(DataError, match="it makes 40,160,000 characters of it; at most 16,000,000"):
        template(source, keep_reasoning=True).render([turn, QUESTION])
