"""What stands between two turns is what the chat template writes there, or the template is refused."""

import pytest
from tests.model.tokenizer.test_huggingface import CHATML, folder  # noqa: F401 (a fixture)

from dovetail.errors import ConfigError, DataError
from dovetail_model.tokenizer.huggingface import HuggingFace
from dovetail_model.tokenizer.sentencepiece import SentencePiece

ASKED = {"role": "user", "content": "what is 12 + 34?"}
SAID = {"role": "assistant", "content": "46"}
MORE = {"role": "user", "content": "and 1 + 2?"}

STRIPPED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1].strip() }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ENDLESS = "{% for m in messages %}\n{{ m.role }}: {{ m.content }}{% endfor %}\nassistant:"
FUSSY = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}<|im_end|>{% endfor %}"


@pytest.fixture
def open_with(folder):  # noqa: F811
    def made(template, **settings):
        path = str(folder(config={"eos_token": "<|im_end|>"}, template=template))
        return HuggingFace(path=path, **settings).make([])

    return made


def test_a_conversation_goes_on_in_ids_as_the_template_writes_it(open_with):
    tokenizer = open_with(CHATML)
    (end,) = tokenizer.eos_ids
    sampled = [*tokenizer.encode(SAID["content"]), end]
    played = [*tokenizer.encode(tokenizer.render([ASKED])), *sampled, *tokenizer.bridge([MORE])]
    assert played == tokenizer.encode(tokenizer.render([ASKED, SAID, MORE]))


def test_a_base_model_whose_files_do_not_list_the_end_of_a_turn_goes_on_too(folder):  # noqa: F811
    tokenizer = HuggingFace(path=str(folder(config={"eos_token": "<eos>"}, template=CHATML))).make([])
    end = tokenizer.eos_ids[0]
    assert tokenizer.vocabulary["<|im_end|>"] == end
    assert [*tokenizer.encode("46"), end, *tokenizer.bridge([MORE])] == tokenizer.encode(
        tokenizer.render([SAID, MORE]).removeprefix("<|im_start|>assistant\n")
    )


def test_several_messages_may_come_between(open_with):
    tokenizer = open_with(CHATML)
    assert len(tokenizer.bridge([MORE, MORE])) > len(tokenizer.bridge([MORE]))


def test_a_template_that_rewrites_what_was_said_is_refused(open_with):
    with pytest.raises(ConfigError) as caught:
        open_with(STRIPPED).bridge([MORE])
    assert "rewrites the assistant's earlier turns when a message of role user follows" in str(caught.value)
    assert "set tokenizer.huggingface.keep_reasoning=True, or name a template" in str(caught.value)
    assert "--set tokenizer.NAME.chat_template=FILE" in str(caught.value)


THOUGHT = {"role": "assistant", "content": "<think>\n12 + 34 = 46 \n</think>\n\n46 "}


def test_reasoning_is_kept_where_the_template_would_strip_it(open_with):
    tokenizer = open_with(STRIPPED, keep_reasoning=True)
    (end,) = tokenizer.eos_ids
    said = [ASKED, THOUGHT, MORE, THOUGHT, MORE]
    assert tokenizer.render(said) == open_with(CHATML).render(said)
    played = tokenizer.encode(tokenizer.render([ASKED]))
    for _ in range(2):
        played += [*tokenizer.encode(THOUGHT["content"]), end, *tokenizer.bridge([MORE])]
    assert played == tokenizer.encode(tokenizer.render(said))


def test_without_reasoning_the_template_is_the_model_s_own(open_with):
    own, keeping = open_with(STRIPPED), open_with(STRIPPED, keep_reasoning=True)
    for said in ([ASKED], [ASKED, SAID, MORE], [ASKED, {**SAID, "content": " 46\n"}, MORE], [MORE, ASKED]):
        assert keeping.render(said) == own.render(said)
    last = [ASKED, THOUGHT]
    assert keeping.template.render(last, add_generation_prompt=False) == own.template.render(
        last, add_generation_prompt=False
    )


def test_a_run_that_keeps_reasoning_goes_on_so(open_with, tmp_path):
    tokenizer = open_with(STRIPPED, keep_reasoning=True)
    tokenizer.save(tmp_path / "run")
    again = HuggingFace(keep_reasoning=True).load(tmp_path / "run")
    assert again == tokenizer != HuggingFace().load(tmp_path / "run")
    assert again.bridge([MORE]) == tokenizer.bridge([MORE])


def test_a_template_that_rewrites_turns_otherwise_is_refused_all_the_same(open_with):
    with pytest.raises(ConfigError, match="follows, so an episode cannot go on where it stopped; name a template"):
        open_with(CHATML.replace("m.content", "m.content | upper"), keep_reasoning=True).bridge([MORE])


def test_a_template_that_does_not_end_a_turn_is_refused(open_with):
    with pytest.raises(ConfigError, match="does not end the assistant's turns with a token that ends a completion"):
        open_with(ENDLESS).bridge([MORE])


def test_a_template_that_refuses_a_role_says_so(open_with):
    with pytest.raises(DataError, match="no tools"):
        open_with(FUSSY).bridge([{"role": "tool", "content": "3"}])


def test_tools_are_given_to_the_template(open_with):
    tokenizer = open_with("{% for t in tools or [] %}{{ t.function.name }};{% endfor %}" + CHATML)
    schema = {"type": "function", "function": {"name": "add"}}
    assert tokenizer.render([ASKED], tools=[schema]).startswith("add;")
    assert tokenizer.render([ASKED]) == tokenizer.render([ASKED], tools=[]) == tokenizer.render([ASKED], tools=None)


def test_without_a_template_the_texts_follow_one_another():
    tokenizer = SentencePiece(vocab_size=300).make(["what is 12 + 34?\n<answer>46</answer>"])
    assert tokenizer.bridge([{"role": "tool", "content": "1"}, MORE]) == tokenizer.encode("1" + MORE["content"])
