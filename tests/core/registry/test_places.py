"""Errors name the line in the component's own package that led to them, whatever code raised them."""

import importlib.util
import json
import sys

import pytest

from dovetail.registry.places import raised_in

LOSS = "from acme_places.below.helper import read\n\n\ndef loss(text):\n    return read(text)\n"
HELPER = "import json\n\n\ndef read(text):\n    return json.loads(text)\n"


def imported(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_innermost_line_of_a_package_counts_wherever_in_it(tmp_path, monkeypatch):
    root = tmp_path / "acme_places"
    for folder in (root, root / "losses", root / "below"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (root / "losses" / "loss.py").write_text(LOSS)
    (root / "below" / "helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    loss = importlib.import_module("acme_places.losses.loss").loss
    with pytest.raises(json.JSONDecodeError) as caught:
        loss("{")
    assert raised_in(loss, caught.value) == f" [{root / 'below' / 'helper.py'}:5]"


def test_what_lies_beside_a_module_without_a_package_is_not_its_own(tmp_path):
    (tmp_path / "library.py").write_text(HELPER)
    (tmp_path / "one_file.py").write_text(LOSS.replace("acme_places.below.helper", "library_beside"))
    imported(tmp_path / "library.py", "library_beside")
    loss = imported(tmp_path / "one_file.py", "one_file").loss
    with pytest.raises(json.JSONDecodeError) as caught:
        loss("{")
    assert raised_in(loss, caught.value) == f" [{tmp_path / 'one_file.py'}:5]"
    assert raised_in(len, caught.value) == ""
