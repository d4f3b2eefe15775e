"""A runner as vLLM's samples a token for each request, also for a prompt that is not whole yet."""

from types import SimpleNamespace

import numpy as np

from dovetail_rollout.inside.dovetail_vllm_worker import setting_back


class Generator:
    """One of a CPU: it has a state and no offset."""

    def __init__(self, seed):
        self.draws = np.random.default_rng(seed)

    def get_state(self):
        return dict(self.draws.bit_generator.state)

    def set_state(self, state):
        self.draws.bit_generator.state = state

    def set_offset(self, offset):
        raise RuntimeError("CPU Generator does not use offset")

    get_offset = set_offset


class Runner:
    """Samples for all rows, and sets the generators of those back whose token is dropped."""

    def __init__(self, seeds):
        self.input_batch = SimpleNamespace(num_reqs=len(seeds), generators=dict(enumerate(map(Generator, seeds))))
        self.discard_request_mask = SimpleNamespace(np=np.zeros(8, bool))

    @setting_back
    def _sample(self):
        return [generator.draws.integers(1000) for generator in self.input_batch.generators.values()]

    def step(self, dropped=()):
        self.discard_request_mask.np[:] = np.isin(np.arange(8), dropped)
        sampled = self._sample()
        for row in dropped:
            generator = self.input_batch.generators.get(row)
            if generator is not None:
                generator.set_offset(generator.get_offset() - 4)
        return [None if row in dropped else token for row, token in enumerate(sampled)]


def test_a_token_that_is_dropped_takes_no_random_number():
    whole, pieces = Runner([3, 4]), Runner([3, 4])
    expected = [whole.step() for _ in range(3)]
    assert pieces.step(dropped=[0, 1]) == [None, None]
    assert pieces.step(dropped=[1]) == [expected[0][0], None]
    assert pieces.step() == [expected[1][0], expected[0][1]]
    assert pieces.step() == [expected[2][0], expected[1][1]]


def test_a_request_that_has_taken_the_row_of_another_draws_its_own():
    """vLLM moves the last row into one that has ended."""
    whole, pieces = Runner([3, 4]), Runner([3, 4])
    expected = whole.step()[1]
    pieces.step(dropped=[1])
    generators = pieces.input_batch.generators
    generators[0], pieces.input_batch.num_reqs = generators.pop(1), 1
    assert pieces.step() == [expected]


def test_a_request_without_a_seed_is_left_alone():
    runner = Runner([3, 4])
    del runner.input_batch.generators[1]
    runner.step(dropped=[0, 1])
    assert list(runner.input_batch.generators) == [0]
