"""`dovetail ab` as a user types it: registered, run pair by pair, analysed at the planned looks, and reported."""

import json
import math
import re
from pathlib import Path

import pytest
from tests.lab.ab.stub import ARMS, BETTER, CONTROL, GAIN, QUICK, SAME, ab, train

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import RunError
from dovetail_lab.ab.commands import DECIDED, UNDECIDED
from dovetail_lab.ab.registration import Registration
from dovetail_lab.sweep import Store

FOLDER = Path("ab/mine")


def record() -> dict:
    return json.loads((FOLDER / "ab.json").read_text())


def error(capsys, *arguments: str) -> str:
    """Return the only line of a failing command's error."""
    capsys.readouterr()
    assert ab(*arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_a_winner_and_what_it_cost(here, capsys):
    """The better arm writes longer completions; the third arm is the control under another name."""
    assert ab(*ARMS, "--arm", f"same:train.lr={SAME}", *QUICK, "--seeds", "8", "--min-effect", "0.05") == UNDECIDED
    out = capsys.readouterr().out
    assert re.search(r"up is better than base: eval/accuracy \d\d\.\d % against \d\d\.\d %, a difference of \+", out)
    assert "up wins the metric, but spends more or drifts: response length ×1.4" in out
    assert "The data do not tell whether same is better or worse than base" in out
    result = record()["result"]
    up, same = result["arms"]["up"], result["arms"]["same"]
    assert (up["verdict"], up["pairs"], same["verdict"]) == ("better", 8, "undecided")
    assert up["p"] == 2 / 256
    assert up["adjusted_p"] == 4 / 256
    red = {guard["guard"] for guard in up["guards"] if guard["sign"] == "red"}
    assert red == {"response length", "response length in training", "tokens generated"}
    assert {guard["sign"] for guard in same["guards"]} <= {"same", "unknown"}
    assert up["prompts"]["count"] == 60
    assert sum(up["prompts"]["flips"][side] for side in ("gained", "lost", "same")) == 60
    assert sum(up["prompts"]["shares"].values()) == pytest.approx(1.0)
    low, high = (up["prompts"]["interval"][end] for end in ("low", "high"))
    assert low < up["mean"] < high

    page = (FOLDER / "ab.html").read_text()
    assert '<span title="train.lr=0.2">' in page, "what an arm sets, to who points at it"
    assert "http" not in page, "one file, that asks for nothing"
    assert "<script" not in page
    assert page.index("up is better than base") < page.index("<svg"), "the verdict comes first"
    assert page.count("<svg") >= 10
    assert '<td class="red"' in page
    assert "prefers-color-scheme:dark" in page
    text = (FOLDER / "ab.md").read_text()
    assert "| up | response length | 20" in text
    assert "**red**" in text


def test_the_same_command_goes_on_and_says_the_same(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    before, page = record(), (FOLDER / "ab.html").read_text()
    assert ab(*ARMS, *QUICK) == DECIDED
    assert record() == before
    assert (FOLDER / "ab.html").read_text() == page
    trials = Store.open(FOLDER).trials
    assert all(Store.open(FOLDER).state(trial).attempts == 1 for trial in trials)


def test_a_test_that_is_killed_before_its_runs_have_folders_goes_on(here, capsys, monkeypatch):
    def killed(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "create", killed)
        assert ab(*ARMS, *QUICK) not in (DECIDED, UNDECIDED)
    registered, text = record()["registered"], (FOLDER / "ab.json").read_text()
    assert "the design was registered on" in error(capsys, *ARMS, *QUICK, "--min-effect", "0.1")
    (FOLDER / "ab.json").write_text(text.replace('"min_effect": 0.0', '"min_effect": 0.1'))
    assert "is not what was registered, by journal.jsonl" in error(capsys, *ARMS, *QUICK, "--min-effect", "0.1")
    (FOLDER / "ab.json").write_text(text)
    assert ab(*ARMS, *QUICK) == DECIDED
    assert record()["registered"] == registered


def test_a_test_whose_list_of_runs_is_gone_does_not_go_on(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    (FOLDER / "sweep.json").unlink()
    assert "no sweep.json" in error(capsys, *ARMS, *QUICK)


def test_it_is_registered_before_the_first_run(here, capsys):
    seen = {}

    def look(folder: Path) -> None:
        seen.update(record())
        raise RunError("nothing is trained here")

    here[0] = look
    ab(*ARMS, *QUICK, "--min-effect", "0.03")
    assert seen["result"] is None
    assert seen["design"]["metric"] == "eval/accuracy"
    assert seen["design"]["min_effect"] == 0.03
    assert seen["differences"]["up"] == [f"train.lr = {CONTROL} -> {BETTER}"]
    assert {"dovetail", "jax", "python"} <= seen["versions"].keys()
    assert set(seen["trials"]) == {"base", "up"}


def test_a_crashed_run_is_counted_and_shown(here, capsys):
    def crash(folder: Path) -> None:
        if "train.lr = 0.2" in (folder / "config.gin").read_text():
            raise RunError("policy_loss/loss is nan at rl step 3")
        train(load(folder / "config.gin"), folder)

    here[1] = crash
    ab(*ARMS, *QUICK)
    out = capsys.readouterr().out
    result = record()["result"]
    assert result["arms"]["up"]["pairs"] == 5
    assert "lost 1 of 6 runs; its pair is left out of the comparison" in out
    page = (FOLDER / "ab.html").read_text()
    assert "policy_loss/loss is nan at rl step 3" in page
    assert "Without a result" in page
    assert "failed" in (FOLDER / "ab.md").read_text()


@pytest.mark.slow
def test_looks_happen_when_they_were_planned_and_end_a_clear_case_early(here, capsys):
    assert ab(*ARMS, *QUICK, "--seeds", "16", "--sequential", "pocock:2") == DECIDED
    result = record()["result"]
    assert (result["look"], result["pairs"], result["over"]) == (1, 8, True)
    states = [Store.open(FOLDER).state(trial).status for trial in Store.open(FOLDER).trials]
    assert (states.count("done"), states.count("waiting")) == (16, 16)
    assert "look 1 of 2, 8 of 16 pairs, stopped early" in (FOLDER / "ab.html").read_text()
    arm = result["arms"]["up"]
    assert arm["p"] < arm["adjusted_p"] < 2 * arm["p"]
    assert arm["confidence"] == pytest.approx(0.9706, abs=1e-3)


@pytest.mark.slow
def test_before_the_first_look_nothing_is_compared(here, capsys):
    def stop(folder: Path) -> None:
        raise KeyboardInterrupt

    here[3] = stop
    assert ab(*ARMS, *QUICK) == 130
    capsys.readouterr()
    assert main(["report", str(FOLDER)]) == 0
    page = (FOLDER / "ab.html").read_text()
    assert "the first look is after 6 pairs, 3 of them finished so far" in page
    assert "<svg" not in page
    assert not re.search(r"\d\d\.\d.%", page), "no result of any run"
    assert record()["result"] is None
    here.clear()
    assert ab(*ARMS, *QUICK) == DECIDED


@pytest.mark.slow
def test_a_registered_design_is_changed_only_with_a_reason(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    message = error(capsys, *ARMS, *QUICK, "--metric", "reward/mean")
    assert "the design was registered on" in message
    assert "metric: eval/accuracy -> reward/mean" in message
    assert "--amend" in message
    assert "another test is registered there" in error(capsys, *ARMS[:3], "up:train.lr=0.3", *QUICK)
    assert "arm third: None -> ['train.lr=0.3']" in error(capsys, *ARMS, "--arm", "third:train.lr=0.3", *QUICK)
    assert "an amendment may add seeds, drop none" in error(capsys, *ARMS, *QUICK, "--seeds", "4", "--amend", "x")
    ab(*ARMS, *QUICK, "--seeds", "8", "--metric", "reward/mean", "--amend", "accuracy saturates")
    (amendment,) = record()["amendments"]
    assert amendment["why"] == "accuracy saturates"
    assert amendment["pairs"] == 6
    assert [change.split(":")[0] for change in amendment["changes"]] == ["metric", "seeds"]
    page = (FOLDER / "ab.html").read_text()
    assert "accuracy saturates" in page
    assert "The p-values do not know of this choice" in page
    assert record()["result"]["pairs"] == 8
    assert "prompts" not in record()["result"]["arms"]["up"], "reward/mean is of no prompt of an evaluation"


def test_a_dry_run_starts_nothing(here, capsys):
    assert ab(*ARMS, *QUICK, "--min-effect", "0.02", "--deviation", "0.02", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "12 runs would be made in ab/mine" in out
    assert "arm up: train.lr = 0.1 -> 0.2" in out
    assert "power: 6 pairs find a difference of 1.79 standard deviations" in out
    assert re.search(
        r"power: 2\.0 points is found in 3\d % of cases if the differences deviate by 2\.0 points; 11 pairs", out
    )
    assert not FOLDER.exists()


@pytest.mark.slow
def test_a_config_may_say_it_all(here, capsys):
    Path("mine.gin").write_text(f"""
        train.steps = 40
        ab.arms = {{'base': ('train.lr={CONTROL}',), 'up': ('train.lr={BETTER}',)}}
        ab.seeds = 6
        ab.window = 'last2'
        ab.min_effect = 0.05
    """)
    assert ab("--dry-run", "--seeds", "7") == 0
    out = capsys.readouterr().out
    assert "arm up: train.lr = 0.1 -> 0.2" in out
    assert "mean of last2; 7 seeds" in out
    assert ab("--dry-run", "--arm", f"up:train.lr={SAME}") == 0
    assert "arm up: train.lr = 0.1 -> 0.3" in capsys.readouterr().out
    Path("mine.gin").write_text("ab.arm = {}")
    assert "mine.gin:1: ab has no setting 'arm'. Did you mean 'arms'?" in error(capsys)
    Path("mine.gin").write_text("ab.arms = {'a': (), 'b': ('ab.seeds=3',)}")
    assert error(capsys) == "error: arm b: 'ab.seeds' is not part of what a run computes; use --set for all arms"


@pytest.mark.slow
def test_few_pairs_are_warned_of(here, capsys):
    ab(*ARMS, *QUICK, "--seeds", "5", "--dry-run")
    assert "warning: 5 pairs cannot decide for an arm" in capsys.readouterr().out
    ab(*ARMS, *QUICK, "--seeds", "8", "--sequential", "pocock:4", "--dry-run")
    assert (
        "the looks after 2, 4 pairs are too early for a winner: they are not made, and cost nothing"
        in capsys.readouterr().out
    )


def test_lower_may_be_better(here, capsys):
    ab(*ARMS, *QUICK, "--metric", "eval/length_mean", "--goal", "min")
    found = record()["result"]["arms"]["up"]
    assert found["verdict"] == "worse"
    assert found["mean"] < 0 < found["arm"] - found["control"]
    assert "up is worse than base" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arm", "a:train.policy_loss=gpso"), "gspo"),
        (("--control", "bsae"), "there is no arm 'bsae'. Did you mean 'base'?"),
        (("--metric", "eval/acuracy"), "Did you mean 'eval/accuracy'?"),
        (("--arm", "twin:train.lr=0.2"), "arms up and twin are the same config"),
        (("--arm", "idle:train.lr=0.1,policy_loss.gspo.epsilon_low=0.1"), "arms base and idle are the same config"),
        (("--seeds", "0"), "there are none"),
        (("--seeds", "1,1"), "one of them is there twice"),
        (("--seeds", "5000"), "raise sweep.max_trials"),
        (("--window", "first"), "write last, last5, last10% or all"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(here, capsys, arguments, message):
    capsys.readouterr()
    assert ab(*ARMS, *QUICK, *arguments) == 1
    assert message in capsys.readouterr().err
    assert not FOLDER.exists()


def test_a_metric_that_no_run_turns_out_to_have_ends_the_test_with_the_first_run(here, capsys):
    message = error(capsys, *ARMS, *QUICK, "--metric", "policy_loss/clipping")
    assert "has no metric 'policy_loss/clipping'. Did you mean 'policy_loss/clip_fraction'?" in message
    done = [Store.open(FOLDER).state(trial).status for trial in Store.open(FOLDER).trials].count("done")
    assert done == 1


@pytest.mark.slow
def test_the_same_seeds_elsewhere_are_no_new_evidence(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    message = error(capsys, *ARMS, *QUICK, "--folder", "ab/again")
    assert "'ab/mine' has compared these arms on seeds 0, 1, 2, 3, 4, 5 already" in message
    other = (*ARMS[:2], "--arm", f"same:train.lr={SAME}")
    assert ab(*other, *QUICK, "--folder", "ab/other", "--dry-run") == 0, "a control may serve twice"
    assert ab(*ARMS, *QUICK, "--seeds", "6:12", "--folder", "ab/again", "--dry-run") == 0
    assert ab(*ARMS, *QUICK, "--folder", "ab/again", "--repeat", "--dry-run") == 0


@pytest.mark.slow
def test_a_corrupt_run_is_named_set_aside_and_made_again(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    store = Store.open(FOLDER)
    broken = store.folder(store.trials[0])
    (broken / "run.json").write_text("{")
    before = record()["result"]["arms"]["up"]["mean"]
    assert main(["report", str(FOLDER)]) == 0
    assert "corrupt" in (FOLDER / "ab.md").read_text(), "not dropped without a word"
    assert record()["result"]["arms"]["up"]["pairs"] == 5
    capsys.readouterr()
    assert ab(*ARMS, *QUICK) == DECIDED
    assert "its folder cannot be read" in capsys.readouterr().out
    assert record()["result"]["arms"]["up"]["mean"] == pytest.approx(before)
    assert record()["result"]["set_aside"] == [f"{broken.name}-1"]
    assert f"{broken.name}-1" in (FOLDER / "ab.html").read_text()


def test_a_record_that_cannot_be_read_is_one_line(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    (FOLDER / "ab.json").write_text('{"format": 1}')
    assert "is not a readable record of an A/B test" in error(capsys, *ARMS, *QUICK)
    with pytest.raises(RunError, match="'ab/mien' is not the folder of an A/B test .* Did you mean 'mine'"):
        Registration.load(Path("ab/mien"))


def test_the_result_is_json_that_everybody_reads(here):
    ab(*ARMS, *QUICK)
    text = (FOLDER / "ab.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert all(math.isfinite(run["value"]) for run in json.loads(text)["result"]["runs"])


def test_a_verdict_says_what_it_assumes_and_what_few_pairs_cannot_show(here, capsys):
    assert ab(*ARMS, *QUICK) == DECIDED
    assert re.search(
        r"The verdict on \S+ assumes that nothing rare sets the arms apart: a collapse in up to 39 % of the seeds may have"
        r" been missed by 6 pairs\.",
        capsys.readouterr().out,
    )


def test_a_collapse_is_named_in_the_verdict(here, capsys):
    def collapse(folder: Path) -> None:
        config = load(folder / "config.gin")
        train(config, folder)
        if round(config.train.lr, 3) == SAME:
            text = (folder / "metrics.jsonl").read_text()
            (folder / "metrics.jsonl").write_text(re.sub(r'"eval/accuracy": [\d.]+', '"eval/accuracy": 0.0', text))

    here[4] = collapse
    ab(*ARMS[:2], "--arm", f"same:train.lr={SAME}", *QUICK, "--seeds", "8")
    assert "One difference lies far from the others, against same" in capsys.readouterr().out
    assert record()["result"]["arms"]["same"]["symmetry"]["against_arm"] == 1


def test_lost_runs_may_count_as_the_worst(here, capsys):
    def crash(folder: Path) -> None:
        if "train.lr = 0.2" in (folder / "config.gin").read_text():
            raise RunError("policy_loss/loss is nan at rl step 3")
        train(load(folder / "config.gin"), folder)

    here[1] = here[2] = crash
    ab(*ARMS, *QUICK, "--lost", "worst")
    assert record()["design"]["lost"] == "worst"
    assert record()["result"]["arms"]["up"]["pairs"] == 6
    assert "up lost 2 of 6 runs, which count as the worst result of both arms." in capsys.readouterr().out
    assert "lost: leave_out -> worst" not in (FOLDER / "ab.md").read_text()
    assert "lost: worst -> leave_out" in error(capsys, *ARMS, *QUICK)


def test_arms_that_record_the_same_numbers_are_identical(here, capsys, monkeypatch):
    monkeypatch.setattr("tests.lab.ab.stub.LIKE", {SAME: CONTROL})
    arms = (*ARMS, "--arm", f"same:train.lr={SAME}")
    assert ab(*arms, *QUICK, "--seeds", "7", "--min-effect", "0.01") == DECIDED
    assert record()["result"]["arms"]["same"]["verdict"] == "identical"
    assert "same and base are identical: in all 7 pairs their runs have recorded the same numbers" in (
        capsys.readouterr().out
    )


def test_arms_that_differ_in_one_pair_are_not_identical(here, capsys, monkeypatch):
    """As a correction that has something to do in a single run."""
    monkeypatch.setattr("tests.lab.ab.stub.LIKE", {SAME: CONTROL})

    def unlike(folder: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("tests.lab.ab.stub.LIKE", {})
            train(load(folder / "config.gin"), folder)

    here[2] = unlike
    ab(*ARMS, "--arm", f"same:train.lr={SAME}", *QUICK, "--seeds", "7")
    assert record()["result"]["arms"]["same"]["verdict"] == "undecided"
    assert "identical" not in capsys.readouterr().out


def test_equivalence_is_reported_with_its_own_p_value(here, capsys):
    assert ab(*ARMS[:2], "--arm", f"same:train.lr={SAME}", *QUICK, "--seeds", "8", "--min-effect", "0.2") == DECIDED
    p = record()["result"]["arms"]["same"]["equivalence_p"]
    assert f"p of a difference of 20.0 points or more = {p:.2g}" in capsys.readouterr().out


@pytest.mark.slow
def test_many_arms_have_a_row_each_the_best_first(here, capsys, monkeypatch):
    monkeypatch.setitem(GAIN, BETTER, 0.3)
    alike = [f"like{index}" for index in range(6)]
    arms = [part for index, name in enumerate(alike) for part in ("--arm", f"{name}:train.lr={0.5 + index / 100}")]
    assert ab(*ARMS, *arms, *QUICK, "--seeds", "10") == UNDECIDED
    page = (FOLDER / "ab.html").read_text()
    assert "7 arms against base" in page
    assert page.count('<div class="verdict') == 2, "the better one, and one for all that are undecided"
    forest = page[page.index('aria-label="differences with intervals"') :].partition("</svg>")[0]
    labels = re.findall(r'class="end strong">(\w+)<', forest)
    assert labels[0] == "up"
    assert sorted(labels) == sorted([*alike, "up"])
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in page.split("<tr>")]
    (up,) = [row for row in rows if row[:2] == ["up", "better"]]
    assert up[2] == "10"
    assert ["up", "response length"] in [row[:2] for row in rows], "what has changed is listed"
    assert not [row for row in rows if row[1:2] == ["gradient norm"]]
    assert len([row for row in rows if len(row) == 11 and row[0] in {"base", "up", *alike}]) == 8, "runs by arm"
    assert page.count('aria-label="eval/accuracy of ') == 7, "a small chart for each arm"
    undecided = f"The data do not tell whether these are better or worse than base: {', '.join(alike)}."
    text = (FOLDER / "ab.md").read_text()
    assert text.startswith("# 7 arms against base\n")
    assert f"\n**{undecided}**\n" in text
    assert undecided in page
    assert undecided in capsys.readouterr().out.splitlines()
