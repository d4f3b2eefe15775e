"""Which files belong to the packages that code in the sandbox may import."""

import importlib.metadata
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail_reward._sandbox import packages
from dovetail_reward._sandbox.packages import places


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An environment with `deep`, which needs `shallow` and, on no system, `nowhere`; and `elsewhere`, of no files here."""

    def install(name, files, *required):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0", *(f"Requires-Dist: {each}" for each in required)]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        (info / "top_level.txt").write_text(f"{name}\n")
        (info / "RECORD").write_text("".join(f"{each},,\n" for each in (*files, f"{info.name}/METADATA")))
        for each in files:
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each).write_text("")

    install("deep", ["deep/a.py", "deep.libs/b.so"], "shallow>=1", "absent", 'nowhere; sys_platform == "nowhere"')
    install("shallow", ["shallow.py", "../../bin/shallow"], "deep")
    install("nowhere", ["nowhere/a.py"])
    install("elsewhere", ["elsewhere.pth"])
    found = [importlib.metadata.Distribution.at(path) for path in tmp_path.glob("*.dist-info")]
    named = {each.metadata["Name"]: each for each in found}

    def distribution(name):
        if name not in named:
            raise importlib.metadata.PackageNotFoundError(name)
        return named[name]

    monkeypatch.setattr(packages.importlib.metadata, "distribution", distribution)
    monkeypatch.setattr(packages.importlib.metadata, "packages_distributions", lambda: {name: [name] for name in named})
    places.cache_clear()
    yield tmp_path.resolve()
    places.cache_clear()


def test_they_are_those_of_the_package_and_of_what_it_needs_here(installed):
    assert places(("deep",)) == {name: installed / name for name in ("deep", "deep.libs", "shallow.py")}
    assert places(("nowhere",)) == {"nowhere": installed / "nowhere"}
    assert places(()) == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dep", "'dep' is not installed in this environment. Did you mean 'deep'?"),
        ("elsewhere", r"'elsewhere' is installed, but not by copying its files \(pip install -e\?\)"),
    ],
)
def test_a_package_without_files_here_is_refused(installed, name, said):
    with pytest.raises(ConfigError, match=said):
        places((name,))


def test_numpy_brings_its_shared_libraries():
    assert all(isinstance(path, Path) and path.exists() for path in places(("numpy",)).values())
    assert "numpy" in places(("numpy",))
