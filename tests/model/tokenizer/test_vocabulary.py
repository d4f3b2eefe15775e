"""A model of a role must read the ids that the run writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.tiny_folder import write

from dovetail.errors import ConfigError
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.tokenizer.huggingface import HuggingFace
from dovetail_model.tokenizer.sentencepiece import SentencePiece


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    write(path)
    return path


def changed(folder: Path, to: Path, change) -> Path:
    """A copy of a folder whose `tokenizer.json` is another."""
    shutil.copytree(folder, to)
    file = to / "tokenizer.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return to


def tokenizer(folder: Path):
    return HuggingFace(path=str(folder)).make([])


def check(tokenizer, folder: Path) -> None:
    Pretrained(path=str(folder)).check_tokenizer(tokenizer)


def test_the_folder_s_own_fits(folder):
    check(tokenizer(folder), folder)


def test_a_tokenizer_that_reads_other_ids_is_refused_with_the_first_piece(folder, tmp_path):
    def swap(content):
        vocabulary = content["model"]["vocab"]
        first, second = sorted(vocabulary, key=vocabulary.get)[5:7]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]

    other = changed(folder, tmp_path / "other", swap)
    with pytest.raises(
        ConfigError, match=r"its tokenizer is not the run's: '.+' is id 5 in the run and 6 there \(2 of"
    ):
        check(tokenizer(folder), other)


def test_a_piece_that_the_model_lacks_is_refused_and_one_that_the_run_lacks_is_not(folder, tmp_path):
    def think(content):
        last = content["added_tokens"][-1]
        content["added_tokens"].append({**last, "id": last["id"] + 1, "content": "<think>"})

    larger = changed(folder, tmp_path / "larger", think)
    check(tokenizer(folder), larger)
    with pytest.raises(ConfigError, match=r"'<think>' is id \d+ in the run and not in its vocabulary \(1 of"):
        check(tokenizer(larger), folder)


def test_more_ids_than_rows_of_the_embedding_are_refused(folder):
    class Large:
        vocab_size = 100_000

    with pytest.raises(ConfigError, match="the tokenizer has 100,000 ids and the embedding"):
        check(Large(), folder)


def test_a_sentencepiece_model_is_compared_too(folder, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(folder, plain, ignore=shutil.ignore_patterns("tokenizer*"))
    ours, other = (SentencePiece(vocab_size=300).make([text] * 50) for text in ("12 + 3 = 15", "what is this?"))
    check(ours, plain)  # no tokenizer in the folder: nothing to compare with
    ours.save(plain)
    check(ours, plain)
    with pytest.raises(ConfigError, match="its tokenizer is not the run's"):
        check(other, plain)


def test_a_folder_that_is_not_there_is_one_line(folder):
    with pytest.raises(ConfigError, match=r"/nowhere: is not a folder; a model is a folder with config.json"):
        check(tokenizer(folder), Path("/nowhere"))
