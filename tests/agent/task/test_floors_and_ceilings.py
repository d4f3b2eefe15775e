"""The success rates in each task of a policy that knows nothing and of one that knows everything, in the agent loop."""

import numpy as np
import pytest
from tests.agent.agent_loop.test_tool_agent import EOS, Letters

from dovetail.config import load
from dovetail.host.episodes import Generators
from dovetail.protocols import Call
from dovetail.shipped import find
from dovetail.training.texts import open_loop
from dovetail_agent.interaction.frozen_lake import MOVES, moved, solution
from dovetail_agent.task.local_search import RIVERS, world
from dovetail_agent.tool_format.hermes import Hermes
from dovetail_agent.tool_format.pythonic import Pythonic

EPISODES = 300


def play(recipe, policy, *overrides):
    """Let a policy, a function of (example, messages, generator) to a turn's text, play a recipe; return its episodes."""
    config = load(find(recipe), [*overrides, "agent_loop.tool_agent.max_result_tokens=999"])
    task = config.choice("train.task").bind()
    examples = list(task.examples("eval")[: min(EPISODES, 256)])
    loop = open_loop(config, Letters())
    words = np.arange(len(examples) * 2, dtype=np.uint32).reshape(len(examples), 1, 2)
    running = loop.begin(examples, 1, Generators(words))
    rows, rng = list(range(len(examples))), np.random.default_rng(0)
    while rows:
        texts = [policy(examples[row], running.episodes[row].messages, rng) for row in rows]
        said = running.then(rows, [[*Letters().encode(text), EOS] for text in texts], ["eos"] * len(rows))
        rows = [row for row, ids in zip(rows, said, strict=True) if ids is not None]
    return examples, running.result([False] * len(examples))


def right(examples, episodes):
    """Return the share of the episodes whose last turn is the answer."""
    wanted = [f"<answer>{example['answer']}</answer>" for example in examples]
    return np.mean([m[-1]["content"] == answer for m, answer in zip(episodes.conversations, wanted, strict=True)])


# --- frozen_lake


def knows_the_way(example, messages, rng):
    """Return the best move, computed only from the text that the policy sees."""
    seen = messages[-1]["content"] if messages else example["prompt"]
    lake = [line.replace(" ", "") for line in seen.split("\n") if line]
    (place,) = [(row, line.index("P")) for row, line in enumerate(lake) if "P" in line]
    return solution(lake, place)[0]


def at_random(example, messages, rng):
    return str(rng.choice(list(MOVES)))


def chance(lake, moves):
    """Return the exact probability that a random walk of `moves` moves reaches the goal."""
    reached, there = 0.0, {(0, 0): 1.0}
    for _ in range(moves):
        after = {}
        for place, p in there.items():
            for word in MOVES:
                row, column = moved(lake, place, word)
                if lake[row][column] == "G":
                    reached += p / 4
                elif lake[row][column] != "O":
                    after[row, column] = after.get((row, column), 0) + p / 4
        there = after
    return reached


@pytest.mark.parametrize(("size", "moves"), [(3, 8), (4, 12)])
def test_frozen_lake(size, moves):
    sizes = (f"task.frozen_lake.size={size}", f"interaction.frozen_lake.moves={moves}", "eval.every=None")
    sizes += (f"agent_loop.tool_agent.max_turns={moves}",)
    examples, episodes = play("frozen_lake", knows_the_way, *sizes)
    assert episodes.turn_rewards.sum(axis=1).tolist() == [1.0] * len(examples)
    assert episodes.metrics["moves"].tolist() == [int(example["answer"]) for example in examples]
    examples, episodes = play("frozen_lake", at_random, *sizes)
    floor = np.mean([chance(example["lake"].split("\n"), moves) for example in examples])
    assert abs(episodes.turn_rewards.sum() / len(examples) - floor) < 0.05
    assert floor < 0.15


def test_on_slippery_ice_the_way_is_not_enough():
    _, episodes = play("frozen_lake", knows_the_way, "interaction.frozen_lake.slippery=True")
    assert 0.1 < episodes.turn_rewards.sum(axis=1).mean() < 0.7


# --- local_search


def searches(example, messages, rng):
    if len(messages) == 4:
        return f"<answer>{messages[-1]['content'].split()[-1].strip('.')}</answer>"
    name = messages[-1]["content"].split()[-1].strip(".") if messages else example["question"].split()[-2]
    return Pythonic().write(Call("search", {"query": f"{name} lies" if messages else name}))


def guesses(example, messages, rng):
    return f"<answer>{rng.choice(sorted(set(world()[1].values())))}</answer>"


def test_local_search():
    examples, episodes = play("local_search", searches)
    assert right(examples, episodes) == 1
    assert episodes.tool_calls.tolist() == [2] * len(examples)
    assert abs(right(*play("local_search", guesses)) - 1 / RIVERS) < 0.03


# --- faulty_tool


def asks(example, messages, rng, *, again):
    result = messages[-1]["content"].split(">")[1].split("<")[0] if messages else ""
    if result.isdigit() or (messages and not again):
        return f"<answer>{result}</answer>"
    return Hermes().write(Call("faulty_calculator", {"expression": example["question"]}))


def test_faulty_tool():
    examples, episodes = play("faulty_tool", lambda *given: asks(*given, again=True))
    assert right(examples, episodes) >= 1 - 0.2**4 - 0.01
    assert episodes.tool_calls.max() > 1
    assert abs(right(*play("faulty_tool", lambda *given: asks(*given, again=False))) - 0.8) < 0.06
