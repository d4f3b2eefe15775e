"""The command, called as the user calls it."""

import json

from dovetail.cli import main


def test_it_ranks_the_runs(tmp_path, capsys):
    for name, values in (("worse", [0.25, 0.5]), ("better", [0.75, 0.5]), ("other", [])):
        (tmp_path / name).mkdir()
        lines = [{"phase": "rl", "step": step, "eval/accuracy": value} for step, value in enumerate(values)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["leaderboard", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["0.75", "better,", "step", "0", "0.5", "worse,", "step", "1"]


def test_where_there_is_none_it_says_so(tmp_path, capsys):
    assert main(["leaderboard", str(tmp_path), "--metric", "x"]) == 1
    assert "has recorded x" in capsys.readouterr().out
