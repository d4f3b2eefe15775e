"""Old names work with a warning that names the place; removed names are refused, and the message has the new name."""

import pytest

import dovetail
from dovetail.config import dump, load
from dovetail.errors import ConfigError, DovetailWarning, PluginError, UnknownNameError
from dovetail.kinds import Kind
from dovetail.registry import Origin, Registry, Renamed, current


def soft(logps, mask, *, temperature: float = 1.0):
    """A loss."""
    return logps, mask, temperature


RENAMED = (
    Renamed("tanh_clip", since="0.3", removed_in="0.5"),
    Renamed("tau", to="temperature", since="0.3", removed_in="0.5"),
)
CONFIG = "train.policy_loss = 'tanh-clip'\npolicy_loss.tanh_clip.tau = 0.5\n"
NEW = "write 'soft'"
KL = Kind(name="kl", summary="")


@pytest.fixture
def make(tmp_path):
    """Return a function that registers `soft` of a version of acme-rl in a copy of the registry, and a config file."""
    file = tmp_path / "old.gin"
    file.write_text(CONFIG)

    def made(version: str) -> Registry:
        registry = Registry()
        for kind in current().kinds.values():
            registry.add_kind(kind, Origin("dovetail", "0", "dovetail"))
        for section in current().sections.values():
            registry.add_section(section)
        for component in current().components():
            registry.add(component.kind, component.name, component.target, origin=component.origin)
        registry.add("policy_loss", "soft", soft, origin=Origin("acme-rl", version, "acme"), renamed=RENAMED)
        return registry

    return made, file


def test_an_old_config_runs_with_warnings_that_say_where(make):
    made, file = make
    with pytest.warns(DovetailWarning) as warned:
        config = load(file, registry=made("0.4"))
    assert config.choice("train.policy_loss").params == {"temperature": 0.5}
    said = [str(each.message) for each in warned]
    assert said == [
        f"{file}:1: policy_loss 'tanh_clip' of acme-rl 0.4 is called 'soft' since 0.3; the old name is refused from 0.5"
        " on: write 'soft'",
        f"{file}:2: policy_loss.soft.tau of acme-rl 0.4 is called 'temperature' since 0.3; the old name is refused from"
        " 0.5 on: write 'temperature'",
        f"{file}:2: policy_loss 'tanh_clip' of acme-rl 0.4 is called 'soft' since 0.3; the old name is refused from 0.5"
        " on: write 'soft'",
    ]


def test_the_resolved_config_has_the_new_names_and_the_owner(make, tmp_path):
    made, file = make
    with pytest.warns(DovetailWarning):
        config = load(file, registry=made("0.4"))
    text = dump(config)
    assert "train.policy_loss = 'acme-rl/soft'" in text
    assert "policy_loss.soft.temperature = 0.5" in text
    (tmp_path / "resolved.gin").write_text(text)
    assert dump(load(tmp_path / "resolved.gin", registry=made("0.6"))) == text


def test_once_gone_the_old_name_is_refused_with_the_new_one(make):
    made, file = make
    with pytest.raises(ConfigError) as caught:
        load(file, registry=made("0.5"))
    first, *rest = str(caught.value).splitlines()
    assert first == (
        f"{file}:1: policy_loss 'tanh_clip' of acme-rl 0.5 is called 'soft' since 0.3; the old name was removed in 0.5: write"
        " 'soft'"
    )
    assert any("the old name was removed in 0.5: write 'temperature'" in line for line in rest)


def test_old_and_new_parameter_in_one_file_are_two_bindings_of_one_thing(make, tmp_path):
    made, _ = make
    both = tmp_path / "both.gin"
    both.write_text("train.policy_loss = 'soft'\npolicy_loss.soft.tau = 1.0\npolicy_loss.soft.temperature = 2.0\n")
    refused = pytest.raises(ConfigError, match="is already bound at .*both.gin:2; keep one of the two")
    with pytest.warns(DovetailWarning, match="write 'temperature'"), refused:
        load(both, registry=made("0.4"))


def test_get_warns_and_then_refuses(make):
    made, _ = make
    assert made("0.4").get("policy_loss", "acme-rl/tanh-clip").name == "soft"
    assert made("0.4").notice("policy_loss", "tanh-clip").endswith(NEW)
    assert made("0.4").notice("policy_loss", "soft") == ""
    with pytest.raises(UnknownNameError, match=NEW):
        made("0.5").get("policy_loss", "tanh_clip")


def test_in_a_notebook_too():
    dovetail.register("policy_loss", "newer", soft, renamed=[Renamed("older", since="0", removed_in="1")])
    with pytest.warns(DovetailWarning, match="write 'newer'"):
        assert dovetail.get("policy_loss", "older").name == "newer"


@pytest.mark.parametrize(
    ("since", "removed_in", "message"),
    [
        ("0.5", "0.5", "'x' of acme-rl: the old name 'y' goes in 0.5, which is not after its replacement in 0.5"),
        ("soon", "0.5", "Invalid version: 'soon'; write versions such as '0.5'"),
    ],
)
def test_versions_are_checked_at_registration(since, removed_in, message):
    registry = Registry()
    registry.add_kind(KL, Origin("dovetail", "0", "dovetail"))
    with pytest.raises(PluginError, match=message):
        registry.add(
            "kl",
            "x",
            soft,
            origin=Origin("acme-rl", "1", "a"),
            renamed=[Renamed("y", since=since, removed_in=removed_in)],
        )


def test_an_old_name_is_nobody_elses():
    registry = Registry()
    registry.add_kind(KL, Origin("dovetail", "0", "dovetail"))
    origin = Origin("acme-rl", "1", "a")
    old = [Renamed("y", since="1", removed_in="2")]
    registry.add("kl", "x", soft, origin=origin, renamed=old)
    with pytest.raises(PluginError, match="kl 'y' is registered twice by acme-rl"):
        registry.add("kl", "y", soft, origin=origin)
    with pytest.raises(PluginError, match="'z' of acme-rl has 'z' twice among its name, aliases and old names"):
        registry.add("kl", "z", soft, origin=origin, aliases=("z",))


def test_an_old_name_that_is_gone_stands_in_nobodys_way():
    for version, owners in (("1", 2), ("2", 1)):
        registry = Registry()
        registry.add_kind(KL, Origin("dovetail", "0", "dovetail"))
        old = [Renamed("y", since="1", removed_in="2")]
        registry.add("kl", "x", soft, origin=Origin("acme-rl", version, "a"), renamed=old)
        registry.add("kl", "y", soft, origin=Origin("beta-rl", "1", "b"))
        if owners == 1:
            assert registry.get("kl", "y").origin.distribution == "beta-rl"
        else:
            with pytest.raises(UnknownNameError, match="say which: 'acme-rl/x' or 'beta-rl/y'"):
                registry.get("kl", "y")
