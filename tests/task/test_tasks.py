"""What every task keeps to; a new one joins by being registered, with a line in `MADE` if it needs data."""

import pickle
import subprocess
import sys

import pytest

import dovetail

DATA = "question,answer\n" + "".join(f'what is {i}?,"that\n#### {i}"\n' for i in range(60))
MADE = {
    "gsm8k": lambda path: {"path": path},
    "records": lambda path: {"path": path, "prompt_column": "question", "completion_column": "answer"},
}


@pytest.fixture(params=dovetail.names("task"))
def task(request, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(DATA)
    return dovetail.get("task", request.param).bind(**MADE.get(request.param, lambda _: {})(str(path)))


@pytest.mark.parametrize("split", ["train", "eval", "sft"])
def test_examples_hold_a_prompt_and_the_columns(task, split):
    examples = task.examples(split)
    assert len(examples) > 0
    for example in examples[:20]:
        assert isinstance(example["prompt"], str)
        assert set(task.columns) <= example.keys()
        assert isinstance(example["completion"], str) if split == "sft" else "completion" not in example


@pytest.mark.parametrize("split", ["train", "eval", "sft"])
def test_examples_are_the_same_at_every_call_and_after_pickling(task, split):
    first = list(task.examples(split)[:20])
    assert list(task.examples(split)[:20]) == first
    assert list(pickle.loads(pickle.dumps(task)).examples(split)[:20]) == first
    assert task.examples(split)[-1] == task.examples(split)[len(task.examples(split)) - 1]
    with pytest.raises(IndexError):
        task.examples(split)[len(task.examples(split))]


def test_the_held_out_prompts_are_not_trained_on(task):
    held = {example["prompt"] for example in task.examples("eval")}
    assert not held & {example["prompt"] for split in ("train", "sft") for example in task.examples(split)}


def test_the_corpus_is_text(task):
    assert len(task.corpus()) > 0
    assert all(isinstance(text, str) and text for text in task.corpus()[:20])


def test_tasks_and_sinks_import_nothing_heavy():
    code = (
        "import dovetail, sys\n"
        "for kind in ('task', 'sink'):\n"
        "    for name in dovetail.names(kind): dovetail.get(kind, name).load()\n"
        "dovetail.get('task', 'arithmetic').bind().examples('train')[0]\n"
        "print([m for m in ('jax', 'grain', 'matplotlib', 'pyarrow', 'rich', 'tensorboardX') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
