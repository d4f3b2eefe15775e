"""Model folders that are truncated, inconsistent or of another format: refused before a tensor is read."""

import json
import os
import random
from pathlib import Path

import pytest
from tests.hostile.case import Case, attempt, attempt_call

from dovetail.errors import DovetailError
from dovetail_model.huggingface.safetensors import INDEX, SINGLE, open_folder
from dovetail_model.tokenizer.huggingface import HuggingFace
from dovetail_model.tokenizer.sentencepiece import SentencePiece

ONE = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def weights(header: object, *, data: bytes = bytes(16), length: int | None = None) -> bytes:
    """Return a safetensors file with any header, and optionally a wrong length of the header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def one(**changes) -> dict[str, bytes]:
    return {SINGLE: weights({"w": ONE | changes})}


def sharded(weight_map: object, **files: bytes) -> dict[str, bytes]:
    return {INDEX: json.dumps({"weight_map": weight_map}).encode(), **files}


TENSORS = {
    "no weights": ({}, "has neither model.safetensors nor"),
    "pickled weights": ({"pytorch_model.bin": b"\x80\x04cos\nsystem\n"}, r"save pytorch_model\.bin again as safetensors"),
    "pickled weights by another name": ({SINGLE: b"\x80\x04\x95" + bytes(99)}, "not a safetensors file|cut short"),
    "an empty file": ({SINGLE: b""}, "cut short: 0 bytes"),
    "seven bytes": ({SINGLE: bytes(7)}, "cut short: 7 bytes"),
    "a header of 2^63 bytes": ({SINGLE: weights({}, length=2**63)}, "its header would be 9,223,372,036,854,775,808 bytes"),
    "a header of 2^64 - 1 bytes": ({SINGLE: weights({}, length=2**64 - 1)}, "its header would be"),
    "a header beyond the file": ({SINGLE: weights({}, length=5000)}, "its header alone ends at 5,008"),
    "a header cut short": ({SINGLE: weights({"w": ONE}, length=9)}, "its header cannot be read"),
    "a header that is not JSON": ({SINGLE: weights(b"{]")}, "its header cannot be read"),
    "a header that is a list": ({SINGLE: weights([])}, "its header cannot be read"),
    "a header of bytes": ({SINGLE: weights(b"\xff\xfe")}, "its header cannot be read"),
    "a header 100,000 deep": ({SINGLE: weights(b"[" * 100_000)}, "its header cannot be read"),
    "a header with a tensor twice": (
        {SINGLE: weights(b'{"w": %b, "w": %b}' % ((json.dumps(ONE).encode(),) * 2))}, "'w'.* twice"
    ),
    "a tensor that is a number": ({SINGLE: weights({"w": 3})}, "its header cannot be read"),
    "a tensor without a shape": ({SINGLE: weights({"w": {"dtype": "F32", "data_offsets": [0, 16]}})}, "'shape'"),
    "an unknown type": (one(dtype="F4"), "w is of type F4; supported are"),
    "a type that is a list": (one(dtype=["F32"]), "its header cannot be read"),
    "a shape too large": (one(shape=[3, 3]), "w has 16 bytes; its shape and type make 36"),
    "a shape beyond 64 bits": (one(shape=[2**40, 2**40]), "w"),
    "a shape that comes round to the right size": (one(shape=[2**62, 4, 4]), "w"),
    "a negative shape": (one(shape=[-2, -2]), "w"),
    "a shape of fractions": (one(shape=[2.0, 2.0]), "w"),
    "a shape of text": (one(shape="22"), "w"),
    "a shape of 100 dimensions": (one(shape=[1] * 98 + [2, 2]), "w"),
    "negative offsets": (one(data_offsets=[-16, 0]), "w"),
    "offsets the wrong way round": (one(data_offsets=[16, 0]), "w has -16 bytes"),
    "offsets beyond the file": (one(data_offsets=[1000, 1016]), "cut short"),
    "offsets of fractions": (one(data_offsets=[0.0, 16.0]), "w"),
    "three offsets": (one(data_offsets=[0, 8, 16]), "its header cannot be read"),
    "tensors that overlap": ({SINGLE: weights({"v": ONE, "w": ONE})}, "overlap"),
    "data cut short": ({SINGLE: weights({"w": ONE}, data=bytes(15))}, "cut short: .* bytes of"),
    "an index that is not JSON": ({INDEX: b"{"}, "has no readable 'weight_map'"),
    "an index without a map": ({INDEX: b"{}"}, "has no readable 'weight_map'"),
    "an index of a missing file": (sharded({"w": "a.safetensors"}), "names a.safetensors, which are missing"),
    "an index of numbers": (sharded({"w": 3}), "weight_map"),
    "an index of a file outside": (sharded({"w": "../a.safetensors"}), r"'\.\./a\.safetensors'.* outside"),
    "an index of a file anywhere": (sharded({"w": "/etc/passwd"}), r"'/etc/passwd'.* outside"),
    "an index of a tensor that is nowhere": (
        sharded({"w": "a.safetensors", "v": "a.safetensors"}, **{"a.safetensors": weights({"w": ONE})}),
        "names tensors that are in no file: v",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "pattern"), TENSORS.values(), ids=TENSORS)
def test_tensors(files, pattern, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    attempt_call(lambda: open_folder(tmp_path), DovetailError, pattern)


QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
}


def planned(config: object, pattern: str) -> Case:
    """Return a case of a `config.json`, which `dovetail plan` reads."""
    text = config if isinstance(config, str | bytes) else json.dumps(config)
    command = "plan --set train.model=pretrained --set model.pretrained.path=m"
    return Case(command, pattern, files={"m/config.json": text})


CONFIGS = {
    "empty": planned("", r"m/config\.json: not valid JSON"),
    "not JSON": planned("{", r"m/config\.json: not valid JSON"),
    "bytes": planned(b"\xff\xfe", r"m/config\.json: not valid JSON"),
    "a list": planned([], r"m/config\.json: holds a list"),
    "brackets 100,000 deep": planned("[" * 100_000, r"m/config\.json: not valid JSON"),
    "nothing in it": planned({}, r"m/config\.json: "),
    "an unknown architecture": planned(QWEN2 | {"architectures": ["Qwen9"], "model_type": "qwen9"}, r"m/config\.json: .*qwen9"),
    "an architecture that is a path": planned(QWEN2 | {"architectures": ["x"], "model_type": "../../x"}, r"m/config\.json: "),
    "an escape sequence": planned(QWEN2 | {"architectures": ["\x1b[31m"], "model_type": "\x1b[31m"}, r"m/config\.json: "),
    "no width": planned({k: v for k, v in QWEN2.items() if k != "hidden_size"}, "'hidden_size' is missing"),
    "a width of text": planned(QWEN2 | {"hidden_size": "32"}, "hidden_size = '32'; it must be of type int"),
    "a width of zero": planned(QWEN2 | {"hidden_size": 0}, "hidden_size = 0; it must be at least 1"),
    "heads that do not divide": planned(QWEN2 | {"num_key_value_heads": 3}, "is not a multiple"),
    "10^18 layers": planned(QWEN2 | {"num_hidden_layers": 10**18}, "num_hidden_layers"),
    "10^30 words": planned(QWEN2 | {"vocab_size": 10**30}, "vocab_size"),
    "architectures of a number": planned(QWEN2 | {"architectures": 3}, "architectures = 3"),
    "positions of base 0": planned(QWEN2 | {"rope_theta": 0}, r"m/config\.json: rope_theta = 0\.0; it must be above 0"),
    "positions divided by 0": planned(
        QWEN2 | {"rope_scaling": {"rope_type": "linear", "factor": 0.0}}, r"m/config\.json: factor = 0\.0; it must be above 0"
    ),
    "positions that are a number": planned(
        QWEN2 | {"rope_parameters": {"full_attention": 3}}, r"m/config\.json: full_attention = 3; it must be of type dict"
    ),
    "positions that turn 1e308 times": planned(
        QWEN2 | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "beta_fast": 1e308}},
        r"m/config\.json: beta_fast = 1e\+308; it must be at most 1e30",
    ),
    "an epsilon of NaN": planned(QWEN2 | {"rms_norm_eps": float("nan")}, "rms_norm_eps = nan"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGS.values(), ids=CONFIGS)
def test_a_config(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
END = {
    "id": 3,
    "content": "<e>",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
TOKENIZER = {"version": "1.0", "added_tokens": [END], "pre_tokenizer": BYTES, "decoder": BYTES, "model": BPE}
SETTINGS = {"eos_token": "<e>"}
TENFOLD = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
NOWHERE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<zz>", "type_id": 0}}],
    "pair": [],
    "special_tokens": {},
}


def words(tokenizer: object = TOKENIZER, settings: object = SETTINGS, **others: object) -> dict[str, bytes]:
    """Return the files of a tokenizer; `generation_config={...}` adds `generation_config.json`."""
    found = {"tokenizer": tokenizer, "tokenizer_config": settings, **others}
    return {
        f"{name}.json": each if isinstance(each, bytes) else json.dumps(each).encode() for name, each in found.items()
    }


def ending(**generation: object) -> dict[str, bytes]:
    return words(TOKENIZER, {}, generation_config=generation)


def template(of: object) -> dict[str, bytes]:
    return words(TOKENIZER, SETTINGS | {"chat_template": of})


TOKENIZERS = {
    "none": ({}, r"tokenizer\.json"),
    "empty": ({"tokenizer.json": b""}, r"tokenizer\.json"),
    "not JSON": ({"tokenizer.json": b"{"}, r"tokenizer\.json"),
    "a list": ({"tokenizer.json": b"[]"}, r"tokenizer\.json"),
    "bytes": ({"tokenizer.json": b"\xff" * 64}, r"tokenizer\.json"),
    "brackets 100,000 deep": ({"tokenizer.json": b"[" * 100_000}, r"tokenizer\.json"),
    "an unknown kind": ({"tokenizer.json": b'{"model": {"type": "no"}}'}, r"tokenizer\.json"),
    "an id of 2^40": (words(TOKENIZER | {"model": BPE | {"vocab": {"a": 2**40}, "merges": []}}), "tokenizer.json: .*readable"),
    "a negative id": (words(TOKENIZER | {"model": BPE | {"vocab": {"a": -1}, "merges": []}}), "tokenizer.json: .*readable"),
    "a merge of what is not there": (words(TOKENIZER | {"model": BPE | {"merges": ["x y"]}}), "tokenizer.json: .*`x`"),
    "an unknown token that is unknown": (words(TOKENIZER | {"model": BPE | {"unk_token": "<u>"}}), "tokenizer.json: it cannot encode .*<u>"),
    "words without one for the rest": (
        words(TOKENIZER | {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<u>"}}), "it cannot encode"
    ),
    "a panic while it is read": (
        words(TOKENIZER | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}), "readable.*charsmap"
    ),
    "a panic at an empty text": (words(TOKENIZER | {"post_processor": NOWHERE}, SETTINGS | {"bos_token": "<e>"}), "empty text"),
    "a text that grows a billion times": (
        words(TOKENIZER | {"normalizer": {"type": "Sequence", "normalizers": [TENFOLD] * 9}}), "more than 100,000 characters of one"
    ),
    "a decoder that does": (words(TOKENIZER | {"decoder": {"type": "Sequence", "decoders": [TENFOLD] * 9}}), "of its decoder"),
    "settings that are a list": (words(TOKENIZER, []), r"tokenizer_config\.json holds a JSON list"),
    "settings 100,000 deep": (words(TOKENIZER, b'{"a":' * 100_000), r"tokenizer_config\.json: not valid JSON"),
    "settings of bytes": (words(special_tokens_map=b"\xff\xfe"), r"special_tokens_map\.json: not valid JSON"),
    "no end": (words(TOKENIZER, {}), "does not say which token ends a completion"),
    "an end that is a number": (words(TOKENIZER, {"eos_token": 5}), "does not say which token ends a completion"),
    "an end that is not there": (words(TOKENIZER, {"eos_token": "<f>"}), r"tokenizer_config\.json: the token '<f>'.*Did you mean '<e>'"),
    "half a character": (words(TOKENIZER, b'{"eos_token": "\\ud800"}'), r"tokenizer_config\.json: the token"),
    "a beginning that is not there": (words(TOKENIZER, SETTINGS | {"bos_token": "<f>", "add_bos_token": True}), "the token '<f>'"),
    "an end out of range": (ending(eos_token_id=4), r"eos_token_id = 4 is not an id of its tokenizer\.json, which has 4"),
    "a negative end": (ending(eos_token_id=-1), "eos_token_id = -1 is not an id"),
    "an end beyond 64 bits": (ending(eos_token_id=2**70), "eos_token_id = 1180591620717411303424 is not an id"),
    "an end in quotes": (ending(eos_token_id="3"), "eos_token_id = '3' is not an id"),
    "an end of a fraction": (ending(eos_token_id=3.0), r"eos_token_id = 3\.0 is not an id"),
    "an end of a truth": (ending(eos_token_id=True), "eos_token_id = True is not an id"),
    "ends in a list of lists": (ending(eos_token_id=[[3]]), r"eos_token_id = \[3\] is not an id"),
    "a template of a number": (template(5), r"tokenizer_config\.json: chat_template is 5; it must be a text"),
    "a template of an object": (template({"default": "x"}), "chat_template is {'default': 'x'}; it must be a text"),
    "a named template without text": (template([{"name": "default"}]), "chat_template is {'name': 'default'}; it must be"),
    "a template of bytes": (words() | {"chat_template.jinja": b"\xff\xfe"}, r"chat_template\.jinja: not UTF-8 text"),
    "a template that is not jinja": (template("{% if %}"), r"the chat template .*tokenizer_config\.json, line 1: "),
}  # fmt: skip


@pytest.mark.parametrize(("files", "pattern"), TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer(files, pattern, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    attempt_call(lambda: HuggingFace(path=str(tmp_path)).make([]), DovetailError, pattern)


@pytest.mark.parametrize("listed", [-1, 10**6, True, "3", None])
def test_a_padding_id_that_is_none_is_not_used(listed, tmp_path):
    """Padding is masked, but an id beyond the embedding makes NaN of it; some models have -1."""
    for name, content in ending(eos_token_id=3, pad_token_id=listed).items():
        (tmp_path / name).write_bytes(content)
    assert HuggingFace(path=str(tmp_path)).make([]).pad_id == 3


def test_a_tokenizer_gives_a_text_the_same_ids_every_time(tmp_path):
    for name, content in words(TOKENIZER | {"model": BPE | {"dropout": 0.5}}).items():
        (tmp_path / name).write_bytes(content)
    tokenizer = HuggingFace(path=str(tmp_path)).make([])
    assert {tuple(tokenizer.encode("ab" * 20)) for _ in range(5)} == {(2,) * 20}


def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    for name, content in words(TOKENIZER | {"pre_tokenizer": split}).items():
        (tmp_path / name).write_bytes(content)
    tokenizer = HuggingFace(path=str(tmp_path)).make([])
    attempt_call(
        lambda: tokenizer.encode("a" * 40 + "b"), DovetailError, r"tokenizer\.json: it cannot encode 'a+b': .*limit"
    )


def noisy(proto: bytes, seed: int) -> bytes:
    chance, changed = random.Random(seed), bytearray(proto)
    changed[chance.randrange(len(proto))] = chance.randrange(256)
    return bytes(changed)


@pytest.fixture(scope="module")
def proto():
    return SentencePiece(vocab_size=300).make(["what is 12 + 34? <answer>46</answer>"]).proto


@pytest.mark.parametrize(
    "spoil",
    [
        *[lambda proto, part=part: proto[: int(part * len(proto))] for part in (0, 0.01, 0.5, 0.999)],
        *[lambda proto, seed=seed: noisy(proto, seed) for seed in range(20)],
        lambda _: bytes(100),
        lambda _: b"hello world" * 10,
        lambda proto: proto.replace(b"</s>", b"</t>"),
    ],
)
def test_a_sentencepiece_model(spoil, proto, tmp_path):
    """One that can be used although a byte is wrong may be; any other is refused in a line."""
    (tmp_path / "tokenizer.model").write_bytes(spoil(proto))
    try:
        tokenizer = SentencePiece(path=str(tmp_path)).make([])
    except DovetailError as error:
        refused = error
    else:
        assert tokenizer.eos_ids
        tokenizer.decode([*tokenizer.encode("12 + 1 ☃"), 10**9, -1])
        return
    assert "\n" not in str(refused)
    assert str(tmp_path) in str(refused)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_sentencepiece_model_that_is_no_file(make, tmp_path):
    make(tmp_path / "m")
    attempt_call(lambda: SentencePiece(path=str(tmp_path / "m")).make([]), DovetailError, "m: it|m/tokenizer.model: it")
