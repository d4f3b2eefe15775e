"""`dovetail fleet` on the folder of a run."""

import pytest

from dovetail.cli import main
from dovetail_rollout.hosted.roster import Roster


@pytest.fixture
def roster(tmp_path) -> Roster:
    """The files of a run with two replicas."""
    roster = Roster(tmp_path / "fleet")
    each = {"state": "live", "weights": "version-1", "losses": []}
    roster.say({"floor": 1, "replicas": {0: each, 1: each}})
    return roster


@pytest.mark.parametrize(
    ("words", "wanted"), [(["add"], (0, 1, 2)), (["add", "2"], (0, 1, 2, 3)), (["remove", "0"], (1,))]
)
def test_it_says_which_replicas_are_wanted(roster, tmp_path, words, wanted):
    assert main(["fleet", str(tmp_path), *words]) == 0
    assert roster.wanted() == wanted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "0"], "add 0: at least one can be added"),
        (["remove"], "say which replica to remove: 0, 1"),
        (["remove", "7"], "there is no replica 7; there are 0, 1"),
    ],
)
def test_mistakes_change_nothing(roster, tmp_path, capsys, words, said):
    assert main(["fleet", str(tmp_path), *words]) == 1
    assert said in capsys.readouterr().err
    assert roster.wanted() is None
