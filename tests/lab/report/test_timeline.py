"""The time line of a step: which steps are shown, which lane a span is in, and how long a lane had nothing to do."""

from pathlib import Path

import pytest

from dovetail.errors import RunError
from dovetail.run.journal import Journal
from dovetail.spans import Span
from dovetail_lab.report.timeline import FILE, Timeline, timelines

SECONDS = (10.0, 4.0, 5.0, 6.0, 8.0)
"""Durations of the steps, one after the other, each with a second of sampling and a second of waiting for it."""


def in_turn(began: float, step: int, seconds: float) -> list[Span]:
    own = Span("trainer", step, "update", began + 1, began + seconds)
    return [Span("trainer", step, "rollout", began, began + 1), own]


def ahead(began: float, step: int, seconds: float) -> list[Span]:
    """The sampler works on the next batch during the whole step, except in its last quarter."""
    end = began + seconds
    return [
        Span("sampler", step + 1, "rollout", began, end - seconds / 4),
        Span("sampler", step + 2, "channel", end - seconds / 4, end),
        Span("trainer", step, "channel", began, began + 1),
        Span("trainer", step, "update", began + 1, end),
    ]


def write(folder: Path, made, *more: Span) -> Path:
    journal, began = Journal(folder), 100.0
    journal.spans("sft", 1, [Span("trainer", None, "update", 90.0, 99.0)])
    for step, seconds in enumerate(SECONDS, 1):
        journal.spans("rl", step, made(began, step, seconds))
        began += seconds
    journal.spans("rl", len(SECONDS), more)
    journal.close()
    return folder / FILE


def test_the_first_the_typical_and_the_slowest_step_are_shown(tmp_path):
    shown = Timeline.read(write(tmp_path, in_turn)).shown
    assert [(step.number, step.seconds) for _, step in shown] == [(1, 10.0), (3, 5.0), (5, 8.0)]


def test_programs_that_take_turns_have_a_lane_each_and_are_never_busy_together(tmp_path):
    timeline = Timeline.read(write(tmp_path, in_turn))
    step = timeline.steps[1]
    assert {lane: [span.name for span in timeline.during(lane, step)] for lane in timeline.lanes} == {
        "sampler": ["rollout"],
        "trainer": ["update"],
    }
    assert [timeline.idle(lane, [step]) for lane in ("sampler", "trainer")] == pytest.approx([3 / 4, 1 / 4])
    assert timeline.idle("trainer", timeline.steps[1:]) == pytest.approx(4 / sum(SECONDS[1:]))


def test_waiting_for_the_other_program_is_idle_and_a_batch_says_which_step_it_is_for(tmp_path):
    timeline = Timeline.read(write(tmp_path, ahead))
    assert [timeline.idle(lane, timeline.steps[1:]) for lane in ("sampler", "trainer")] == pytest.approx(
        [1 / 4, 4 / sum(SECONDS[1:])]
    )
    page = timelines([("mine", tmp_path)])
    assert "sampling for step 4: 3.75 s" in page
    assert ">sampling for step 4<" in page
    assert "Idle: sampler 25\u00a0%, trainer 20\u00a0%." in page
    assert "channel" not in page


def test_a_plugins_programs_have_lanes_and_their_names_are_text(tmp_path):
    busy = [Span("replica 1", None, "sampling", 99.0, 103.0), Span("<b>", None, "<i>", 104.0, 105.0)]
    write(tmp_path, ahead, *busy)
    timeline = Timeline.read(tmp_path / FILE)
    assert list(timeline.lanes) == ["sampler", "trainer", "<b>", "replica 1"]
    assert [span[-2:] for span in timeline.during("replica 1", timeline.steps[0])] == [(100.0, 103.0)]
    page = timelines([("mine", tmp_path)])
    assert "&lt;i&gt;: 1 s" in page
    assert "<i>" not in page


def test_several_runs_have_a_typical_step_each_and_one_without_spans_has_none(tmp_path):
    (tmp_path / "old").mkdir()
    write(tmp_path, in_turn)
    page = timelines([("new", tmp_path), ("old", tmp_path / "old")])
    assert page.count("<figure>") == 1
    assert "new, step 3" in page
    assert timelines([("old", tmp_path / "old")]) == ""


@pytest.mark.parametrize(
    "spans", ["3", '[["trainer", 1, "update", 2.0, 1.0]]', '[["trainer", 1, "update", 0.0, NaN]]', '[["trainer"]]']
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, spans):
    (tmp_path / FILE).write_text('{"spans": []}\n{"spans": ' + spans + "}\n")
    with pytest.raises(RunError, match=r"spans\.jsonl:2: .*restore the file"):
        Timeline.read(tmp_path / FILE)
