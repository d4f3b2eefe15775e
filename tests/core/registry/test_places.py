"""Errors name the line in the component's own package that led to them, whatever code raised them."""

import importlib.util
import json
import sys

import jax
import numpy as np
import pytest

from dovetail.registry import Component, Origin
from dovetail.registry.places import blamed, first_line, missing_in, raised_in

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


SEVERAL = """import attrs
def helper(text):
    return {}[text]


def loss(text):
    return helper(text)

@attrs.frozen(kw_only=True)
class Sink:
    def write(self, text):
        raise OSError("the server is down")


def hook(text):
    return helper(text)
"""


def test_of_several_components_in_a_file_the_one_that_was_running_is_blamed(tmp_path):
    (tmp_path / "several_places.py").write_text(SEVERAL)
    module = imported(tmp_path / "several_places.py", "several_places")
    origin = Origin("acme", "1.2", "several_places")
    components = [
        Component(kind=kind, name="mine", target=getattr(module, target), origin=origin)
        for kind, target in (("loss_term", "loss"), ("sink", "Sink"))
    ]

    # what is wrong with a neighbour is found on the way, and is not what was met
    broken = Component(kind="loss_term", name="broken", target=lambda mask, clip=0.2: mask, origin=origin)
    components.append(broken)

    def blamed_for(call):
        with pytest.raises((KeyError, OSError)) as caught:
            call("text")
        return blamed(caught.value, components)

    at = tmp_path / "several_places.py"
    assert blamed_for(module.loss) == f"loss_term.mine of acme 1.2 (several_places) raised KeyError: 'text' [{at}:3]"
    assert (
        blamed_for(module.Sink().write)
        == f"sink.mine of acme 1.2 (several_places) raised OSError: the server is down [{at}:12]"
    )
    assert blamed_for(module.hook) == f"acme 1.2 raised KeyError: 'text' [{at}:3]"
    assert blamed(ValueError("never raised"), components) == ""


def test_where_a_module_lacks_what_is_registered(tmp_path):
    file = tmp_path / "lacking_places.py"
    file.write_text('def hook(register):\n    register("reward", "x", "lacking_places:absent")\n')
    imported(file, "lacking_places")
    assert missing_in("lacking_places:absent") == f" [{file}:2]"
    assert missing_in("lacking_places:other") == f" [{file}:1]"
    assert missing_in("never_imported_places:x") == missing_in("sys:absent") == ""


@pytest.mark.parametrize(
    "looks", [lambda x: x if x > 0 else -x, float, np.asarray, range, lambda x: np.zeros(3)[x.astype(int)]]
)
def test_an_error_of_tracing_says_what_to_write_instead(looks):
    with pytest.raises(TypeError, match="traced|concrete|Tracer") as raised:
        jax.eval_shape(looks, jax.ShapeDtypeStruct((), "int32"))
    assert "write jnp.where for `if`" in first_line(raised.value)
    assert "jnp.where" not in first_line(ValueError("a bug"))
