"""`pytest --dovetail-dist=NAME` on small distributions, as their authors would run it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from tests.programs import shared

GOOD = '''
import dovetail
import jax.numpy as jnp


@dovetail.declares(on_policy_gradient=True, expected_failures={"vmap": "a reason"} if FAILS else {})
def plain(logps, advantages, mask, *, scale: float = 1.0):
    """Policy gradient: L = -scale·A·log π, of logps, advantages and mask, times scale."""
    a, x = (jnp.where(mask, value.astype(jnp.float32), 0.0) for value in (advantages, logps))
    return -scale * a * x


def square(completions):
    """A score for each of the completions: its length, squared."""
    return [float(len(text) ** 2) for text in completions]
'''
FINE = GOOD.replace("FAILS", "False")
INIT = """
import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "plain", "acme.parts:plain")
    register("reward", "square", "acme.parts:square")
"""


@pytest.fixture
def acme(tmp_path):
    """A distribution `acme-rl`, installed as by pip, and a function that runs pytest on it."""
    site, work = tmp_path / "site", tmp_path / "work"
    for folder in (site / "acme", site / "acme_rl-1.0.dist-info", work):
        folder.mkdir(parents=True)
    (site / "acme_rl-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rl\nVersion: 1.0\n")
    (site / "acme_rl-1.0.dist-info" / "entry_points.txt").write_text("[dovetail]\nacme = acme\n")
    (site / "acme" / "__init__.py").write_text(INIT)
    (work / "pytest.ini").write_text("[pytest]\n")

    def run(*arguments, parts=FINE, program=("-m", "pytest"), **environment):
        (site / "acme" / "parts.py").write_text(parts)
        known = (
            os.environ | shared() | {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")} | environment
        )
        command = [sys.executable, *program, *arguments]
        return subprocess.run(command, cwd=work, env=known, capture_output=True, text=True, check=False)

    run.site, run.work = site, work
    return run


STAMP = "from dovetail_kit.conformance import stamp; print(stamp.read('acme-rl').state, stamp.read('acme-rl'))"


@pytest.mark.slow
def test_a_good_distribution_gets_a_stamp_that_its_files_outdate(acme):
    before = acme("-c", STAMP, program=())
    assert before.stdout == "none not checked\n"
    done = acme("--dovetail-dist=Acme_RL", "-v", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "policy_loss/plain::padding PASSED" in done.stdout
    assert "reward/square::hostile_texts PASSED" in done.stdout
    assert "acme-rl::registration PASSED" in done.stdout
    assert "acme-rl 1.0 conforms to dovetail" in done.stdout
    assert acme("-c", STAMP, program=()).stdout.startswith("current ")
    changed = acme("-c", STAMP, program=(), parts=GOOD.replace("FAILS", "0"))
    assert changed.stdout.startswith("stale ")
    assert "but since then its files changed" in changed.stdout


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_written_to_changes_no_outcome(acme):
    command = ("--dovetail-dist=acme-rl", "--dovetail-dist=acme_rl", "-k", "registration")
    done = acme(*command, XDG_CACHE_HOME=os.devnull)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    done = acme(*command, parts="raise ValueError", XDG_CACHE_HOME=os.devnull)
    assert "the outcome of acme-rl is not recorded: " in done.stdout
    assert "INTERNALERROR" not in done.stdout


def test_a_failure_says_what_it_means_and_how_to_fix_it(acme):
    broken = GOOD.replace("FAILS", "True").replace("-scale * a * x", "-scale * a * x / mask.shape[1]")
    done = acme(
        "--dovetail-dist=acme-rl", "-k", "plain and (padding or vmap or row_order) and not other_numbers", parts=broken
    )
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout
    for words in (
        "policy_loss.plain of acme-rl 1.0 fails 'padding'",
        "seen:    with three more columns of padding: the value[",
        "fix:     Divide by counts of the mask",
        "parts.py:6]",
        "it passes, but is declared as an expected failure ('a reason'): remove the declaration",
    ):
        assert words in done.stdout, done.stdout
    assert "Traceback" not in done.stdout
    assert acme("-c", STAMP, program=()).stdout == "none not checked\n"


def test_an_unknown_distribution_is_refused_with_the_nearest_name(acme):
    done = acme("--dovetail-dist=acme-lr")
    assert done.returncode != 0
    assert "Did you mean 'acme-rl'?" in done.stderr


def test_a_broken_plugin_fails_and_says_why(acme):
    (acme.site / "acme" / "__init__.py").write_text("import nothing_of_that_name")
    done = acme("--dovetail-dist=acme-rl", "-W", "ignore")
    assert done.returncode == 1
    assert "acme-rl::registration" in done.stdout
    assert "No module named 'nothing_of_that_name'" in done.stdout


@pytest.mark.slow
def test_the_setting_applies_where_no_files_are_named(acme):
    (acme.work / "pytest.ini").write_text("[pytest]\ndovetail_dist = acme-rl\n")
    (acme.work / "test_own.py").write_text("def test_own(): pass\n")
    assert "policy_loss/plain::padding" in acme("--collect-only", "-q").stdout
    assert "policy_loss" not in acme("--collect-only", "-q", "test_own.py").stdout


OTHER_KIND = """
import dovetail


@dovetail.hookimpl
def dovetail_kinds(register_kind):
    register_kind(
        "verifier", "scores, mask -> doubt", stage="corrections", many=True, default=(), reads="fields",
        writes=("doubt",),
    )


@dovetail.hookimpl
def dovetail_components(register):
    register("verifier", "absolute", "acme.parts:absolute")
    register("verifier", "ranked", "acme.parts:ranked")
"""
VERIFIERS = '''
import jax.numpy as jnp


def absolute(scores, mask, *, scale: float = 1.0):
    """The doubt in each completion: -scale·|scores|, zero without policy tokens in the mask."""
    return jnp.where(jnp.any(mask, axis=-1), -scale * jnp.abs(scores), 0.0)


def ranked(scores, mask):
    """The place of each completion in the batch; the mask says which of the scores count, and forgets to."""
    return jnp.arange(len(scores)) * jnp.float32(1.0)
'''


@pytest.mark.slow
def test_the_kind_of_another_plugin_is_held_to_what_holds_for_all_that_read_fields(acme):
    (acme.site / "acme" / "__init__.py").write_text(OTHER_KIND)
    done = acme("--dovetail-dist=acme-rl", "-q", "-k", "not sharded", parts=VERIFIERS)
    failed = {line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    found = {"row_order", "empty_rows", "looks_at_what_it_takes"}
    assert failed == {f"verifier/ranked::{check}" for check in found}, done.stdout


@pytest.mark.slow
def test_settings_from_a_conftest(acme):
    parts = (
        GOOD.replace("FAILS", "False")
        .replace("scale: float = 1.0", "scale: tuple[float, ...]")
        .replace("-scale *", "-scale[0] *")
    )
    asked = ("--dovetail-dist=acme-rl", "-k", "plain and (fields_are_known or picklable)", "-rs")
    told = acme(*asked, parts=parts).stdout
    assert "policy_loss/plain::picklable: " in told
    assert "declare a value to test with" in told
    (acme.work / "conftest.py").write_text(
        "def pytest_dovetail_settings(component):\n    return {'scale': (1.0,)} if component.name == 'plain' else None\n"
    )
    assert "2 passed" in acme(*asked, parts=parts).stdout


@pytest.mark.slow
def test_the_summary_tells_what_was_skipped_and_which_claims_nothing_needs(acme):
    pair = '({"completions": "long enough"}, {"completions": "short"})'
    cautious = FINE.replace("def square", f"@dovetail.declares(deterministic=False, examples=[{pair}])\ndef square")
    told = acme(
        "--dovetail-dist=acme-rl", "-q", "-n", "0", "-k", "metrics_of_tokens or unneeded_claims", parts=cautious
    ).stdout
    assert "\nskipped policy_loss/plain::metrics_of_tokens: it reports no metrics\n" in told
    assert "\nnote: reward/square: deterministic=False may be left out: it passes " in told
    told = acme("--dovetail-dist=acme-rl", "-q", "-n", "0", "-k", "unneeded_claims").stdout
    assert "note: " not in told


def test_pytest_without_the_option_imports_nothing_heavy(acme):
    (acme.work / "test_light.py").write_text(
        "import sys\ndef test_light():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] in ('dovetail_kit', 'jax', 'flax')}\n"
        "    assert ours == {'dovetail_kit', 'dovetail_kit.pytest_plugin'}\n"
        "    assert 'dovetail.config' not in sys.modules\n"
    )
    done = acme("test_light.py", "-W", "error")
    assert done.returncode == 0, done.stdout
    assert importlib.util.find_spec("dovetail.config") is not None


ALONE = """
import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("reward", "square", "alone:square")


def square(completions):
    \"\"\"A score for each of the completions: its length, squared.\"\"\"
    return [float(len(text) ** 2) for text in completions]
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_single_file_is_checked(acme, how):
    (acme.work / "alone.py").write_text(ALONE)
    named = {"option": ("--dovetail-dist=alone.py", ""), "environment": ("--dovetail-dist=alone", "alone.py")}
    run = acme(
        named[how][0],
        "-q",
        "-k",
        "square and (one_for_each or docstring) or registration",
        "-n",
        "0",
        DOVETAIL_PLUGINS=named[how][1],
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["alone.py", "alone"])
def test_of_a_single_file_nothing_is_collected_but_its_own_tests(acme, asked):
    (acme.work / "alone.py").write_text(ALONE + "\n\ndef test_mine():\n    assert square(['ab']) == [4.0]\n")
    (acme.work / "test_others.py").write_text("raise RuntimeError\n")
    (acme.work / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    chosen = (f"--dovetail-dist={asked}", "--collect-only", "-q", "-n", "0")
    listed = acme(*chosen, DOVETAIL_PLUGINS="alone.py").stdout
    assert "alone.py::test_mine" in listed
    assert "reward/square::one_for_each" in listed
    assert "test_others" not in listed
    run = acme(*chosen, ".", DOVETAIL_PLUGINS="alone.py")
    assert "test_others.py" in run.stdout, "tests that are named are collected"


@pytest.mark.slow
def test_what_cannot_be_called_is_reported_once(acme):
    parts = FINE.replace(
        "def square(",
        "import attrs\n\n\n@attrs.frozen(kw_only=True)\nclass Square:\n    def open(self, folder): ...\n\n\ndef unused(",
    )
    (acme.site / "acme" / "__init__.py").write_text(
        INIT.replace('"reward", "square", "acme.parts:square"', '"sink", "square", "acme.parts:Square"')
    )
    run = acme("--dovetail-dist=acme-rl", "-q", "-k", "square or registration", "-n", "0", parts=parts)
    assert "its open(folder) cannot be called as kind 'sink' calls it" in run.stdout, run.stdout
    assert "1 failed" in run.stdout


def test_what_is_raised_everywhere_is_explained_once(acme):
    parts = FINE.replace("return [float(", "raise KeyError('key of mine')\n    return [float(")
    chosen = "square and (one_for_each or by_itself)"
    # without pytest's summary, which repeats whole messages where `CI` is set
    run = acme("--dovetail-dist=acme-rl", "-q", "-rN", "-k", chosen, "-n", "0", parts=parts)
    assert run.stdout.count("fix:     See to what it raises; then: ") == 1, run.stdout
    assert "seen:    it raises as in 'by_itself': KeyError: 'key of mine'" in run.stdout
