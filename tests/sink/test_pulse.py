"""The progress lines of a run without a terminal."""

import pytest

from dovetail.progress import Doing
from dovetail_sink.pulse import Pulse


@pytest.fixture
def said():
    return []


@pytest.fixture
def clock():
    return {"now": 100.0}


@pytest.fixture
def pulse(said, clock):
    return Pulse(said.append, lambda: clock["now"])


def wait(pulse, clock, seconds):
    for _ in range(seconds):
        clock["now"] += 1
        pulse.tick()


def test_in_the_first_step_each_phase_is_a_line_at_once(pulse, said, clock):
    pulse.tell(Doing("loading", "policy, 1.0 GB"))
    wait(pulse, clock, 3)
    pulse.tell(Doing("update", compiling=True))
    pulse.tell(Doing("update"))
    pulse.recorded(of_step=False)
    pulse.tell(Doing("sampling", done=0, total=512))
    pulse.tell(Doing("sampling", done=120, total=512))
    assert said == [
        "[0 s] loading policy, 1.0 GB",
        "[3 s] compiling update",
        "[3 s] sampling 0 / 512",
    ]


def test_a_long_silence_ends_with_what_either_program_does(pulse, said, clock):
    pulse.tell(Doing("sampling", done=0, total=512, program="sampler"))
    wait(pulse, clock, 2)
    pulse.tell(Doing("update"))
    wait(pulse, clock, 5)
    assert said == [
        "[0 s] sampler: sampling 0 / 512",
        "[2 s] update",
        "[7 s] sampler: sampling 0 / 512 (7 s); update (5 s)",
    ]


def test_a_long_phase_is_told_again_and_less_often(pulse, said, clock):
    pulse.tell(Doing("sampling", done=0, total=512))
    wait(pulse, clock, 4)
    pulse.tell(Doing("sampling", done=120, total=512))
    wait(pulse, clock, 300)
    assert said[1] == "[5 s] sampling 120 / 512 (5 s)"
    times = [int(line[1:].split()[0]) for line in said]
    assert times == [0, 5, 15, 35, 75, 135, 195, 255]


def test_quick_steps_say_nothing_beside_their_records(pulse, said, clock):
    pulse.recorded()
    for _ in range(20):
        for what in ("sampling", "update"):
            pulse.tell(Doing(what))
            wait(pulse, clock, 2)
        pulse.recorded()
    assert said == []
    pulse.tell(Doing("evaluation", done=32, total=500))
    wait(pulse, clock, 6)
    assert said == ["[85 s] evaluation 32 / 500 (5 s)"]


def test_a_quiet_one_has_a_line_at_most_between_two_records(said, clock):
    pulse = Pulse(said.append, lambda: clock["now"], quiet=True)
    pulse.tell(Doing("loading", "policy, 1.0 GB"))
    pulse.tell(Doing("update", compiling=True))
    wait(pulse, clock, 29)
    assert said == []
    wait(pulse, clock, 1)
    pulse.tell(Doing("update"))
    wait(pulse, clock, 300)
    pulse.recorded()
    wait(pulse, clock, 29)
    assert said == ["[30 s] compiling update (30 s)"]
    wait(pulse, clock, 1)
    assert said[1:] == ["[360 s] update (330 s)"]
