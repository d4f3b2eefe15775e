"""A preset gives the values of settings that nothing else sets."""

import attrs
import pytest

from dovetail.config import dump, load
from dovetail.errors import ConfigError
from dovetail.registry.component import Origin


def test_the_presets_are_these():
    values = {
        name: attrs.asdict(load(None, [f"sampling.preset={name}"]).choice("sampling.preset").bind())
        for name in ("greedy", "standard", "liberal")
    }
    assert values == {
        "greedy": {"temperature": 0.0, "top_k": None, "top_p": None},
        "standard": {"temperature": 0.7, "top_k": 50, "top_p": 0.95},
        "liberal": {"temperature": 0.85, "top_k": 2000, "top_p": 1.0},
    }


def test_what_is_set_goes_before_the_preset():
    config = load(None, ["sampling.preset=standard", "sampling.top_k=7"])
    assert (config.sampling.temperature, config.sampling.top_k, config.sampling.top_p) == (0.7, 7, 0.95)
    assert config.origins["sampling.temperature"] == "sampling_preset.standard"
    assert config.eval.temperature == 1.0


def test_a_preset_has_parameters_of_its_own_in_each_section():
    config = load(
        None,
        ["sampling.preset=standard", "eval.preset=standard", "eval/sampling_preset.standard.temperature=0.2"],
    )
    assert (config.sampling.temperature, config.eval.temperature) == (0.7, 0.2)


def test_the_written_config_is_the_same(tmp_path):
    config = load(None, ["sampling.preset=liberal", "eval.preset=greedy"])
    (tmp_path / "again.gin").write_text(dump(config))
    assert load(tmp_path / "again.gin") == config


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown sampling_preset 'standrad'. Did you mean 'standard'\?"):
        load(None, ["sampling.preset=standrad"])


@attrs.frozen(kw_only=True)
class Warm:
    """A preset for a setting that no section has."""

    temprature: float = 0.7


@attrs.frozen(kw_only=True)
class Cold:
    """A preset with a value that its setting does not take."""

    temperature: float = -1.0


def test_a_preset_of_a_value_that_a_setting_does_not_take_is_refused(registry):
    registry.add("sampling_preset", "cold", Cold, origin=Origin("acme", "1.0", "acme"))
    with pytest.raises(ConfigError) as caught:
        load(None, ["sampling.preset=cold"], registry=registry)
    assert str(caught.value) == (
        "--set sampling.preset=cold: sampling_preset.cold of acme 1.0 (acme) sets 'temperature': expected 0 <= float <"
        " inf, got -1.0."
    )


def test_a_preset_of_what_is_no_setting_is_refused(registry):
    registry.add("sampling_preset", "warm", Warm, origin=Origin("acme", "1.0", "acme"))
    with pytest.raises(
        ConfigError, match=r"sets 'temprature', which sampling does not have. Did you mean 'temperature'\?"
    ):
        load(None, ["sampling.preset=warm"], registry=registry)
