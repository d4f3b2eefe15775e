"""Configs that a plugin ships: found by name, completed, listed, included; a broken plugin affects no other."""

import sys
from pathlib import Path

import pytest
from tests.distribution import write_distribution

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, DovetailWarning
from dovetail.registry import _discovered
from dovetail.shipped import find, folder
from dovetail_kit.completions import configs

PLUGIN = """
import dovetail

@dovetail.hookimpl
def dovetail_configs(register):
    register("configs")
"""
FILES = {
    "configs/recipe.gin": "include 'base.gin'\ntrain.steps = 3\n",
    "configs/base.gin": "include 'grpo.gin'\ntrain.prompts = 4\n",
    "configs/math/large.gin": "include 'base.gin'\ninclude '../recipe.gin'\ntrain.steps = 7\n",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with a package and its configs on the path, and works elsewhere."""
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(site))

    def put(distribution: str, package: str, source: str = PLUGIN, files: dict[str, str] = FILES) -> Path:
        modules = {f"{package}/{path}": text for path, text in ({"__init__.py": source} | files).items()}
        write_distribution(site, distribution, modules, {"dovetail": {package: package}})
        sys.modules.pop(package, None)
        _discovered.cache_clear()
        return site / package

    yield put
    _discovered.cache_clear()


def test_a_command_line_finds_it_by_its_owner_and_name(install, capsys):
    place = install("Acme.RL", "acme_ships")
    assert find("acme-rl/recipe") == place / "configs" / "recipe.gin"
    assert find("acme_rl/math/large") == place / "configs" / "math" / "large.gin"
    assert main(["config", "show", "acme-rl/recipe"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"train.steps = 3 # {place}/configs/recipe.gin:2" in shown
    assert f"train.prompts = 4 # {place}/configs/base.gin:2" in shown
    assert f"# {folder()}/grpo.gin:" in shown


def test_a_config_of_a_plugin_that_is_switched_off_is_said_to_be_that(monkeypatch):
    monkeypatch.setattr("dovetail.shipped.is_disabled", lambda owner: owner == "acme-rl")
    with pytest.raises(
        ConfigError, match=r"no config file 'acme-rl/recipe'\. DOVETAIL_DISABLE switches off acme-rl\. Shipped"
    ):
        find("acme-rl/recipe")


def test_an_include_is_beside_the_file_then_in_its_package_then_shipped(install):
    place = install("acme-rl", "acme_ships") / "configs"
    Path("mine.gin").write_text("include 'acme-rl/math/large.gin'\n")
    settings = load("mine.gin").train
    assert (settings.prompts, settings.steps) == (4, 7)
    (place / "math" / "base.gin").write_text("train.prompts = 9\n")
    assert load("mine.gin").train.prompts == 4, "recipe.gin has its own base.gin beside it, and comes later"
    (place / "recipe.gin").write_text("train.steps = 3\n")
    assert load("mine.gin").train.prompts == 9


def test_what_is_beside_the_file_comes_before_what_ships(install):
    install("acme-rl", "acme_ships")
    Path("acme-rl").mkdir()
    Path("acme-rl", "base.gin").write_text("train.prompts = 11\n")
    Path("mine.gin").write_text("include 'acme-rl/base.gin'\n")
    assert load("mine.gin").train.prompts == 11


def test_a_name_in_a_shipped_config_is_that_of_its_owner_whatever_is_installed(install):
    source = (
        PLUGIN
        + """

@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "gspo", "acme_owns:loss")


def loss(logps, mask):
    return logps
"""
    )
    install(
        "acme-rl",
        "acme_owns",
        source,
        FILES | {"configs/recipe.gin": "train.policy_loss = gspo\ntrain.advantage = grpo\n"},
    )
    config = load(find("acme-rl/recipe"), plan=False)
    assert config.setting("train.policy_loss") == "acme-rl/gspo"
    assert config.setting("train.advantage") == "grpo"
    assert load(find("gspo"), plan=False).setting("train.policy_loss") == "gspo"


def test_a_bare_name_is_dovetails_alone(install):
    install("acme-rl", "acme_ships", files={"configs/grpo.gin": "train.steps = 1\n"})
    assert find("grpo") == find("dovetail/grpo") == folder() / "grpo.gin"


def test_an_unknown_name_lists_what_ships_with_the_nearest(install):
    place = install("acme-rl", "acme_ships")
    for word in ("acme-rl/recip", "acme-rl/recipe.gin", "recipe"):
        with pytest.raises(ConfigError, match=r"Did you mean 'acme-rl/recipe'\? .*, acme-rl/math/large, .* quickstart"):
            find(word)
    Path("mine.gin").write_text("include 'acme-rl/bse.gin'\n")
    missing = rf"mine.gin:1: no such file: {place}/configs/bse.gin. Did you mean 'base.gin'\?"
    with pytest.raises(ConfigError, match=missing):
        load("mine.gin")


def test_a_run_given_as_a_config_is_told_how_to_be_given(tmp_path):
    with pytest.raises(ConfigError, match=r"is a folder; a config is a gin file, or the name of a shipped config$"):
        find(str(tmp_path))
    (tmp_path / "run.json").touch()
    with pytest.raises(ConfigError, match=rf"config\. It is a run: .*config\.gin; eval, .* take --run {tmp_path}$"):
        find(str(tmp_path))


def test_an_include_of_a_plugin_that_is_broken_says_that_it_is(install):
    install("acme-rl", "acme_ships", "raise ValueError('a bug')\n")
    Path("mine.gin").write_text("include 'acme-rl/base.gin'\n")
    said = r"mine.gin:1: no such file: acme-rl/base.gin. Broken plugin acme-rl 1.0: .*ValueError: a bug"
    with pytest.warns(DovetailWarning, match="broken plugin acme-rl"), pytest.raises(ConfigError, match=said):
        load("mine.gin")


def test_tab_offers_it(install):
    install("acme-rl", "acme_ships")
    assert configs("acme") == ["acme-rl/base", "acme-rl/math/large", "acme-rl/recipe"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (PLUGIN.replace('"configs"', '"confgs"'), "confgs' holds no .gin file; a wheel must ship its configs ["),
        (PLUGIN + "    register('configs')\n", "the config 'base' is in the folder '"),
        (PLUGIN + "    1 / 0\n", "dovetail_configs raised ZeroDivisionError: division by zero ["),
    ],
)
def test_a_broken_plugin_is_named_and_the_others_ship_theirs(install, source, reason):
    install("acme-rl", "acme_broken", source)
    install("zeta-rl", "zeta_ships")
    with pytest.warns(DovetailWarning) as warned:
        assert find("zeta-rl/recipe").is_file()
    (said,) = [str(warning.message) for warning in warned]
    assert said.startswith("broken plugin acme-rl 1.0: its dovetail_configs raised ")
    assert reason in said
    with pytest.raises(ConfigError, match="there is no config file 'acme-rl/recipe'"):
        find("acme-rl/recipe")
