"""A third party's component with an existing name: reachable everywhere by its owner's name, and never by accident."""

import pytest

import dovetail
from dovetail.cli import main
from dovetail.config import config_id, dump, load
from dovetail.errors import ConfigError
from dovetail.registry import Origin, current

OURS, THEIRS = "train.policy_loss=dovetail/gspo", "train.policy_loss=acme-rl/gspo"


def gspo(logps, advantages, mask, *, tilt: float = 1.0):
    """Their loss: logps times advantages on the mask, times tilt."""
    return logps * advantages * mask * tilt


@pytest.fixture(autouse=True)
def theirs():
    current().add("policy_loss", "gspo", gspo, origin=Origin("acme-rl", "2.0", "acme_rl.gspo"))
    yield
    current().remove("acme-rl")


def test_a_bare_name_of_the_user_is_refused_everywhere(capsys):
    with pytest.raises(dovetail.DovetailError, match="say which: 'dovetail/gspo' or 'acme-rl/gspo'"):
        dovetail.get("policy_loss", "gspo")
    for words in (
        ["describe", "policy_loss", "gspo"],
        ["explain", "--set", "train.policy_loss=gspo"],
    ):
        assert main(words) == 1
        assert "say which: 'dovetail/gspo' or 'acme-rl/gspo'" in capsys.readouterr().err
    assert main(["explain", "gspo"]) == 0
    assert "train.policy_loss = gspo" in capsys.readouterr().out


def test_get_and_describe(capsys):
    assert dovetail.get("policy_loss", "Acme_RL/gspo").load() is gspo
    assert dovetail.get("policy_loss", "dovetail/gspo").origin.distribution == "dovetail"
    assert main(["describe", "policy_loss", "acme-rl/gspo"]) == 0
    out = capsys.readouterr().out
    assert "Their loss" in out
    assert "origin:  acme-rl 2.0 (acme_rl.gspo)" in out


def test_explain_and_names_say_whose(capsys):
    assert main(["explain", "--set", THEIRS]) == 0
    assert "train.policy_loss = acme-rl/gspo" in capsys.readouterr().out
    assert main(["names", "policy_loss"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[0] == "gspo"]
    assert [line.endswith("[acme-rl]") for line in lines] == [True, False]


def test_parameters_are_those_of_the_chosen_one():
    config = load(None, [THEIRS, "policy_loss.gspo.tilt=2.0"])
    assert config.choice("train.policy_loss").params == {"tilt": 2.0}
    with pytest.raises(ConfigError, match="policy_loss.gspo has no parameter 'tilt'"):
        load(None, [OURS, "policy_loss.gspo.tilt=2.0"])


def test_the_resolved_config_has_the_owner_and_gives_it_back(tmp_path):
    config = load(None, [THEIRS, "policy_loss.gspo.tilt=2.0"])
    assert "train.policy_loss = 'acme-rl/gspo'" in dump(config)
    (tmp_path / "config.gin").write_text(dump(config))
    assert load(tmp_path / "config.gin") == config
    assert "train.policy_loss = 'dovetail/gspo'" in dump(load(None, [OURS]))
    assert config_id(config) != config_id(load(None, [OURS]))


def test_a_third_partys_name_alone_is_written_with_its_owner_so_that_it_stays_what_it_is(tmp_path):
    current().add("policy_loss", "tilted", gspo, origin=Origin("acme-rl", "2.0", "acme_rl.gspo"))
    config = load(None, ["train.policy_loss=tilted"])
    (tmp_path / "config.gin").write_text(dump(config))
    current().add("policy_loss", "tilted", gspo, origin=Origin("beta-rl", "1.0", "beta"))
    try:
        assert load(tmp_path / "config.gin") == config
        with pytest.raises(ConfigError, match="say which"):
            load(None, ["train.policy_loss=tilted"])
    finally:
        current().remove("beta-rl")


def test_an_alias_or_an_old_name_takes_a_name_as_well():
    origin = Origin("acme-rl", "2.0", "acme_rl.gspo")
    current().add("policy_loss", "other", gspo, origin=origin, aliases=("sapo",))
    with pytest.raises(dovetail.DovetailError, match="say which: 'dovetail/sapo' or 'acme-rl/other'"):
        dovetail.get("policy_loss", "sapo")
    assert dovetail.get("policy_loss", "acme-rl/sapo").name == "other"
