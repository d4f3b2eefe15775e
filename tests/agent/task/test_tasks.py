"""Tasks of several turns: the demonstrations agree with the answers of the environment and the tools."""

from dovetail.protocols import Turn
from dovetail_agent.interaction.guess_number import GuessNumber
from dovetail_agent.task.calculation import Calculation
from dovetail_agent.task.guess_number import Guessing
from dovetail_agent.tool.calculator import calculator
from dovetail_agent.tool_format.hermes import Hermes


def test_halving_always_finds_the_number():
    task = Guessing(largest=16, guesses=5)
    for example in task.examples("sft")[:50]:
        assert example["completion"][-1]["content"] == str(example["number"])
        assert len(example["completion"]) <= 9


def test_demonstrations_are_answered_by_the_interaction():
    game = GuessNumber(message="\n{hint}\n")
    for example in Guessing(noise=1.0).examples("sft")[:20]:
        state, _ = game.reset(example, None)
        messages = example["completion"]
        for said, answer in zip(messages[::2], messages[1::2], strict=False):
            step = game.step(state, Turn(text=said["content"]), None)
            assert step.messages == (answer,)
            state = step.state


def test_blind_guesses_find_it_as_often_as_chance_does():
    task = Guessing(largest=16, guesses=5, noise=1.0, sft_size=1000)
    found = [e["completion"][-1]["content"] == str(e["number"]) for e in task.examples("sft")]
    assert abs(sum(found) / 1000 - (1 - (15 / 16) ** 5)) < 0.04


def test_calculations_are_right_and_their_splits_apart():
    task = Calculation()
    for example in task.examples("sft")[:20]:
        call, result, answer = (message["content"] for message in example["completion"])
        (parsed,) = Hermes().parse(call).calls
        assert calculator(**parsed.arguments) == example["answer"]
        assert example["answer"] in result
        assert answer == f"<answer>{example['answer']}</answer>"
    asked = {split: {e["question"] for e in task.examples(split)[:500]} for split in ("train", "eval", "sft")}
    assert not asked["eval"] & (asked["train"] | asked["sft"])


def test_noise_calculates_something_else():
    examples = Calculation(noise=0.5, sft_size=200).examples("sft")
    wrong = [e["answer"] not in e["completion"][-1]["content"] for e in examples]
    assert 0.35 < sum(wrong) / 200 < 0.65


def test_the_same_example_at_every_access():
    for task in (Guessing(), Calculation()):
        assert task.examples("sft")[7] == task.examples("sft")[7]
        assert task.examples("train")[-1] == task.examples("train")[len(task.examples("train")) - 1]
