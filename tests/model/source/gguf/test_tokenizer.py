"""The tokenizer and chat template of a GGUF file are those of the folder that it was made from."""

import io
import sys

import pytest
import sentencepiece
from gguf import TokenType
from tests.model.gguf_files import tokenizer_metadata, write_gguf
from tests.tiny_folder import write as write_folder

from dovetail.errors import ConfigError, DataError
from dovetail_model.source.gguf.tokenizer import SPLITS
from dovetail_model.tokenizer.huggingface import HuggingFace

TEXTS = [
    "",
    "Solve the problem below: what is 12 + 34?",
    "  two  spaces\n\n\tand 1234 lines\r\n don't",
    "é漢🙂 <|im_start|>user\n6 * 7<|im_end|>",
]
QUESTION = [{"role": "user", "content": "what is 6 * 7?"}]


def opened(path, **params):
    return HuggingFace(path=str(path), **params).make([])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    write_folder(path)
    return path


def metadata_of(folder, **changes):
    return tokenizer_metadata(folder) | {"context_length": 2048} | changes


@pytest.fixture
def file(folder, tmp_path):
    return lambda **changes: write_gguf(tmp_path / "m.gguf", "llama", {}, metadata_of(folder, **changes))


def test_it_is_the_folder_s(folder, file):
    ours, theirs = opened(file()), opened(folder)
    assert [ours.encode(text) for text in TEXTS] == [theirs.encode(text) for text in TEXTS]
    assert ours.render(QUESTION) == theirs.render(QUESTION)
    assert ours.vocabulary == theirs.vocabulary
    assert (ours.eos_ids, ours.pad_id, ours.bos) == (theirs.eos_ids, theirs.pad_id, theirs.bos)
    ids = theirs.encode(TEXTS[3])
    assert ours.decode(ids) == theirs.decode(ids) == "é漢🙂 user\n6 * 7"


def test_a_run_keeps_it(file, tmp_path):
    tokenizer = opened(file())
    tokenizer.save(tmp_path / "run")
    assert HuggingFace().load(tmp_path / "run") == tokenizer
    assert opened(tmp_path / "run") == tokenizer


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "a  12", ["a", "Ġ", "Ġ12"]),
        ("smollm", "a  12", ["a", "ĠĠ", "1", "2"]),
        ("qwen2", "I'M at 1234!?\n", ["I", "'M", "Ġat", "Ġ", "1", "2", "3", "4", "!?Ċ"]),
        ("llama-bpe", "I'M at 1234!?\n", ["I", "'M", "Ġat", "Ġ", "123", "4", "!?Ċ"]),
        ("tekken", "HelloWorld 12/\n", ["Hello", "World", "Ġ", "1", "2", "/Ċ"]),
    ],
)
def test_text_is_split_first_as_the_file_says(pre, text, pieces, file):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(opened(file(**{"tokenizer.ggml.pre": pre})).files["tokenizer.json"])
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_whole_tokens_are_read_as_one(folder, file):
    said = metadata_of(folder)
    types = list(said["tokenizer.ggml.token_type"])
    types[said["tokenizer.ggml.tokens"].index("Ġproblem")] = int(TokenType.USER_DEFINED)
    tokenizer = opened(file(**{"tokenizer.ggml.token_type": types}))
    whole = tokenizer.vocabulary["Ġproblem"]
    assert whole in tokenizer.encode("12Ġproblem34")
    assert whole not in opened(file()).encode("12Ġproblem34")


def test_the_beginning_of_a_text_is_as_the_file_says(file):
    begin = {"tokenizer.ggml.bos_token_id": 0}
    first = opened(file(**begin, **{"tokenizer.ggml.add_bos_token": True})).bos
    assert first
    assert opened(file(**begin, **{"tokenizer.ggml.add_bos_token": False})).bos == ""
    assert opened(file(**begin)).bos == ""
    assert opened(file(**begin, **{"tokenizer.ggml.pre": "llama-bpe"})).bos == first


def trained(**options):
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["what is 12 + 34? the answer is 46, as 12 + 34 = 46"] * 5),
        model_writer=proto,
        model_type="bpe",
        vocab_size=310,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=proto.getvalue())


@pytest.fixture(scope="module")
def pieces():
    return trained()


def sentencepiece_metadata(pieces, **changes):
    every = range(pieces.get_piece_size())
    kinds = [(pieces.is_unknown, 2), (pieces.is_control, 3), (pieces.is_byte, 6), (lambda _: True, 1)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [pieces.id_to_piece(i) for i in every],
        "tokenizer.ggml.scores": [pieces.get_score(i) for i in every],
        "tokenizer.ggml.token_type": [next(kind for test, kind in kinds if test(i)) for i in every],
        "tokenizer.ggml.bos_token_id": pieces.bos_id(),
        "tokenizer.ggml.eos_token_id": pieces.eos_id(),
        "tokenizer.ggml.unknown_token_id": pieces.unk_id(),
        "context_length": 64,
    } | changes


@pytest.mark.parametrize("text", ["what is 12 + 34?", "  two  spaces", "é漢🙂\n", "the answer"])
def test_sentencepiece_models_read_text_as_sentencepiece_does(pieces, text, tmp_path):
    tokenizer = opened(write_gguf(tmp_path / "m.gguf", "llama", {}, sentencepiece_metadata(pieces)))
    ids = pieces.encode(text)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.bos == "<s>"


def test_gemma_puts_no_space_in_front_and_its_scores_mean_nothing(tmp_path):
    pieces = trained(add_dummy_prefix=False)
    said = sentencepiece_metadata(pieces, **{"tokenizer.ggml.scores": [0.0] * pieces.get_piece_size()})
    tokenizer = opened(write_gguf(tmp_path / "m.gguf", "gemma2", {}, said))
    for text in ("12 + 34", " 12", "  the answer é"):
        assert tokenizer.encode(text) == pieces.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model = 'bert' is not supported. Supported: gpt2, llama"),
        (
            {"tokenizer.ggml.pre": "kimi"},
            f"tokenizer.ggml.pre = 'kimi' is not supported. Supported: {', '.join(SPLITS)}",
        ),
        ({"tokenizer.ggml.tokens": "abc"}, "tokenizer.ggml.tokens = 'abc'; it must be of type list"),
    ],
)
def test_other_tokenizers_are_refused(changes, message, file):
    with pytest.raises(ConfigError, match=f"m.gguf: {message}"):
        opened(file(**changes))


def test_a_file_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"m\.gguf' has no tokenizer\.json"):
        opened(write_gguf(tmp_path / "m.gguf", "llama", {}, {}))


def test_without_the_library_the_message_says_what_to_install(file, monkeypatch):
    path = file()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"needs the tokenizers library: pip install .*\[hf\]"):
        opened(path)
