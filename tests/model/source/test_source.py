"""What a path may name."""

import pytest
from tests.model.folders import FIXTURES
from tests.model.gguf_files import write_fixture

from dovetail.errors import ConfigError
from dovetail_model.source.source import Folder, GgufModel, Hub, open_source


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that must not be imported."""
    folder = tmp_path / "acme_lm"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('llama_cpp')")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_folders_files_and_names_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_fixture(tmp_path / "m.gguf", "qwen3")
    (tmp_path / "acme" / "tiny").mkdir(parents=True)
    kinds = {
        str(FIXTURES / "qwen3"): Folder,
        str(file): GgufModel,
        "acme/tiny": Folder,
        "acme/other": Hub,
        "acme/other@v1.0": Hub,
        "acme/other/m.gguf": Hub,
        "other": Folder,
        "./other/tiny": Folder,
        "~/models/tiny": Folder,
    }
    assert {path: type(open_source(path)) for path in kinds} == kinds
    (tmp_path / "acme" / "other").mkdir()
    file.rename(tmp_path / "acme" / "other" / "m.gguf")
    assert isinstance(open_source("acme/other/m.gguf"), GgufModel)


def test_a_package_s_only_gguf_file_is_found_without_importing_it(package):
    first = write_fixture(package / "first.gguf", "qwen3")
    assert open_source("package:acme_lm").name == str(first)
    (package / "more").mkdir()
    second = write_fixture(package / "more" / "second.gguf", "qwen3")
    assert open_source("package:acme_lm/more/second.gguf").name == str(second)
    for path in ("package:acme_lm", "package:acme_lm/third.gguf"):
        with pytest.raises(ConfigError) as error:
            open_source(path)
        assert str(error.value) == (
            f"{path}: name one GGUF file of the package, package:acme_lm/FILE; it has first.gguf, more/second.gguf"
        )


def test_a_package_that_is_not_installed():
    with pytest.raises(ConfigError) as error:
        open_source("package:llm_nobody")
    assert str(error.value) == (
        "package:llm_nobody: there is no package 'llm_nobody' here; if a distribution brings it, install that:"
        " pip install --no-deps llm-nobody"
    )


def test_a_file_that_is_not_there():
    with pytest.raises(ConfigError, match=r"^nowhere.gguf: No such file or directory$"):
        open_source("nowhere.gguf")
