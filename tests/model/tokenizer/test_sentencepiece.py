import io
import pickle

import pytest
import sentencepiece as spm

import dovetail
from dovetail.errors import ConfigError, DataError
from dovetail_model.tokenizer.sentencepiece import SentencePiece

CORPUS = [f"what is {i} + {i * 7 % 50}?\n<reasoning>add them</reasoning>\n<answer>{i}</answer>" for i in range(50)]
TEXTS = [
    "",
    " ",
    "  two  spaces  ",
    "line\n\n\nline\r\n\ttab",
    "<answer>46</answer>\n",
    "</s><pad><unk><s>",
    "é漢🙂 and \x00 too",
    "the mark \u2581 itself \u2581\u2581",
    "unseen CAPITALS 0123456789",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return SentencePiece(vocab_size=340, model_type=request.param).make(CORPUS)


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip_is_exact(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    assert not {tokenizer.pad_id, *tokenizer.eos_ids} & set(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_a_corpus_without_a_space_does_not_turn_spaces_into_its_mark(text):
    tokenizer = SentencePiece(vocab_size=300).make(["100=<answer>001</answer>"])
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_same_corpus_same_bytes(model_type):
    maker = SentencePiece(vocab_size=340, model_type=model_type)
    assert maker.make(CORPUS).proto == maker.make(tuple(CORPUS)).proto
    assert maker.make(CORPUS).proto != maker.make([*CORPUS[1:], "something else"]).proto


def test_symbols_are_one_id_each(tokenizer):
    for symbol in ("<reasoning>", "</reasoning>", "<answer>", "</answer>", "\n"):
        assert len(tokenizer.encode(symbol)) == 1
    own = SentencePiece(vocab_size=340, symbols=("12", ",")).make(CORPUS)
    assert len(own.encode("12,12")) == 3


def test_digits_are_split_unless_told():
    assert len(SentencePiece(vocab_size=340).make(["1234 1234 x"] * 9).encode("1234")) == 4
    assert len(SentencePiece(vocab_size=340, split_digits=False).make(["1234 1234 x"] * 9).encode("1234")) == 1


def test_pad_and_end_differ_and_are_left_out_of_text(tokenizer):
    assert tokenizer.pad_id == 0
    assert tokenizer.eos_ids == (1,)
    ids = tokenizer.encode("add them")
    assert tokenizer.decode([0, *ids, 1, 0, 0]) == "add them"


def test_decode_takes_any_ids(tokenizer):
    ids = tokenizer.encode("add")
    assert tokenizer.decode([-1, *ids, tokenizer.vocab_size, 10**6]) == "add"
    byte = tokenizer.encode("é")[0]
    assert tokenizer.decode([byte]) == "\ufffd"
    assert tokenizer.decode([2]) == "\ufffd"


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_vocabulary_shrinks_with_the_corpus(model_type):
    assert 256 < SentencePiece(vocab_size=5_000, model_type=model_type).make(CORPUS).vocab_size < 1_000


def test_save_and_load(tokenizer, tmp_path):
    folder = tmp_path / "new" / "folder"
    tokenizer.save(folder)
    assert SentencePiece().load(folder) == tokenizer
    assert SentencePiece(path=str(folder)).make([]) == tokenizer
    assert SentencePiece(path=str(folder / "tokenizer.model")).make([]) == tokenizer


def test_pickles(tokenizer):
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again == tokenizer
    assert again.encode(CORPUS[0]) == tokenizer.encode(CORPUS[0])


def test_long_texts_are_learnt_from():
    long = "zebra " * 2_000  # 12,000 bytes
    assert len(SentencePiece(vocab_size=340).make([long]).encode("zebra")) == 1


def test_training_is_silent(capfd):
    SentencePiece(vocab_size=340).make(CORPUS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("corpus", [[], [""]])
def test_an_empty_corpus_is_refused(corpus):
    with pytest.raises(DataError, match=r"corpus is empty; add texts, or set tokenizer\.sentencepiece\.path"):
        SentencePiece().make(corpus)


def test_a_vocabulary_too_small_is_refused():
    with pytest.raises(ConfigError, match=r"vocab_size = 100 .* \(256 bytes, 8 special ids .* must fit"):
        SentencePiece(vocab_size=100).make(CORPUS)


@pytest.mark.parametrize("symbols", [("a", "a"), ("",), ("</s>",)])
def test_unusable_symbols_are_refused(symbols):
    with pytest.raises(ConfigError, match="must be distinct and not empty, and cannot be <pad>, </s>, <unk>"):
        SentencePiece(symbols=symbols)


def test_an_unreadable_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="it does not hold a readable sentencepiece model"):
        SentencePiece(path=str(tmp_path)).make([])
    (tmp_path / "tokenizer.model").write_bytes(b"junk")
    with pytest.raises(DataError, match="it does not hold a readable sentencepiece model"):
        SentencePiece(path=str(tmp_path)).make([])


def test_is_registered():
    component = dovetail.get("tokenizer", "sentencepiece")
    assert component.bind() == SentencePiece()
    assert component.params["vocab_size"] == 512


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A model as others publish them: a beginning of sequence, turns as pieces, a dummy space in front."""
    proto = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=proto, vocab_size=340, model_type="bpe", byte_fallback=True, minloglevel=2,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, user_defined_symbols=["<start_of_turn>", "<end_of_turn>"], hard_vocab_limit=False,
    )  # fmt: skip
    file = tmp_path_factory.mktemp("published") / "tokenizer.model"
    file.write_bytes(proto.getvalue())
    return file


def test_a_published_model_may_have_several_ends(published):
    plain = SentencePiece(path=str(published)).make([])
    assert plain.eos_ids == (1,)
    chat = SentencePiece(path=str(published), eos_tokens=("<end_of_turn>", "</s>")).make([])
    assert chat.eos_ids == (5, 1)
    assert chat.decode([*chat.encode("add them"), 5, 1]) == "add them"
    with pytest.raises(ConfigError, match="eos_tokens: '<eot>' is not a piece of the model"):
        SentencePiece(path=str(published), eos_tokens=("<eot>",)).make([])


def test_the_beginning_of_a_prompt_is_an_id_where_asked(published):
    text = "what is 12?"
    plain = SentencePiece(path=str(published)).make([])
    assert plain.render(text) == text
    assert 2 not in plain.encode("<s>" + text)
    prompt = SentencePiece(path=str(published), add_bos=True).make([])
    assert prompt.render(text) == "<s>" + text == prompt.render("<s>" + text)
    assert prompt.encode(prompt.render(text)) == [2, *plain.encode(text)]
    with pytest.raises(ConfigError, match=r"add_bos = True, but the model has no piece that begins a text"):
        SentencePiece(vocab_size=300, add_bos=True).make(["abc"])


def test_half_of_a_surrogate_pair_is_refused(published):
    for tokenizer in (SentencePiece(path=str(published)).make([]), SentencePiece(vocab_size=300).make(["abc"])):
        for text in ("a\ud800", "\u2581\udfff"):
            with pytest.raises(DataError, match=r"cannot encode '.*\\ud.*'; half of a surrogate pair is no text"):
                tokenizer.encode(text)


def test_messages_need_a_template(published, tmp_path):
    messages = [{"role": "user", "content": "what is 12?"}]
    with pytest.raises(
        DataError, match="no chat template: name one with --set tokenizer.sentencepiece.chat_template=FILE"
    ):
        SentencePiece(path=str(published)).make([]).render(messages)
    template = tmp_path / "chat.jinja"
    template.write_text(
        "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>{% endfor %}"
    )
    maker = SentencePiece(path=str(published), chat_template=str(template))
    tokenizer = maker.make([])
    ids = tokenizer.encode(tokenizer.render(messages))
    assert ids[0] == 2
    assert [token for token in ids if token in (4, 5)] == [4, 5]
    tokenizer.save(tmp_path / "run")
    template.write_text("something else")
    assert maker.load(tmp_path / "run") == tokenizer
