"""Tool `search`: which passages are found, in which order, and corpora that cannot be read."""

import json
import pickle

import pytest

from dovetail.errors import DataError
from dovetail_agent.tool.search import Search, index

PASSAGES = [
    {"title": "Vexa", "text": "A town by the sea, founded by Ilmo."},
    {"title": "Ilmo", "text": "A baker of towns and of towns, who has founded towns."},
    {"text": "Nothing\nof all this, but a long line about bread."},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES) + "\n")
    return str(path)


def test_passages_come_by_rank(corpus):
    found = Search(corpus=corpus)("Which TOWN did Ilmo found?", None)
    assert found.splitlines() == [
        "[1] Ilmo: A baker of towns and of towns, who has founded towns.",
        "[2] Vexa: A town by the sea, founded by Ilmo.",
    ]
    assert Search(corpus=corpus)("sea", 3) == "[1] Vexa: A town by the sea, founded by Ilmo."


def test_ranks_are_bm25(tmp_path):
    """By hand: idf · f (k₁ + 1) / (f + k₁ (1 - b + b · length / mean length)), with sqlite's idf."""
    path = tmp_path / "lines.txt"
    path.write_text("red red blue\nred green\ngreen\ngreen green green green\n")
    rows = (
        index(str(path)).execute("SELECT text, rank FROM passages WHERE passages MATCH 'red' ORDER BY rank").fetchall()
    )
    from math import log

    idf = max(log((4 - 2 + 0.5) / (2 + 0.5)), 1e-6)
    score = lambda f, n: idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * n / 2.5))  # noqa: E731
    assert [text for text, _ in rows] == ["red red blue", "red green"]
    assert [-rank for _, rank in rows] == pytest.approx([score(2, 3), score(1, 2)])


def test_limits(corpus):
    assert Search(corpus=corpus)("towns", 1).count("\n") == 0
    assert Search(corpus=corpus, most=1)("towns", 50).count("\n") == 0
    assert Search(corpus=corpus)("towns", -5).startswith("[1]")
    assert Search(corpus=corpus, characters=9)("bread", None) == "[1] Nothing o..."


@pytest.mark.parametrize("query", ["", "zzz", '" OR "', "NEAR(", "a" * 100_000, "\ud800", "title:"])
def test_any_query_is_answered(corpus, query):
    assert Search(corpus=corpus)(query, None) == "no passage has any of these words"


def test_a_line_of_text_is_a_passage_and_a_folder_has_many_files(tmp_path, corpus):
    (tmp_path / "more.txt").write_text("of trains\n\nof ships\n")
    (tmp_path / "other.md").write_text("of ships")
    assert Search(corpus=str(tmp_path))("ships", None) == "[1] of ships"
    assert "Vexa" in Search(corpus=str(tmp_path))("sea", None)


def test_it_goes_to_other_processes(corpus):
    assert pickle.loads(pickle.dumps(Search(corpus=corpus)))("sea", None).startswith("[1]")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": ', r"a.jsonl:2: the line is not valid JSON"),
        ("b.jsonl", b'{"body": "x"}\n', r'b.jsonl:1: a passage is \{"text".*this record has the keys body'),
        ("c.jsonl", b"[1]\n", r"c.jsonl:1: .* has type list"),
        ("d.txt", b"\xff\xfe", r"d.txt: the corpus cannot be read: .*codec"),
    ],
)
def test_a_corpus_that_cannot_be_read_says_where(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        Search(corpus=str(tmp_path / name))


def test_a_corpus_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"the corpus 'local_serch' is neither a file nor a folder, nor a task with"):
        Search(corpus="local_serch")
    with pytest.raises(DataError, match=r"is a folder without .jsonl and .txt files"):
        Search(corpus=str(tmp_path))
