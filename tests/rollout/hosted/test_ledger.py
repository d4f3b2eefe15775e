"""Which replica is asked: the one that has the least to compute, without the prefix that it has kept."""

import pytest

from dovetail_rollout.hosted.host import Answer
from dovetail_rollout.hosted.ledger import Ledger, Room
from dovetail_rollout.hosted.prefixes import Prefixes

ANSWER = Answer([5] * 10, [-1.0] * 10)
ROOMS = [Room(0, calls=9), Room(1, calls=9)]


def at_its_second_turn(others):
    """An episode whose first prompt of 200 tokens was sent to replica 0, as were `others` requests of 100."""
    prefixes = Prefixes([200] + [50] * others, groups=["of the episode", *range(others)])
    ledger = Ledger.of([300] + [100] * others, prefixes=prefixes)
    first, *_ = ledger.route(ROOMS[:1])
    ledger.take(first, [ANSWER])
    ledger.leave(0)
    ledger.go_on(0, cost=400, prompt=300)
    return ledger


@pytest.mark.parametrize(("others", "replica", "tokens"), [(0, 0, 190), (1, 0, 190), (3, 1, 400)])
def test_an_episode_leaves_its_replica_if_that_has_more_to_do_than_the_beginning_is_worth(others, replica, tokens):
    [sending] = at_its_second_turn(others).route(ROOMS)
    assert (sending.replica, sending.tokens) == (replica, tokens)


def test_a_replica_that_was_lost_has_kept_nothing():
    ledger = at_its_second_turn(0)
    ledger.lose(0)
    [sending] = ledger.route(ROOMS[:1])
    assert sending.tokens == 400


def test_what_a_replica_computes_of_a_turn_it_has_for_the_next():
    ledger = at_its_second_turn(0)
    [second] = ledger.route(ROOMS[1:])
    assert (second.replica, second.tokens) == (1, 400)
    ledger.take(second, [ANSWER])
    ledger.leave(0)
    ledger.go_on(0, cost=500, prompt=400)
    [third] = ledger.route(ROOMS)
    assert (third.replica, third.tokens) == (1, 190), "replica 0 has the first 210 tokens alone"
