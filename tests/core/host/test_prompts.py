"""Prompts become left-padded arrays; prompts that are too long are refused, cut or filtered, and always counted."""

import attrs
import numpy as np
import pytest

from dovetail.errors import DataError, DovetailWarning
from dovetail.host import prompts
from dovetail.host.prompts import MEASURED, Limit, encode, encode_completions, fit, rendered


class Letters:
    """One id per character."""

    vocab_size, pad_id, eos_ids = 128, 0, (1,)

    def encode(self, text):
        return [ord(c) for c in text]


EXAMPLES = [{"prompt": "ab"}, {"prompt": "abcdef"}, {"prompt": "abc"}]


def limit(action, tokens=3):
    return Limit(
        column="prompt",
        tokens=tokens,
        setting="train.max_prompt_tokens",
        action=action,
        action_setting="train.long_prompts",
    )


def test_prompts_are_padded_on_the_left():
    tokens, mask = encode(["ab", ""], Letters(), 3)
    assert tokens.tolist() == [[0, 97, 98], [0, 0, 0]]
    assert mask.tolist() == [[False, True, True], [False, False, False]]


def test_a_cut_prompt_keeps_its_end():
    tokens, _ = encode(["abcdef"], Letters(), 3)
    assert tokens.tolist() == [[100, 101, 102]]


def test_a_completion_ends_in_eos_which_the_mask_keeps():
    tokens, mask = encode_completions(["ab"], Letters(), 4)
    assert tokens.tolist() == [[97, 98, 1, 0]]
    assert mask.tolist() == [[True, True, True, False]]


def test_a_cut_completion_has_no_eos():
    tokens, mask = encode_completions(["abcd"], Letters(), 4)
    assert tokens.tolist() == [[97, 98, 99, 100]]
    assert mask.all()


def test_too_long_is_an_error_that_counts_and_says_the_ways_out():
    with pytest.raises(DataError) as caught:
        fit(EXAMPLES, Letters(), limit("error"))
    assert str(caught.value) == (
        "1 of 3 prompts exceed train.max_prompt_tokens = 3 (longest 6 tokens): refused."
        " Raise train.max_prompt_tokens to 6, or set train.long_prompts to 'filter' or 'truncate'"
    )


def test_filtering_leaves_them_out_and_reports():
    kept, report = fit(EXAMPLES, Letters(), limit("filter"))
    assert [e["prompt"] for e in kept] == ["ab", "abc"]
    assert [e["prompt"] for e in kept[1:]] == ["abc"]
    assert str(report) == "1 of 3 prompts exceed train.max_prompt_tokens = 3 (longest 6 tokens): left out"


def test_filtering_everything_is_an_error():
    with pytest.raises(DataError, match="3 of 3 prompts exceed .* None is left"):
        fit(EXAMPLES, Letters(), limit("filter", 1))


class Endless:
    """A task of millions of prompts, which counts how many are read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 2_000_000

    def __getitem__(self, number):
        self.read.append(number)
        return {"prompt": "abcdef" if number == 1_999_999 else "ab"}


def test_of_millions_the_first_are_measured_and_the_others_when_they_are_asked_for():
    task = Endless()
    kept, report = fit(task, Letters(), limit("error"))
    assert len(task.read) <= MEASURED
    assert (report.total, report.of, len(kept)) == (MEASURED, 2_000_000, 2_000_000)
    assert kept[20_000] == kept[-2] == {"prompt": "ab"}
    told = "prompt 1999999 of 2000000 has 6 tokens and exceeds train.max_prompt_tokens = "
    for number in (1_999_999, -1):
        with pytest.warns(DovetailWarning, match=f"{told}.*: the next one that fits takes its place"):
            assert kept[number] == {"prompt": "ab"}
    held_out, _ = fit(task, Letters(), attrs.evolve(limit("error"), split="eval"))
    with pytest.raises(DataError, match=f"eval {told}"):
        held_out[-1]


class Counted(Letters):
    """Counts the texts that it encodes."""

    def __init__(self):
        self.encoded = 0

    def encode(self, text):
        self.encoded += 1
        return super().encode(text)


def test_an_example_with_two_limits_is_read_once_and_each_of_its_texts_measured_once():
    task, tokenizer = Endless(), Counted()
    kept, _ = fit(task, tokenizer, limit("error"))
    kept, _ = fit(kept, tokenizer, limit("error", 4))
    task.read.clear()
    tokenizer.encoded = 0
    assert kept[20_000] == {"prompt": "ab"}
    assert (task.read, tokenizer.encoded) == ([20_000], 2)


def test_filtering_many_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(prompts, "TOLD_EVERY", 2)
    fit(EXAMPLES, Letters(), attrs.evolve(limit("filter"), split="train"))
    assert capsys.readouterr().err == "measuring train prompts: 2 of 3\n"


def test_truncation_keeps_all_examples():
    kept, report = fit(EXAMPLES, Letters(), limit("truncate"))
    assert len(kept) == 3
    assert report.too_long == 1


def test_what_fits_is_untouched():
    kept, report = fit(EXAMPLES, Letters(), limit("error", 6))
    assert kept is EXAMPLES
    assert (report.too_long, report.longest) == (0, 6)
    assert isinstance(np.asarray(report.total).item(), int)


class Chat(Letters):
    """Renders a conversation as its contents."""

    def render(self, prompt):
        return prompt if isinstance(prompt, str) else "".join(f"[{m['content']}]" for m in prompt)


def test_prompts_are_rendered_where_they_leave_their_task():
    task = [{"prompt": "a", "answer": 1}, {"prompt": [{"role": "user", "content": "b"}], "answer": 2}]
    examples = rendered(task, lambda example: Chat().render(example["prompt"]))
    assert list(examples) == [{"prompt": "a", "answer": 1}, {"prompt": "[b]", "answer": 2}]
    assert [e["prompt"] for e in examples[1:]] == ["[b]"]
    kept, report = fit(examples, Chat(), limit("filter", tokens=2))
    assert [e["prompt"] for e in kept] == ["a"]
    assert report.longest == 3


@pytest.mark.parametrize(("action", "left"), [("filter", [0, 2]), ("truncate", [0, 1, 2])])
def test_other_texts_can_be_measured_than_those_of_the_examples_returned(action, left):
    own = [{"prompt": number} for number in range(3)]
    kept, _ = fit(own, Letters(), limit(action), EXAMPLES)
    assert [e["prompt"] for e in kept] == left


def test_of_millions_the_texts_shown_are_measured_when_their_examples_are_asked_for():
    kept, _ = fit(range(2_000_000), Letters(), limit("error"), Endless())
    assert kept[20_000] == 20_000
    with pytest.warns(DovetailWarning, match="prompt 1999999 of 2000000"):
        assert kept[-1] == 0


class OneByOne:
    """What a lazy task may give: a length, and single examples."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"prompt": {0: "a", 1: "b", 2: "c", 3: "d"}[index]}


def test_a_task_is_asked_for_single_examples_only():
    examples = rendered(OneByOne(), lambda example: example["prompt"].upper())
    assert [e["prompt"] for e in examples[1:3]] == ["B", "C"]
    assert [e["prompt"] for e in examples[-1:]] == ["D"]


class Bridged(Letters):
    def bridge(self, messages):
        return [7] * len(messages)


def test_a_demonstration_of_several_turns_is_masked_where_others_speak():
    said = [
        {"role": "assistant", "content": "ab"},
        {"role": "tool", "content": "c"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "a"},
    ]
    tokens, mask = encode_completions([said, "a"], Bridged(), 9)
    end = Bridged().eos_ids[0]
    assert tokens[0, [2, 3, 4, 6]].tolist() == [end, 7, 7, end]
    assert mask[0].tolist() == [True] * 3 + [False] * 2 + [True] * 2 + [False] * 2
    assert mask[1].sum() == 2
    examples = [{"prompt": "a", "completion": said}]
    _, report = fit(examples, Bridged(), attrs.evolve(limit("error", tokens=6), column="completion"))
    assert report.longest == 6
    with pytest.raises(DataError, match="begins and ends with the assistant's"):
        encode_completions([said[1:]], Bridged(), 9)
