import json
from itertools import islice

import pytest

from dovetail.data import prompt_stream
from dovetail.errors import DataError

EXAMPLES = [{"prompt": str(i)} for i in range(10)]


def flat(batches):
    return [int(example["prompt"]) for batch in batches for example in batch]


def test_batches_have_one_size_and_cross_the_ends_of_epochs():
    batches = list(islice(prompt_stream(EXAMPLES, 0, 4), 10))
    assert [len(batch) for batch in batches] == [4] * 10
    order = flat(batches)
    epochs = [order[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_batches_of_one_go_through_the_data_epoch_after_epoch():
    stream = prompt_stream(EXAMPLES, 0, 1)
    order = flat(islice(stream, 20))
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    resumed = prompt_stream(EXAMPLES, 0, 1)
    resumed.set_state(stream.get_state())
    assert flat(islice(resumed, 3)) == flat(islice(stream, 3))


def test_a_batch_may_be_larger_than_the_data():
    assert sorted(flat([next(prompt_stream(EXAMPLES, 0, 20))])) == sorted([*range(10)] * 2)


def test_the_seed_decides_the_order():
    orders = [tuple(flat(islice(prompt_stream(EXAMPLES, seed, 5), 4))) for seed in (0, 0, 1, -1, 2**32 + 2)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4


@pytest.mark.parametrize("done", [0, 1, 3, 57])
def test_a_stream_goes_on_in_mid_epoch_exactly(done):
    stream = prompt_stream(EXAMPLES, 7, 3)
    for _ in range(done):
        next(stream)
    state = json.loads(json.dumps(stream.get_state()))
    expected = flat(islice(stream, 8))
    resumed = prompt_stream(EXAMPLES, 7, 3)
    resumed.set_state(state)
    assert flat(islice(resumed, 8)) == expected


def test_examples_are_read_one_batch_at_a_time():
    class Watched(list):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

    watched = Watched(EXAMPLES)
    next(prompt_stream(watched, 0, 2))
    assert watched.reads == 2


def test_no_examples_are_refused():
    with pytest.raises(DataError, match="there are no examples to train on"):
        prompt_stream([], 0, 2)
