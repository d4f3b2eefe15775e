import attrs
import numpy as np
import pytest

from dovetail_rollout.decoding.slots import SMALLEST, SMALLEST_LONG, Schedule


def play(schedule, lengths):
    """Run a schedule without a model; yield each layout and how many completions are in it."""
    lengths = np.array(lengths)
    drawn = np.ones_like(lengths)
    waiting = np.flatnonzero(drawn < lengths)
    layout = schedule.first(waiting)
    waiting = np.setdiff1d(waiting, layout.held)
    while True:
        going = layout.held[drawn[layout.held] < lengths[layout.held]]
        enough = schedule.enough(layout, len(going), len(waiting))
        assert enough < len(going), "the loop would not run"
        yield layout, len(going)
        while np.sum(drawn[layout.held] < lengths[layout.held]) > enough:
            drawn[layout.held] = np.minimum(drawn[layout.held] + 1, lengths[layout.held])
        going = layout.held[drawn[layout.held] < lengths[layout.held]]
        if not len(going) and not len(waiting):
            np.testing.assert_array_equal(drawn, lengths)
            return
        layout = [layout, *schedule.moves(layout, going, waiting)][-1]
        assert set(going) <= set(layout.held), "what goes on keeps a slot"
        waiting = np.setdiff1d(waiting, layout.held)


def lengths_of(seed, prompts, samples, longest=64):
    return np.random.default_rng(seed).integers(1, longest + 1, prompts * samples)


@pytest.mark.parametrize("slots", [1, 5, 16, 48, 96])
@pytest.mark.parametrize(("prompts", "samples"), [(12, 8), (96, 1), (2, 48)])
@pytest.mark.parametrize(("shrink", "long"), [(True, False), (True, True), (False, False)])
def test_every_completion_gets_its_turn_beside_others_of_its_prompt(prompts, samples, slots, shrink, long):
    schedule = Schedule(prompts=prompts, samples=samples, slots=slots, shrink=shrink, long=long)
    shapes = set()
    for layout, _ in play(schedule, lengths_of(0, prompts, samples)):
        shapes.add(layout.shape)
        assert layout.seqs.size <= slots
        held = layout.held
        assert len(set(held)) == len(held)
        rows = np.repeat(layout.prompts, layout.seqs.shape[1])
        filled = layout.seqs.ravel() >= 0
        np.testing.assert_array_equal(layout.seqs.ravel()[filled] // samples, rows[filled])
    # every width of rows, each with at most as many numbers of slots as halvings
    smallest = SMALLEST_LONG if long else SMALLEST
    assert len(shapes) <= (1 + np.ceil(np.log2(samples))) * (2 + np.log2(max(1, slots / smallest)))


def test_all_at_once_begins_with_the_prompts_as_they_are():
    schedule = Schedule(prompts=3, samples=4, slots=12, shrink=True)
    layout = schedule.first(np.arange(12))
    np.testing.assert_array_equal(layout.prompts, [0, 1, 2])
    np.testing.assert_array_equal(layout.seqs, np.arange(12).reshape(3, 4))


def test_the_last_completions_move_into_fewer_lanes():
    schedule = Schedule(prompts=16, samples=8, slots=128, shrink=True)
    seen = [layout.shape for layout, _ in play(schedule, lengths_of(1, 16, 8))]
    assert seen == sorted(seen, key=np.prod, reverse=True)
    assert {(16, 8), (16, 4), (16, 2), (16, 1)} >= set(seen)
    assert len(set(seen)) >= 3


def test_without_shrinking_nothing_moves():
    schedule = Schedule(prompts=16, samples=8, slots=128, shrink=False)
    assert len(list(play(schedule, lengths_of(1, 16, 8)))) == 1


def test_waiting_completions_take_the_lanes_of_finished_ones():
    # 40 slots for 320 completions of length 1 to 64: full but for what has just ended, until none waits
    schedule = Schedule(prompts=40, samples=8, slots=40, shrink=True)
    busy = [going for layout, going in play(schedule, lengths_of(2, 40, 8)) if layout.seqs.size == 40]
    assert np.mean(busy[:-4]) > 0.85 * 40


def test_lanes_are_halved_one_time_after_another():
    schedule = Schedule(prompts=16, samples=8, slots=128, shrink=True)
    layout, none = schedule.first(np.arange(128)), np.array([], int)
    assert [moved.shape for moved in schedule.moves(layout, np.arange(16), none)] == [(16, 4), (16, 2), (16, 1)]
    assert [moved.shape for moved in schedule.moves(layout, np.arange(20), none)] == [(16, 4), (16, 2)]
    assert list(schedule.moves(layout, np.arange(80), none)) == []


def test_long_completions_move_into_narrow_rows_and_down_to_a_few():
    schedule = Schedule(prompts=16, samples=8, slots=128, shrink=True, long=True)
    layout, none = schedule.first(np.arange(128)), np.array([], int)
    assert [moved.shape for moved in schedule.moves(layout, np.array([0, 127]), none)] == [
        *((32, 2), (32, 1), (16, 1), (8, 1), (4, 1), (2, 1))
    ]
    # five left of each of eight prompts: ten rows of four, or three of two for each prompt
    going = np.flatnonzero(np.arange(128) % 16 < 5)
    assert [moved.shape for moved in schedule.moves(layout, going, none)] == [(32, 2)]
    odd = attrs.evolve(schedule, samples=6, slots=96)
    assert [moved.shape for moved in odd.moves(odd.first(np.arange(96)), none, none)][:2] == [(24, 2), (24, 1)]


def test_narrow_rows_spend_fewer_slots_on_what_has_ended():
    lengths = np.clip(np.random.default_rng(3).lognormal(np.log(64), 0.9, 128).astype(int), 1, 512)
    empty = {}
    for long in (False, True):
        schedule = Schedule(prompts=16, samples=8, slots=128, shrink=True, long=long)
        empty[long] = [layout.seqs.size - going for layout, going in play(schedule, lengths)][1:]
    assert max(empty[True]) < max(empty[False])


def test_a_prompt_with_many_left_gets_a_row_of_one_without():
    schedule = Schedule(prompts=8, samples=4, slots=32, shrink=True)
    layout = schedule.first(np.arange(32))
    # prompt 0 has four left, prompts 1 to 6 two, prompt 7 none: eight rows of two
    going = np.array([0, 1, 2, 3, *(4 * p + s for p in range(1, 7) for s in (1, 3))])
    (packed,) = schedule.moves(layout, going, np.array([], int))
    assert packed.shape == (8, 2)
    np.testing.assert_array_equal(packed.prompts, [0, 0, 1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(layout.find(packed.seqs), going)
