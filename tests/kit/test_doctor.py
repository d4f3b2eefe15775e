"""The doctor finds the defects of a plugin, and says how to fix each of them."""

import sys

import pytest
from tests.distribution import write_distribution

from dovetail.cli import main
from dovetail.errors import UnknownNameError
from dovetail.registry import _discovered, discover
from dovetail.registry.one_file import FILES
from dovetail_kit.conformance import stamp
from dovetail_kit.doctor import examine
from dovetail_kit.doctor.distribution import _installed

INIT = """
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register({what})
"""
GOOD = '''
def soft(logps, mask, *, scale: float = 1.0):
    """A loss of logps on the mask, times scale: L = scale·log π."""
    return scale * logps * mask
'''


@pytest.fixture
def sick(tmp_path, monkeypatch):
    """Return a function that installs `acme-sick` and returns what the doctor finds."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "vllm.py").write_text("")  # a heavy library that costs these tests nothing

    def found(source=GOOD, what='"policy_loss", "soft", "acme_sick.losses:soft"', init="", points=None, **options):
        for module in [name for name in sys.modules if name.partition(".")[0] == "acme_sick"]:
            del sys.modules[module]
        files = {"acme_sick/__init__.py": init or INIT.format(what=what), "acme_sick/losses.py": source}
        points = {"dovetail": {"sick": "acme_sick"}, "dovetail.api": {"policy_loss": "v1"}} | (points or {})
        write_distribution(tmp_path, "acme-sick", files, points, **options)
        return [str(finding) for finding in examine("acme-sick", discover()[0])]

    return found


def test_a_sound_plugin_has_notes_at_most(sick, tmp_path):
    (note,) = sick()
    assert note == "note: conformance: not checked; run: pytest --dovetail-dist=acme-sick"
    stamp.write("acme-sick", checks=9, skipped=0, known=0)
    assert examine("acme-sick", discover()[0]) == []


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"source": GOOD.replace("logps, mask,", "logps, maks,")}, "error: policy_loss.soft: it reads the field 'maks', which nobody provides. Did you mean 'mask'? Known: "),
        ({"source": GOOD.replace("*, scale", "*args, scale")}, "error: policy_loss.soft: policy_loss.soft of acme-sick 1.0 (acme_sick.losses) has '*args'"),
        ({"source": GOOD.replace("= 1.0", "= 'a'")}, "error: policy_loss.soft: default of policy_loss.soft.scale"),
        ({"source": GOOD.replace("soft(", "other(")}, "error: policy_loss.soft: policy_loss.soft of acme-sick 1.0 cannot be imported from 'acme_sick.losses:soft'"),
        ({"source": "import absent\n" + GOOD}, "ModuleNotFoundError: No module named 'absent' ["),
        ({"source": GOOD.replace("times scale: L = scale·log π", "L = log π")}, "warning: policy_loss.soft: its docstring does not mention scale (check 'docstring') ["),
        ({"source": GOOD.replace("scale: float", "scale")}, "warning: policy_loss.soft: no annotation of scale: a config could set any value"),
        ({"source": GOOD.replace('"""A loss', 'f"""A loss')}, "warning: policy_loss.soft: it has no docstring, which is what `dovetail describe` prints"),
        ({"what": '"policy_loss", "gspo", "acme_sick.losses:soft"'}, "warning: policy_loss.gspo: dovetail has the policy_loss 'gspo' too, so a config of yours must say which: 'acme-sick/gspo' or 'dovetail/gspo'"),
        ({"what": '"policy_los", "soft", "acme_sick.losses:soft"'}, "error: broken: component 'soft' of acme-sick has the unknown kind 'policy_los'"),
        ({"init": INIT.replace("components", "component").format(what="")}, "error: broken: plugin acme-sick implements the unknown hook 'dovetail_component'"),
        ({"init": "import vllm\n" + INIT.format(what='"policy_loss", "soft", "acme_sick.losses:soft"')}, "warning: heavy import: 'acme_sick' imports vllm and takes "),
        ({"what": '"policy_loss", "soft", "acme_sick.losses:soft", renamed=[dovetail.Renamed("a", to="b", since="1", removed_in="2")]'}, "error: policy_loss.soft: it is registered with 'a' renamed to 'b', but its parameters are scale ["),
        ({"requires": []}, "warning: dependencies: it does not require dovetail-rl; write dependencies = [\"dovetail-rl>="),
        ({"requires": ["dovetail-rl>=99"]}, "error: incompatible: not imported: it requires 'dovetail-rl>=99'"),
        ({"points": {"dovetail.api": {}}}, "note: contract: it does not say which contract of 'policy_loss' it is written for, so v1 is assumed"),
        ({"points": {"dovetail.api": {"policy_loss": "v1", "policy_los": "v1"}}}, "warning: contract: it says which contract of kind 'policy_los' it is written for, but no plugin opens that kind. Did you mean 'policy_loss'?"),
        ({"points": {"dovetail.api": {"policy_loss": "one"}}}, "error: incompatible: not imported: its metadata has policy_loss = 'one'"),
        ({"points": {"dovetail": {}}}, "error: entry point: it announces no plugin; write in its pyproject.toml: [project.entry-points.dovetail]"),
        ({"record": ["acme_sick/__init__.py"]}, "error: files: 'acme_sick.losses' is "),
        ({"record": ["acme_sick/__init__.py", "acme_sick/losses.py"]}, "note: files: none of its packages has a file py.typed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(sick, options, finding):
    found = sick(**options)
    assert any(finding in each for each in found), found


SINK = '''
import attrs

@attrs.frozen(kw_only=True)
class Soft:
    """A sink."""

    def open(self, folder{more}):
        """Open."""
'''


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        (SINK.format(more=""), "its open(folder) cannot be called as kind 'sink' calls it, open(folder, total_steps, start_step) ["),
        (SINK.format(more="").replace("def open", "def opened"), "it has no 'open'; kind 'sink' wants open(folder, total_steps, start_step) ["),
        (SINK.format(more=", steps, begin, extra=1"), None),
    ],
)  # fmt: skip
def test_a_class_is_compared_with_the_protocol_of_its_kind(sick, source, finding):
    found = sick(source, what='"sink", "soft", "acme_sick.losses:Soft"')
    errors = [each for each in found if each.startswith("error")]
    assert not errors if finding is None else finding in errors[0]


def test_what_a_plugin_prints_does_not_hide_what_it_costs(sick):
    found = sick(
        init="import vllm\nprint('loading', end='')\n"
        + INIT.format(what='"policy_loss", "soft", "acme_sick.losses:soft"')
    )
    assert any("heavy import: 'acme_sick' imports vllm" in each for each in found), found


def test_a_plugin_that_ends_the_process_is_not_measured(sick):
    found = sick(init="raise SystemExit(0)")
    assert any(each.startswith("error: broken: ") for each in found), found


def test_a_module_in_a_package_that_is_not_installed_is_told(sick):
    found = sick(what='"policy_loss", "soft", "acme_sick.absent.losses:soft"', record=["acme_sick/__init__.py"])
    assert any("cannot be imported from 'acme_sick.absent.losses:soft'" in each for each in found), found


def test_an_unknown_distribution_gets_the_nearest(sick):
    sick()
    with pytest.raises(UnknownNameError, match="no distribution 'acme-sik' is installed. Did you mean 'acme-sick'"):
        examine("acme-sik", discover()[0])


def test_the_command_exits_with_1_on_errors(sick, capsys):
    sick(GOOD.replace("logps, mask,", "logps, maks,"))
    assert main(["plugin", "doctor", "acme-sick"]) == 1
    assert capsys.readouterr().out.startswith(
        "acme-sick: 1 error, 2 warnings, 1 note\n  error: policy_loss.soft: it reads"
    )
    assert main(["plugin", "doctor"]) == 1


ALONE = INIT.format(what='"policy_loss", "soft", "acme_alone:soft"') + GOOD.replace("logps, mask,", "logps, maks,")


@pytest.mark.parametrize("how", [("acme_alone.py",), ("--plugin", "acme_alone.py")])
@pytest.mark.parametrize(
    ("source", "finding"),
    [
        (ALONE, "error: policy_loss.soft: it reads the field 'maks', which nobody provides. Did you mean 'mask'?"),
        (
            ALONE.replace("_components", "_component"),
            "error: broken: plugin acme_alone implements the unknown hook 'do",
        ),
        ("import absent" + ALONE, "ModuleNotFoundError: No module named 'absent'"),
        ("import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')" + ALONE, "warning: intrusive: "),
    ],
)
def test_a_single_file_is_examined(tmp_path, monkeypatch, capsys, how, source, finding):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FILES, "")
    (tmp_path / "acme_alone.py").write_text(source)
    try:
        assert main(["plugin", "doctor", *how]) == 1
    finally:
        _discovered.cache_clear()
        sys.modules.pop("acme_alone", None)
    out = capsys.readouterr().out
    assert out.startswith("acme_alone: 1 error")
    assert finding in out


def test_a_single_file_of_the_environment_is_examined_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "acme_alone.py").write_text(ALONE)
    monkeypatch.setenv(FILES, str(tmp_path / "acme_alone.py"))
    try:
        assert main(["plugin", "doctor"]) == 1
    finally:
        _discovered.cache_clear()
        sys.modules.pop("acme_alone", None)
    assert "acme_alone: 1 error" in capsys.readouterr().out


def test_dovetail_itself_is_known_by_both_of_its_names():
    with pytest.raises(UnknownNameError, match="no distribution 'dovetale' is installed"):
        _installed("dovetale")
    assert _installed("dovetail").name == _installed("dovetail-rl").name


def test_plugins_lists_contracts_stamp_and_problems(sick, capsys):
    sick()
    assert main(["plugins"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("acme-sick"))
    assert line == "acme-sick 1.0: 1 component; written for policy_loss v1; conformance not checked"


def test_plugins_lists_what_is_incompatible_with_the_reason(sick, capsys):
    sick(requires=["dovetail-rl>=99"])
    assert main(["plugins"]) == 1
    out = capsys.readouterr().out
    assert "acme-sick 1.0: 0 components" in out
    assert "  incompatible: not imported: it requires 'dovetail-rl>=99', and dovetail 0" in out


def test_plugins_says_what_is_disabled(sick, capsys, monkeypatch):
    monkeypatch.setenv("DOVETAIL_DISABLE", "acme_sick")
    sick()
    assert main(["plugins"]) == 0
    assert "acme-sick 1.0: 0 components; disabled by DOVETAIL_DISABLE;" in capsys.readouterr().out
