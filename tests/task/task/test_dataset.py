"""Data sets as the `datasets` library reads them."""

import json
import sys

import pytest
from tests.model.source.conftest import hub  # noqa: F401 - a fixture

from dovetail.errors import ConfigError, DataError
from dovetail.run.sources import SOURCES, kept_in
from dovetail_task.task.dataset import Dataset

datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own

ROWS = {
    "train": [{"problem": f"{i} + {i}?", "answer": str(2 * i), "n": i} for i in range(20)],
    "test": [{"problem": f"{i} * {i}?", "answer": str(i * i), "n": i} for i in range(5)],
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    datasets.disable_progress_bars()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    for split, rows in ROWS.items():
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def open_task(path, **params):
    return Dataset(path=str(path), **{"rename": {"problem": "prompt"}, "eval_split": "test", **params})


def test_splits_and_columns_of_a_folder(folder):
    task = open_task(folder, completion_column="answer")
    assert task.columns == ("answer", "n")
    train, held, shown = (task.examples(split) for split in ("train", "eval", "sft"))
    assert [len(train), len(held), len(shown)] == [20, 5, 20]
    assert train[3] == {"prompt": "3 + 3?", "answer": "6", "n": 3}
    assert held[4] == {"prompt": "4 * 4?", "answer": "16", "n": 4}
    assert shown[3]["completion"] == "6"
    assert task.corpus()[2] == "2 + 2?4"


def test_a_part_of_a_split_and_some_columns(folder):
    task = open_task(folder, split="train[5:9]", select=("problem", "n"), max_examples=3)
    assert list(task.examples("train")) == [{"prompt": f"{i} + {i}?", "n": i} for i in (5, 6, 7)]
    assert [len(task.examples("eval")), task.columns] == [3, ("n",)]


def test_formats_with_files_and_a_share_held_out(folder):
    task = open_task("json", files={"train": str(folder / "*.jsonl")}, eval_split=None, eval_share=0.3)
    train, held = ({row["prompt"] for row in task.examples(split)} for split in ("train", "eval"))
    assert len(train) + len(held) == 25
    assert held
    assert not train & held


def test_streaming_reads_the_beginning(folder):
    task = open_task(folder, streaming=True, max_examples=4, chat=True, system="Add.")
    assert [row["n"] for row in task.examples("train")] == [0, 1, 2, 3]
    assert task.examples("train")[0]["prompt"] == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "0 + 0?"},
    ]
    with pytest.raises(ConfigError, match=r"streaming = True needs an end: set task.dataset.max_examples"):
        Dataset(path=str(folder), streaming=True)


def test_what_save_to_disk_wrote(tmp_path):
    saved = datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split, rows in ROWS.items()})
    saved.save_to_disk(str(tmp_path / "saved"))
    assert len(open_task(tmp_path / "saved").examples("eval")) == 5
    with pytest.raises(DataError, match=r"has no split 'tset'. Did you mean 'test'\? Splits: test, train"):
        open_task(tmp_path / "saved", eval_split="tset").examples("eval")
    datasets.Dataset.from_list(ROWS["test"]).save_to_disk(str(tmp_path / "one"))
    assert len(open_task(tmp_path / "one", eval_split=None, eval_share=0.5).columns) == 2


@pytest.mark.parametrize(("file", "content"), [("state.json", b"{"), ("data-00000-of-00001.arrow", b"")])
def test_a_saved_data_set_that_is_damaged_is_one_line(file, content, tmp_path):
    datasets.Dataset.from_list(ROWS["test"]).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "saved" / file).write_bytes(content)
    with pytest.raises(DataError, match=r"saved \(train\): "):
        open_task(tmp_path / "saved", eval_split=None).examples("train")


def test_a_stream_that_breaks_is_one_line(folder):
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"problem"')
    with pytest.raises(DataError, match=r"data \(train\): JSON parse error"):
        open_task(folder, streaming=True, max_examples=100).examples("train")


@pytest.mark.parametrize("rename", [{"problem": "prompt", "answer": "prompt"}, {"problem": "answer"}])
@pytest.mark.parametrize("streaming", [False, True])
def test_two_columns_of_one_name_are_refused(rename, streaming, folder):
    with pytest.raises(DataError, match=r"would have two columns '(prompt|answer)' \(task.dataset.rename\)"):
        open_task(folder, rename=rename, streaming=streaming, max_examples=9).examples("train")


def test_names_of_columns_may_be_exchanged(folder):
    task = open_task(folder, rename={"problem": "answer", "answer": "prompt"})
    assert task.examples("train")[1] == {"prompt": "2", "answer": "1 + 1?", "n": 1}


def test_a_name_on_the_hub_is_pinned_to_its_commit(hub, folder, monkeypatch, tmp_path):  # noqa: F811
    asked = []

    def load_dataset(path, **options):
        asked.append({"path": path, **options})
        return datasets.Dataset.from_list(ROWS[options["split"]])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    commit = hub.add("acme/sums", {"README.md": b"sums", "train.jsonl": b""}, kind="datasets")
    with kept_in(tmp_path):
        task = open_task("acme/sums", name="main")
        assert [len(task.examples("train")), len(task.examples("eval"))] == [20, 5]
    expected = {"path": "acme/sums", "revision": commit, "name": "main", "streaming": False}
    assert asked == [{**expected, "split": "train"}, {**expected, "split": "test"}]
    assert json.loads((tmp_path / SOURCES).read_text()) == {"dataset acme/sums@main": commit}
    with pytest.raises(
        ConfigError, match="'acme/products' is neither a folder here nor a data set at .*datasets/acme/products"
    ):
        _ = open_task("acme/products").columns


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"path": None}, "name it with --set task.dataset.path=OWNER/NAME, or a folder or format"),
        ({"path": "sums"}, "'sums' is neither a folder here, nor OWNER/NAME on the hub, nor one of arrow, csv, json"),
        ({"path": "json"}, "'json' is a format: name the files in task.dataset.files"),
        ({"split": "trian"}, r'data \(trian\): Unknown split "trian". Should be one of'),
        (
            {"select": ("problm",)},
            r"no column 'problm' \(task.dataset.select\). Did you mean 'problem'\? Columns: answer",
        ),
        ({"rename": {"problm": "prompt"}}, r"no column 'problm' \(task.dataset.rename\). Did you mean 'problem'"),
        ({"rename": {}}, r"no column 'prompt' \(task.dataset.prompt_column\)"),
        ({"system": "Add."}, "task.dataset.system needs a conversation: set task.dataset.chat = True"),
    ],
)
def test_mistakes_are_one_line(params, message, folder):
    with pytest.raises((ConfigError, DataError), match=message):
        Dataset(**{"path": str(folder), "rename": {"problem": "prompt"}, **params}).examples("train")


def test_without_the_library_the_message_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"task dataset needs the datasets library: pip install .*\[datasets\]"):
        _ = open_task(folder).columns
