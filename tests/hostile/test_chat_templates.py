"""Chat templates of strangers, from a folder or a GGUF file to the end: a command stops with one line, and in time."""

import pytest
from tests.hostile import test_gguf, test_models
from tests.hostile.case import Case, attempt
from tests.sampled import sampled

from dovetail_model.huggingface import chat_template

SETS = (
    "train.tokenizer=huggingface",
    "train.task=records",
    "task.records.path=t.jsonl",
    "task.records.eval_path=t.jsonl",
    "task.records.chat=True",
    "model.decoder.width=16",
    "model.decoder.layers=1",
    "model.decoder.heads=2",
    "model.decoder.kv_heads=1",
    "train.prompts=1",
    "train.group_size=2",
    "train.rewards=['exact_match']",
    "eval.examples=1",
    "run.sinks=()",
)
SOURCES = {
    "a loop": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "is not done with .* within"),
    "a loop for questions alone": (
        "{% if messages|length > 1 %}{{ messages[1].content }}<e>{% else %}"
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}",
        "is not done with .* within",
    ),
    "a text of 2 GB": ("{{ 'a' * 2000000000 }}", "MemoryError: more than 1024 MiB"),
    "20 million characters": ("{% for a in range(20) %}{{ 'a' * 1000000 }}{% endfor %}", "20,000,000 characters of it; at most"),
    "Python's classes": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError: access to attribute '__class__'"),
    "a file": ("{% include '/etc/passwd' %}", "no loader for this environment"),
    "a program": ("{{ lipsum.__globals__['os'].system('touch ran') }}", "SecurityError|unsafe"),
    "terminal codes": (r"{{ raise_exception('\x1b[31mred\x07') }}", r"refuses .*: \\x1b\[31mred\\x07$"),
    "half a surrogate pair": (r"{{ '\ud800' }}", "half of a surrogate pair"),
    "20,000 brackets": ("{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}", "RecursionError"),
    "no jinja": ("{% if %}", "line 1: Expected an expression"),
}  # fmt: skip
FORMS = ("tokenizer_config.json", "chat_template.jinja", "model.gguf")


def files(source: str, form: str) -> dict[str, bytes]:
    """Return the files of a tokenizer with a template."""
    if form == "model.gguf":
        return {f"m/{form}": test_gguf.words(t=test_gguf.said("tokenizer.chat_template", source))}
    settings = test_models.SETTINGS | ({"chat_template": source} if form == "tokenizer_config.json" else {})
    found = test_models.words(test_models.TOKENIZER, settings)
    if form == "chat_template.jinja":
        found[form] = source.encode()
    return {f"m/{name}": content for name, content in found.items()}


TRIED = [
    pytest.param(source, pattern, FORMS[(number + shift) % 3], id=f"{name} in {FORMS[(number + shift) % 3]}")
    for shift in range(3)
    for number, (name, (source, pattern)) in enumerate(SOURCES.items())
]


@pytest.mark.parametrize(("source", "pattern", "form"), sampled(TRIED, every=8))
def test_a_template(source, pattern, form, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5 if "is not" in pattern else 60.0)
    path = "m/model.gguf" if form == "model.gguf" else "m"
    command = "eval e.gin --out o" if form == "model.gguf" else "train e.gin --folder r"
    sets = " ".join(f'--set "{each}"' for each in (*SETS, f"tokenizer.huggingface.path={path}"))
    data = b'{"prompt": "ab", "completion": "b", "answer": "b"}\n'
    case = Case(
        f"{command} {sets}",
        rf"^error: the chat template m(/model\.gguf)?/[a-z_]+\.(json|jinja)\b.*({pattern})",
        files={"e.gin": "", "t.jsonl": data, **files(source, form)},
    )
    attempt(case, tmp_path, capsys, monkeypatch)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_template_is_none(form, tmp_path, capsys, monkeypatch):
    path = "m/model.gguf" if form == "model.gguf" else "m"
    sets = " ".join(f'--set "{each}"' for each in (*SETS, f"tokenizer.huggingface.path={path}"))
    data = b'{"prompt": "ab", "completion": "b", "answer": "b"}\n'
    case = Case(
        f"eval e.gin --out o {sets}",
        "the task gives messages, but the tokenizer has no chat template",
        files={"e.gin": "", "t.jsonl": data, **files("", form)},
    )
    attempt(case, tmp_path, capsys, monkeypatch)
