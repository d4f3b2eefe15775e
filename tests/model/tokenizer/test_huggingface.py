"""The tokenizer of a Hugging Face folder: ids as its makers have them, and what its files say about special tokens."""

import json
import pickle
import re
import sys

import pytest
from tests.golden import GOLDEN
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import dovetail
from dovetail.errors import ConfigError, DataError
from dovetail_model.tokenizer.huggingface import HuggingFace

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>"]
QUESTION = [{"role": "user", "content": "what is 6 * 7?"}]


def byte_level(**options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["what is 12 + 34?"] * 3, trainer)
    if options.get("bos"):
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    if options.get("padded"):
        tokenizer.enable_padding(length=32)
        tokenizer.enable_truncation(4)
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    """Write a model folder's tokenizer; keyword arguments say what stands in the files beside it."""

    def write(*, config=None, special=None, generation=None, model=None, template=None, **options):
        byte_level(**options).save(str(tmp_path / "tokenizer.json"))
        files = {
            "tokenizer_config.json": config,
            "special_tokens_map.json": special,
            "generation_config.json": generation,
            "config.json": model,
        }
        for name, content in files.items():
            if content is not None:
                (tmp_path / name).write_text(json.dumps(content))
        if template is not None:
            (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    return write


def opened(path, **params):
    return HuggingFace(path=str(path), **params).make([])


@pytest.mark.parametrize("text", ["", " ", "  two\n\n\tlines\r\n", "é漢🙂 \x00", "unseen CAPITALS 0123"])
def test_round_trip_is_exact(folder, text):
    tokenizer = opened(folder(config={"eos_token": "<eos>"}))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_read_in_text_never_added_and_left_out_of_text(folder):
    tokenizer = opened(folder(config={"eos_token": "<eos>", "bos_token": "<bos>"}, bos=True, padded=True))
    ids = tokenizer.encode("what is 12 + 34?<eos>")
    assert ids[-1] == 1
    assert 2 not in ids
    assert tokenizer.decode([2, *ids, 0, 0]) == "what is 12 + 34?"


def test_decode_takes_any_ids(folder):
    tokenizer = opened(folder(config={"eos_token": "<eos>"}))
    assert tokenizer.decode([-1, *tokenizer.encode("what"), tokenizer.vocab_size, 10**6]) == "what"


def test_the_vocabulary_reaches_to_the_largest_id(folder):
    path = folder(config={"eos_token": "<eos>"})
    before = opened(path).vocab_size
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<late>")])
    tokenizer.save(str(path / "tokenizer.json"))
    assert opened(path).vocab_size == before + 1


EOS = {
    "a text": ({"config": {"eos_token": "<eos>"}}, (1,)),
    "an object": ({"config": {"eos_token": {"content": "<eos>"}}}, (1,)),
    "the map of special tokens": ({"special": {"eos_token": "<eos>"}}, (1,)),
    "the config before the map": ({"config": {"eos_token": "<|im_end|>"}, "special": {"eos_token": "<eos>"}}, (4,)),
    "one for generation": ({"generation": {"eos_token_id": 4}}, (4,)),
    "several for generation": ({"config": {"eos_token": "<|im_end|>"}, "generation": {"eos_token_id": [1, 4]}}, (4, 1)),
    "the model's, without those for generation": ({"model": {"eos_token_id": [4, 1]}}, (4, 1)),
    "not the model's, with them": ({"model": {"eos_token_id": 4}, "generation": {"eos_token_id": 1}}, (1,)),
    "the end of a turn first": ({"config": {"eos_token": "<eos>"}, "generation": {"eos_token_id": [1, 4]}, "template": CHATML}, (4, 1)),
    "the end of a turn, which no file lists": ({"config": {"eos_token": "<eos>"}, "template": CHATML}, (4, 1)),
    "the end of a turn alone": ({"config": {}, "template": CHATML}, (4,)),
    "a template that ends turns with a text": ({"config": {"eos_token": "<eos>"}, "template": "{% for m in messages %}{{ m.content }}\nEND<|im_end|>{% endfor %}"}, (1,)),
    "a template that does not end turns": ({"config": {"eos_token": "<eos>"}, "template": "{% for m in messages %}{{ m.content }}{% endfor %}"}, (1,)),
    "a template that refuses the probe": ({"config": {"eos_token": "<eos>"}, "template": "{{ raise_exception('no') }}"}, (1,)),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), EOS.values(), ids=EOS)
def test_what_ends_a_completion(folder, files, expected):
    path = folder(**files)
    tokenizer = opened(path)
    assert tokenizer.eos_ids == expected
    assert opened(path, eos_tokens=("<bos>", "<eos>")).eos_ids == (2, 1)


def test_an_added_token_that_is_text_ends_no_turn(folder):
    path = folder(config={"eos_token": "<eos>"}, template=CHATML.replace("<|im_end|>", "\n\n<|im_end|>"))
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("\n\n")])  # as Gemma's runs of line breaks
    tokenizer.save(str(path / "tokenizer.json"))
    assert opened(path).eos_ids == (1,)


def test_what_reads_the_saved_files_ends_where_the_policy_does(folder, tmp_path):
    path = folder(config={"eos_token": "<eos>"}, generation={"eos_token_id": 1, "top_k": 20}, template=CHATML)
    opened(path).save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == {
        "eos_token_id": [4, 1],
        "top_k": 20,
    }
    assert opened(tmp_path / "out") == opened(path)


def test_files_that_list_every_end_are_saved_as_they_are(folder, tmp_path):
    path = folder(config={"eos_token": "<eos>"}, generation={"eos_token_id": [1, 4]}, template=CHATML)
    opened(path).save(tmp_path / "out")
    for name in ("generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config": {"eos_token": "<eos>", "pad_token": "<pad>"}}, 0),
        ({"config": {"eos_token": "<eos>", "pad_token": None}, "generation": {"pad_token_id": 3}}, 3),
        ({"config": {"eos_token": "<eos>"}}, 1),
    ],
)
def test_pad_is_what_the_files_name(folder, files, expected):
    assert opened(folder(**files)).pad_id == expected


BOS = {"eos_token": "<eos>", "bos_token": "<bos>"}


@pytest.mark.parametrize(
    ("config", "sets", "expected"),
    [
        (BOS, True, "<bos>6 * 7?"),
        (BOS, False, "6 * 7?"),
        (BOS | {"add_bos_token": True}, False, "<bos>6 * 7?"),
        (BOS | {"add_bos_token": False}, True, "6 * 7?"),
        ({"eos_token": "<eos>", "add_bos_token": True}, True, "6 * 7?"),
    ],
)
def test_a_plain_prompt_begins_as_the_files_say(folder, config, sets, expected):
    tokenizer = opened(folder(config=config, bos=sets))
    assert tokenizer.render("6 * 7?") == expected
    assert tokenizer.render(expected) == expected


def test_messages_go_through_the_chat_template(folder):
    path = folder(config=BOS | {"chat_template": "of the config {{ messages[0].content }}"}, bos=True)
    assert opened(path).render(QUESTION) == "of the config what is 6 * 7?"
    (path / "chat_template.jinja").write_text(CHATML)
    tokenizer = opened(path)
    text = tokenizer.render(QUESTION)
    assert text == "<|im_start|>user\nwhat is 6 * 7?<|im_end|>\n<|im_start|>assistant\n"
    assert [token for token in tokenizer.encode(text) if token in (3, 4)] == [3, 4, 3]
    (path / "mine.jinja").write_text("mine {{ size }}")
    mine = opened(path, chat_template=str(path / "mine.jinja"), chat_options={"size": 3})
    assert mine.render(QUESTION) == "mine 3"


def test_of_named_templates_the_default_is_taken(folder):
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert opened(folder(config=BOS | {"chat_template": named})).render(QUESTION) == "plain"
    assert opened(folder(config=BOS | {"chat_template": named[:1]})).template is None


def test_save_and_load(folder, tmp_path):
    maker = HuggingFace(path=str(folder(config=BOS, generation={"eos_token_id": [4, 1]}, template=CHATML, bos=True)))
    tokenizer = maker.make([])
    tokenizer.save(tmp_path / "run" / "tokenizer")
    again = maker.load(tmp_path / "run" / "tokenizer")
    assert again == tokenizer
    assert again.render(QUESTION) == tokenizer.render(QUESTION)
    assert pickle.loads(pickle.dumps(tokenizer)).encode("what is") == tokenizer.encode("what is")


def test_a_run_keeps_the_template_that_it_began_with(folder, tmp_path):
    mine = tmp_path / "mine.jinja"
    mine.write_text("first")
    maker = HuggingFace(path=str(folder(config=BOS, template=CHATML)), chat_template=str(mine))
    maker.make([]).save(tmp_path / "run")
    mine.write_text("second")
    assert maker.load(tmp_path / "run").render(QUESTION) == "first"
    assert maker.make([]).render(QUESTION) == "second"


def test_what_the_model_says_about_ends_is_saved_too(folder, tmp_path):
    tokenizer = opened(folder(model={"eos_token_id": [4, 1], "hidden_size": 8}))
    tokenizer.save(tmp_path / "run")
    assert HuggingFace().load(tmp_path / "run").eos_ids == (4, 1)
    assert json.loads((tmp_path / "run" / "generation_config.json").read_text()) == {"eos_token_id": [4, 1]}


def test_mistakes_are_one_line(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"name its folder with --set tokenizer\.huggingface\.path=FOLDER"):
        HuggingFace().make([])
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        opened(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(DataError, match="it holds tokenizer.model: that is tokenizer 'sentencepiece'"):
        opened(tmp_path)
    path = folder(config={})
    with pytest.raises(DataError, match=r"does not say which token ends a completion: .*eos_tokens=\('TOKEN',\)"):
        opened(path)
    with pytest.raises(
        ConfigError, match=re.escape("'<|im_ned|>' is not in the vocabulary. Did you mean '<|im_end|>'?")
    ):
        opened(path, eos_tokens=("<|im_ned|>",))
    with pytest.raises(
        DataError, match="no chat template: name one with --set tokenizer.huggingface.chat_template=FILE"
    ):
        opened(folder(config=BOS)).render(QUESTION)
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(DataError, match=r"tokenizer_config\.json: not valid JSON"):
        opened(path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: it does not hold a readable tokenizer"):
        opened(path)


def test_the_tokenizer_of_another_model_is_told_by_an_end_that_it_lacks(folder):
    with pytest.raises(
        DataError,
        match=r"eos_token_id = 151645 is not an id of its tokenizer\.json, which has \d+; is that the tokenizer of",
    ):
        opened(folder(config={}, generation={"eos_token_id": [4, 151645]}))


def test_without_the_library_the_message_says_what_to_install(folder, monkeypatch):
    path = folder(config=BOS)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"needs the tokenizers library: pip install .*\[hf\]"):
        opened(path)


def test_is_registered():
    assert dovetail.get("tokenizer", "huggingface").bind(path="a") == HuggingFace(path="a")


# Whatever the file says, transformers 5 gives a folder whose `config.json` calls it Qwen 2 the pre-tokenizer of the published models.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
REPLACED = {"qwen2": QWEN2_SPLIT}


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "llama3", "qwen2", "qwen3"])
def test_golden(architecture, tmp_path):
    source = GOLDEN / "hf" / architecture
    probe = json.loads((source / "reference.json").read_text())["tokenizer_probe"]
    tokenizer = opened(source)
    assert (tokenizer.vocab_size, tokenizer.eos_ids, tokenizer.pad_id, tokenizer.bos) == (512, (1,), 0, "")
    assert tokenizer.decode(probe["ids"]) == probe["text"]
    assert (tokenizer.encode(probe["text"]) == probe["ids"]) == (architecture not in REPLACED)
    if architecture in REPLACED:
        content = json.loads((source / "tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": REPLACED[architecture]}, "behavior": "Isolated", "invert": False}
        bytes_of_it = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_of_it]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        assert opened(tmp_path, eos_tokens=("<eos>",)).encode(probe["text"]) == probe["ids"]
