import json
from xml.etree import ElementTree

import pytest

from dovetail.errors import DataError, RunError
from dovetail_sink._runs import Points, mean_of, read, running_mean
from dovetail_sink.sink.curve import Curve, draw


def journal(folder, records, tail=""):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return folder


def run(folder, steps=12, *, sft=0, accuracy=True):
    """A journal as a run writes it."""
    records = [{"phase": "sft", "step": step, "sft/loss": 1 / step} for step in range(1, sft + 1)]
    for step in range(steps + 1):
        records += [{"phase": "rl", "step": step, "reward/mean": 0.1 * step}] if step else []
        records += [{"phase": "rl", "step": step, "eval/accuracy": step / 20}] if accuracy and step % 4 == 0 else []
    return journal(folder, records)


def words(picture):
    """The text of an svg picture."""
    return [node.text.strip() for node in ElementTree.parse(picture).iter() if node.tag.endswith("text") and node.text]


def test_reading_separates_the_figures(tmp_path):
    points = read(run(tmp_path / "x", 4, sft=3))
    assert points == Points(
        reward={step: pytest.approx(0.1 * step) for step in (1, 2, 3, 4)}, accuracy={0: 0.0, 4: 0.2}, sft_steps=3
    )


def test_a_line_left_unfinished_by_a_kill_is_ignored_and_any_other_is_not(tmp_path):
    record = {"phase": "rl", "step": 1, "reward/mean": 0.5}
    assert read(journal(tmp_path / "x", [record], tail='{"phase": "r')).reward == {1: 0.5}
    with pytest.raises(RunError, match="metrics.jsonl:2: not valid JSON"):
        read(journal(tmp_path / "x", [record], tail='{"phase": "r\n{}'))


def test_running_mean_of_one_is_the_series():
    series = {1: 3.0, 4: 5.0}
    assert running_mean(series, 1) == series
    assert running_mean({}, 3) == {}


def test_the_mean_is_over_shared_steps():
    assert mean_of([{0: 1.0, 1: 2.0, 2: 3.0}, {1: 4.0, 2: 5.0, 3: 6.0}]) == {1: 3.0, 2: 4.0}


def test_closing_draws_the_picture(tmp_path):
    folder = run(tmp_path / "arithmetic-s0", sft=30)
    sink = Curve().open(folder, 12, 0)
    sink.write(12, {"reward/mean": 1.2})
    sink.close()
    assert words(folder / "curve.svg")[:2] == [
        "arithmetic-s0, after a warm start of 30 steps",
        "reward (mean score)",
    ]
    assert "held-out accuracy: 0.0 % to 60.0 %" in words(folder / "curve.svg")


def test_nothing_is_drawn_before_reinforcement_learning(tmp_path):
    folder = journal(tmp_path / "x", [{"phase": "sft", "step": 1, "sft/loss": 1.0}])
    for place in (folder, tmp_path / "none"):
        Curve().open(place, 12, 0).close()
        assert not list(place.glob("curve.*"))
    with pytest.raises(DataError, match=r"nothing to draw: no step of reinforcement learning in metrics\.jsonl of .*x"):
        draw([folder], tmp_path / "x.svg")


def test_several_runs_share_a_picture_even_of_unequal_length(tmp_path):
    folders = [run(tmp_path / f"x-s{seed}", 8 + 4 * seed, sft=10 * seed) for seed in range(3)]
    draw(folders, tmp_path / "all.svg")
    shown = words(tmp_path / "all.svg")
    assert shown[0] == "x-s0 and 2 more, after a warm start of 0 or 10 or 20 steps"
    assert sum("thin: each run, bold: mean of 3 runs" in text for text in shown) == 2


@pytest.mark.parametrize(("steps", "accuracy"), [(12, False), (0, True), (1, True)])
def test_a_run_with_few_points_can_be_drawn(tmp_path, steps, accuracy):
    draw([run(tmp_path / "x", steps, accuracy=accuracy)], tmp_path / "x.svg")
    assert any("held-out accuracy" in text for text in words(tmp_path / "x.svg")) is accuracy


def test_the_same_run_gives_the_same_bytes(tmp_path):
    folder = run(tmp_path / "x")
    for name in ("a.svg", "b.svg"):
        draw([folder], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_left_out(value, tmp_path):
    """Next to it, the running mean and the axis stay as they are without it."""
    values = [0.1 * step for step in range(40)]
    for name, spoilt in (
        ("with", [*values[:20], value, *values[21:]]),
        ("without", [*values[:20], None, *values[21:]]),
    ):
        records = [{"phase": "rl", "step": step, "reward/mean": each} for step, each in enumerate(spoilt)]
        folder = journal(tmp_path / name, [record for record in records if record["reward/mean"] is not None])
        draw([folder], tmp_path / f"{name}.svg", title="a run")
    assert (tmp_path / "with.svg").read_text() == (tmp_path / "without.svg").read_text()
    nothing = journal(tmp_path / "nothing", [{"phase": "rl", "step": 1, "reward/mean": value}])
    Curve().open(nothing, 1, 0).close()
    assert not (nothing / "curve.svg").exists()


def test_a_value_of_null_is_left_out(tmp_path):
    """So others write a figure that is not defined, and so reports read it."""
    folder = journal(tmp_path / "run", [{"phase": "rl", "step": n, "reward/mean": n or None} for n in range(3)])
    assert read(folder).reward == {1: 1, 2: 2}
