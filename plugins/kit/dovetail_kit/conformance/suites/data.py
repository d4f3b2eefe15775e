"""Claims about tasks, tokenizers and sinks: the data that a run reads and writes."""

from __future__ import annotations

import pickle
import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, listing
from dovetail.ranges import plain
from dovetail_kit.conformance.case import global_generators
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.clock import TooLong, limited
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.hyperparameters import numbers_of, others

FEW, CLEARLY = 10, 0.25
LOW, PATIENCE = 20, 10
"""Seconds of processor time for questions of a smaller range, of which there may be too few to find others."""
OF_EXAMPLES = re.compile(r"(^|_)(size|seed|count|limit|examples|records|rows)$")
SUM = "What is 1234567 + 89? It is 1234656."
WORDS = "NASA said: THE answer, McDonald's, is   here.\n\nIt IS."
"""Words of other cases and lengths, and more than one space."""
STRANGE = "#~é\N{SNOWMAN}\N{OHM SIGN}"
"""Characters of which few alphabets have all."""
SPLITS = ("train", "eval", "sft")
MANY = 500
"""How many examples are looked at, at most."""


def task_of(subject: Subject) -> Any:
    """Return the task of a subject; inapplicable if its data cannot be read here."""

    def make() -> Any:
        task = subject.bind()
        try:
            task.examples("train")
        except DovetailError as error:
            raise Inapplicable(
                f"its data cannot be read here: {error}; write the hook pytest_dovetail_settings in a conftest.py and"
                " return the path of a file with a few records"
            ) from error
        return task

    return subject.once("task", make)


def first_of(examples: Sequence[Any], count: int = MANY) -> list[Any]:
    """Return the first examples, at most `count`."""
    return [examples[index] for index in range(min(count, len(examples)))]


@check("task", fix="Return mappings with `prompt` and the columns; only demonstrations have a `completion`.")
def records(subject: Subject) -> None:
    """Examples have a prompt and the columns that rewards may read; demonstrations have a completion.

    A completion in a training example is an answer that a reward or the prompt could give away, and so is a prompt that
    ends with it. A reward that takes texts fails on the first number.
    """
    task = task_of(subject)
    for split in SPLITS:
        examples = task.examples(split)
        _keeps_the_answer(split, first_of(examples))
        if split == "train" and not len(examples):
            raise Failed("the split train is empty")
        for number, example in enumerate(first_of(examples)):
            where = f"{split}[{number}]"
            prompt = example.get("prompt")
            if not isinstance(prompt, str | Sequence) or not prompt or not _is_said(prompt):
                raise Failed(f"{where} has the prompt {prompt!r}; a message has a role and a content")
            missing = [column for column in task.columns if column not in example]
            if missing and split != "sft":
                raise Failed(f"{where} lacks {listing(missing)}, which `columns` announces")
            if split == "sft" and not _is_completion(example.get("completion")):
                raise Failed(f"{where} has the completion {example.get('completion')!r}")
            if split != "sft" and "completion" in example:
                raise Failed(f"{where} has a completion")
    _of_one_type(task.columns, [each for split in SPLITS[:2] for each in first_of(task.examples(split))])


def _is_said(prompt: Any) -> bool:
    """Tell whether it is a text, or messages with a role and a content."""
    return isinstance(prompt, str) or all(
        isinstance(each, Mapping) and "role" in each and ("content" in each or len(each) > 1) for each in prompt
    )


def _of_one_type(columns: Sequence[str], examples: Sequence[Any]) -> None:
    """Complain about a column that holds texts in some examples, and numbers in others."""
    for column in columns:
        types = {str if isinstance(each[column], str) else float for each in examples if _is_plain(each.get(column))}
        if len(types) > 1:
            raise Failed(f"the column '{column}' holds texts in some examples, and numbers in others")


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _keeps_the_answer(split: str, examples: Sequence[Any]) -> None:
    """Complain about prompts that all end with the answer."""
    given = [
        answer
        for example in examples
        if isinstance(example.get("prompt"), str)
        and (answer := str(example.get("answer") or example.get("completion") or ""))
        and example["prompt"].rstrip().endswith(answer)
    ]
    if len(given) == len(examples) > 1:
        raise Failed(f"every prompt of {split} ends with its answer; {split}[0] with {given[0]!r}")


@check("task", fix="Make the columns of an example from the same record as its prompt and completion.")
def answers_of_their_own(subject: Subject) -> None:
    """A demonstration has the answer of its own record, not that of the one before or after it.

    With columns that are shifted against the prompts, a policy is rewarded for the answers to other questions.
    """
    shown = [
        (_text_of(example["completion"]), str(example["answer"]))
        for example in first_of(task_of(subject).examples("sft"))
        if example.get("answer") not in (None, "") and example.get("completion")
    ]
    if len(shown) < FEW:
        raise Inapplicable(f"it has fewer than {FEW} demonstrations with the column `answer`")
    texts, answers = zip(*shown, strict=True)
    own, *others = (
        float(np.mean([answer in text for text, answer in zip(texts, np.roll(answers, by), strict=True)]))
        for by in (0, 1, -1)
    )
    if max(others) > own + CLEARLY:
        raise Failed(
            f"of {len(shown)} demonstrations {own:.0%} have the answer of their own record, and {max(others):.0%} that"
            " of the one beside it"
        )
    given = {answer.strip() for answer in answers}
    alone = float(np.mean([text.strip() in given for text in texts]))  # nothing but somebody's answer
    if len(given) > FEW and alone > own + CLEARLY:
        raise Failed(
            f"of {len(shown)} demonstrations {alone:.0%} are the answer of some record, and {own:.0%} that of their own"
        )


def _text_of(completion: Any) -> str:
    """Return a completion as text; of an episode, that of all messages."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(message.get("content")) for message in completion)


def _is_completion(found: Any) -> bool:
    """Tell whether it is a text, or an episode: messages, of which the assistant's are the first and the last."""
    if isinstance(found, str):
        return True
    if not isinstance(found, Sequence) or not found or not all(isinstance(each, Mapping) for each in found):
        return False
    return found[0].get("role") == found[-1].get("role") == "assistant"


@check("task", fix="Draw with numpy.random.default_rng(seed), sort what comes from files and sets, and keep no state.")
def resumes(subject: Subject) -> None:
    """Examples are the same at every call, in another process, and from any position on, so a run resumes mid-epoch.

    After a restart the run asks for number 1,234, and must get the same example as without the restart.
    """
    task = task_of(subject)
    if _moves_generators(subject):
        raise Failed("it seeds or draws from a global random number generator, which others use too")
    again: Any = pickle.loads(pickle.dumps(task))
    fresh = subject.bind()
    for split in SPLITS:
        expected = first_of(task.examples(split))
        first_of(task.examples(split), 3)
        for what, other in (("asked again", task), ("after pickling", again), ("in a fresh instance", fresh)):
            examples = other.examples(split)
            if len(examples) != len(task.examples(split)):
                raise Failed(
                    f"{what}, there are {len(examples)} {split} examples instead of {len(task.examples(split))}"
                )
            for number in reversed(range(len(expected))):
                if examples[number] != expected[number]:
                    raise Failed(f"{what}, {split}[{number}] is {examples[number]!r} instead of {expected[number]!r}")


def _moves_generators(subject: Subject) -> bool:
    """Tell whether a task seeds a global generator, or draws from it."""
    kept = random.getstate()
    try:
        random.seed(20_26)  # where it cannot be just after the task has seeded it
        before = global_generators()
        for split in SPLITS:
            first_of(subject.bind().examples(split))
        return global_generators() != before
    finally:
        random.setstate(kept)


@check("task", fix="Split by a hash of the prompt, or by file, so that no prompt is in two splits.")
def held_out(subject: Subject) -> None:
    """No prompt of the eval split is trained on.

    The accuracy of an evaluation would tell what was memorised.
    """
    _refuse_both(task_of(subject), 20 * MANY)
    fewer = _with_fewer(subject)
    shown = ", ".join(f"{name} = {value}" for name, value in fewer.items())
    if not fewer:
        return
    with suppress(DovetailError, ValueError, TooLong), limited(PATIENCE):  # there may be too few other examples
        _refuse_both(subject.bind(**fewer), 2 * MANY, f"with {shown} ")


def _refuse_both(task: Any, most: int, when: str = "") -> None:
    held = {repr(example["prompt"]) for example in first_of(task.examples("eval"), most)}
    for split in ("train", "sft"):
        both = held & {repr(example["prompt"]) for example in first_of(task.examples(split), most)}
        if both:
            raise Failed(f"{when}{len(both)} prompts of eval are also in {split}, such as {min(both)}")


def _with_fewer(subject: Subject) -> dict[str, int]:
    """Return half of each whole number of a task that is not a number of examples, 20 at most, or the least that it may
    be: of a smaller range of questions some would be drawn twice.
    """
    found = {}
    for name, value in numbers_of(subject).items():
        if isinstance(value, int) and value > 1 and not OF_EXAMPLES.search(name):
            lower = (x for x in range(min(value // 2, LOW), value) if allows(subject.component, name, x))
            found[name] = next(lower, value)
    return {name: fewer for name, fewer in found.items() if fewer != subject.params[name]}


@check("task", fix="Return a list of texts, such as the prompts.")
def corpus(subject: Subject) -> None:
    """It has texts that a tokenizer can be trained on.

    A tokenizer that is trained on nothing, or on something else, spells every prompt out in bytes.
    """
    texts = task_of(subject).corpus()
    if not len(texts) or not all(isinstance(text, str) and text for text in first_of(texts)):
        raise Failed(f"the corpus begins with {list(first_of(texts, 2))!r}")


@check("task", fix="Behave as a list does: examples[-1] is the last one, and what is beyond it an IndexError.")
def random_access(subject: Subject) -> None:
    """Examples can be read in any order, and their number is finite.

    A resumed run begins in the middle, and a curriculum goes back and forth.
    """
    examples = task_of(subject).examples("train")
    if examples[len(examples) - 1] != examples[-1]:
        raise Failed("examples[-1] is not the last example")
    try:
        examples[len(examples)]
    except IndexError:
        return
    raise Failed(f"there are {len(examples)} examples, but examples[{len(examples)}] raises no IndexError")


TEXTS = (
    "3 + 4 = 7",
    "What is 12 * 3?\n",
    "<answer>42</answer>",
    "naïve café",
    "cafe\N{COMBINING ACUTE ACCENT}, \N{ANGSTROM SIGN}, \N{LATIN SMALL LIGATURE FI}",
    "x\N{SUPERSCRIPT TWO} = \N{VULGAR FRACTION ONE HALF}",
    "\N{ARABIC-INDIC DIGIT THREE}\N{ARABIC-INDIC DIGIT FOUR} < 3\N{FULLWIDTH DIGIT FIVE}",
    "two  spaces,\ta tab\r\n  and an indent",
    "",
)


def texts_for(subject: Subject) -> tuple[str, ...]:
    """Return texts that a tokenizer encodes: those of the suite, or if it has an alphabet, of these and of that."""
    alphabet = subject.declared.get("alphabet")
    if alphabet is None:
        return TEXTS
    return (*(text for text in TEXTS if {*text} <= {*alphabet}), alphabet[:40], alphabet[::-1][:40])


def tokenizer_of(subject: Subject) -> Any:
    """Return the tokenizer of a subject, trained on the texts of this suite."""

    def make() -> Any:
        corpus = [
            f"What is {i} + {i * 7 % 13}?\nIt is <answer>{i + i * 7 % 13}</answer>, naïve café." for i in range(400)
        ]
        try:
            return subject.bind().make(corpus)
        except DovetailError as error:
            raise Inapplicable(f"it cannot be made here: {error}") from error

    return subject.once("tokenizer", make)


@check("tokenizer", fix="Make decode(encode(text)) return the text, and add no special tokens in encode.")
def round_trip(subject: Subject) -> None:
    """Text is encoded to ids below vocab_size, without special tokens, and decoded to the same text.

    Rewards read decoded text, and demonstrations are trained on as encoded text: a lost space is a wrong answer.
    """
    tokenizer = tokenizer_of(subject)
    for text in texts_for(subject):
        ids = tokenizer.encode(text)
        if not all(0 <= token < tokenizer.vocab_size for token in ids):
            raise Failed(f"{text!r} has the ids {ids}, but vocab_size is {tokenizer.vocab_size}")
        if not text and ids:
            raise Failed(f"encode('') is {ids}: it adds a token to every text")
        if set(ids) & set(tokenizer.eos_ids):
            raise Failed(f"encode({text!r}) adds an end-of-sequence token: {ids}")
        if tokenizer.decode(ids) != text:
            raise Failed(f"{text!r} comes back as {tokenizer.decode(ids)!r}")
        if tokenizer.decode([*ids, *tokenizer.eos_ids[:1]]) != text:
            raise Failed(
                f"{text!r} and an end-of-sequence token come back as {tokenizer.decode([*ids, *tokenizer.eos_ids])!r}"
            )


@check("tokenizer", claim="alphabet", fix="Raise a DataError that names the character.")
def refuses_other_characters(subject: Subject) -> None:
    """A text with a character that is not in its alphabet is refused with a DataError.

    Left out or replaced in silence, it would be missing from a prompt, and nobody would know.
    """
    other = next((letter for letter in STRANGE if letter not in subject.declared["alphabet"]), None)
    if other is None:
        raise Inapplicable(f"its alphabet has all of {STRANGE!r}")
    try:
        ids = tokenizer_of(subject).encode(other)
    except DovetailError:
        return
    raise Failed(f"{other!r} is not in its alphabet, and is encoded as {ids}")


@check("tokenizer", fix="Put what the model expects before the prompt, and strip nothing.")
def renders_the_whole_prompt(subject: Subject) -> None:
    """A prompt that is a text is rendered as it is, with white space at its ends, whatever comes before or after it.

    A prompt that ends with a line break or a space asks for something else than one without.
    """
    tokenizer = tokenizer_of(subject)
    for text in ("3 + 4 =", "3 + 4 = ", "\n 3 + 4?\n\n"):
        shown = tokenizer.render(text)
        if text not in shown:
            raise Failed(f"the prompt {text!r} is rendered as {shown!r}")


@check("tokenizer", fix="Apply the chat template, or raise a DataError where there is none.")
def renders_conversations(subject: Subject) -> None:
    """A conversation is rendered with its texts, not as Python would print it, or refused with a DataError.

    A prompt with brackets and quotation marks in it is one that no model was trained on.
    """
    first, last = ({"role": "user", "content": text} for text in ("What is 3 + 4?", "And half of it?"))
    for said in ([first], [first, {"role": "assistant", "content": "It is 7."}, last]):
        try:
            shown = tokenizer_of(subject).render(said)
        except DovetailError:
            return
        if repr(first)[1:8] in shown or not all(message["content"] in shown for message in said):
            raise Failed(f"the conversation {said} is rendered as {shown!r}")


@check("tokenizer", fix="Encode all of the messages, in their order.")
def bridges_all_messages(subject: Subject) -> None:
    """What follows a turn has the texts of all messages, in their order, or is refused with a DataError.

    Tools that are called in one turn answer with a message each: the policy would not read the results of some.
    """
    said = [{"role": "user", "content": text} for text in ("The first is 31.", "And the second is 75.")]
    tokenizer = tokenizer_of(subject)
    try:
        read = tokenizer.decode(tokenizer.bridge(said))
    except DovetailError:
        return
    first, second = (read.find(message["content"]) for message in said)
    if not -1 < first < second:
        raise Failed(f"the messages {[message['content'] for message in said]} are read as {read!r}")


@check("tokenizer", fix="Save everything that encode and decode depend on.")
def saved(subject: Subject) -> None:
    """Saved and loaded, it gives the same ids: a resumed run and an export load what was saved.

    Its weights would go with other ids than those that they were trained with.
    """
    tokenizer = tokenizer_of(subject)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        again = subject.bind().load(Path(folder))
    for text in texts_for(subject):
        if again.encode(text) != tokenizer.encode(text):
            raise Failed(f"{text!r} has the ids {tokenizer.encode(text)}, but {again.encode(text)} after loading")
    for name in ("vocab_size", "pad_id", "eos_ids"):
        if getattr(again, name) != getattr(tokenizer, name):
            raise Failed(f"{name} is {getattr(tokenizer, name)}, but {getattr(again, name)} after loading")


@check("tokenizer", name="saves_its_settings", fix="Save the hyperparameters that encode and render depend on, too.")
def saves_its_settings(subject: Subject) -> None:
    """Loaded, it renders prompts and encodes as it did before, with other settings than the defaults too.

    A run keeps the tokenizer that it began with: settings that are not saved are lost when it is resumed or exported.
    """
    _saves_its_numbers(subject)
    for name, value in subject.params.items():
        if not isinstance(value, str) or plain(subject.component.hints[name]) is not str:
            continue
        try:
            tokenizer = subject.bind(**{name: f"{value}Q: "}).make(["What is 3 + 4? It is 7."] * 400)
            shown = tokenizer.render("3 + 4 = ")
        except (DovetailError, OSError, Inapplicable):
            continue  # it names a file, say
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(Path(folder))
            again = subject.bind().load(Path(folder)).render("3 + 4 = ")
        if again != shown:
            raise Failed(f"with {name} = {value + 'Q: '!r} it renders {shown!r}, and {again!r} after loading")


def _saves_its_numbers(subject: Subject) -> None:
    """Refuse a tokenizer that encodes otherwise after loading, where a number is not that of the config.

    Raises:
        Failed: if it does.
    """
    for name, value in numbers_of(subject).items():
        for other in others(subject.component, name, value):
            try:
                tokenizer = subject.bind(**{name: other}).make([SUM, WORDS] * 200)
                before = [tokenizer.encode(text) for text in (SUM, WORDS)]
            except (DovetailError, OSError, ValueError, Inapplicable):
                continue  # the number does not go with this little text
            with tempfile.TemporaryDirectory() as folder:
                tokenizer.save(Path(folder))
                loaded = subject.bind().load(Path(folder))
            for text, ids in zip((SUM, WORDS), before, strict=True):
                if (again := loaded.encode(text)) != ids:
                    raise Failed(f"with {name} = {other} {text!r} has the ids {ids}, and {again} after loading")


@check("tokenizer", fix="List every id that ends a completion in eos_ids, and choose a pad_id within the vocabulary.")
def special_ids(subject: Subject) -> None:
    """It has an end-of-sequence token, and its padding is an id of the vocabulary.

    Without an end no completion ends, and an id beyond the vocabulary reads the weights of another token.
    """
    tokenizer = tokenizer_of(subject)
    if not tokenizer.eos_ids or not all(0 <= token < tokenizer.vocab_size for token in tokenizer.eos_ids):
        raise Failed(f"eos_ids is {tokenizer.eos_ids}, and vocab_size {tokenizer.vocab_size}")
    if not 0 <= tokenizer.pad_id < tokenizer.vocab_size:
        raise Failed(f"pad_id is {tokenizer.pad_id}, and vocab_size {tokenizer.vocab_size}")
