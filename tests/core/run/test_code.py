"""A run is not resumed with code other than the code that it began with."""

import ast
import importlib
import json
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import RunError
from dovetail.registry import current
from dovetail.run.code import CODE, claim_code, code_of, files_of

FILES = {
    "__init__.py": "from acme_code import other\n",
    "other.py": "",
    "losses/__init__.py": "",
    "losses/soft.py": "from acme_code import scale\nfrom ..halves import half\n\n\ndef soft(logps, advantages, mask):\n"
    "    return scale.SCALE * half(-logps * advantages)\n",
    "scale.py": "import acme_code.deep\n\nSCALE = 1.0\n",
    "halves.py": "def half(x):\n    return x / 2\n",
    "deep.py": "",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        file = tmp_path / "acme_code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path / "acme_code"
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_code"]:
        del sys.modules[name]


def test_what_a_component_is_made_of_counts_and_what_stands_beside_it_does_not(package):
    component = dovetail.register("policy_loss", "soft", "acme_code.losses.soft:soft")
    before = code_of(component)
    for name in ("__init__.py", "other.py", "losses/__init__.py"):
        (package / name).write_text(FILES[name] + "\n# changed\n")
        assert code_of(component) == before, name
    for name in ("losses/soft.py", "scale.py", "halves.py", "deep.py"):
        (package / name).write_text(FILES[name] + "\n# changed\n")
        assert code_of(component) != before, name
        (package / name).write_text(FILES[name])


@pytest.mark.parametrize(
    "text", ["print 'Python 2'\n", "\0", "raise RuntimeError('no GPU here')\n", "raise SystemExit(0)\n"]
)
def test_a_module_that_cannot_be_imported_here_counts_too(package, text):
    losses = FILES["losses/soft.py"] + "\n\ndef fast():\n    from acme_code.far import kernel\n"
    (package / "losses" / "soft.py").write_text(losses)
    (package / "far.py").write_text(text)
    component = dovetail.register("policy_loss", "soft", "acme_code.losses.soft:soft")
    before = code_of(component)
    assert "acme_code.far" not in sys.modules
    (package / "far.py").write_text(text + "# changed\n")
    assert code_of(component) != before


def test_the_formulas_that_components_share_count():
    files = files_of(current().get("policy_loss", "gspo"))
    assert {"dovetail_loss.policy_loss.gspo", "dovetail.arrays"} <= files.keys()


def test_a_run_of_other_code_is_refused_with_the_ways_out(package, tmp_path):
    dovetail.register("policy_loss", "soft", "acme_code.losses.soft:soft")
    config = load(None, ["train.policy_loss=soft"])
    claim_code(tmp_path, config)
    claim_code(tmp_path, config)
    noted = json.loads((tmp_path / CODE).read_text())
    assert "policy_loss.soft of session" in noted
    assert "optimizer.adamw of dovetail" in noted
    assert "the engine's steps" in noted
    assert not any(name.startswith("sink.") for name in noted)
    (package / "halves.py").write_text("def half(x):\n    return x / 3\n")
    said = (
        f"the code of policy_loss.soft of session 0 (acme_code.losses.soft) [{package}/losses/soft.py:5] has changed"
        f" since the run in '{tmp_path}' began"
    )
    ways = f"choose another --folder to begin anew, or remove '{tmp_path}/code.json'"
    with pytest.raises(RunError, match=f"{re.escape(said)}.*{re.escape(ways)}"):
        claim_code(tmp_path, config)
    (tmp_path / CODE).unlink()
    claim_code(tmp_path, config)


def test_all_components_of_a_changed_file_are_named(package, tmp_path):
    """A hash covers the file, so nobody can tell which of them was changed."""
    soft = package / "losses" / "soft.py"
    soft.write_text(FILES["losses/soft.py"] + "\n\ndef hard(mask):\n    return mask\n")
    dovetail.register("policy_loss", "soft", "acme_code.losses.soft:soft")
    dovetail.register("loss_agg", "hard", "acme_code.losses.soft:hard")
    config = load(None, ["train.policy_loss=soft", "train.loss_agg=hard"])
    claim_code(tmp_path, config)
    soft.write_text(soft.read_text() + "\n# changed\n")
    with pytest.raises(RunError) as refused:
        claim_code(tmp_path, config)
    both = [f"loss_agg.hard of session 0 (acme_code.losses.soft) [{soft}:9]"]
    both += [f"policy_loss.soft of session 0 (acme_code.losses.soft) [{soft}:5]"]
    assert f"the code of {', '.join(both)} has changed" in str(refused.value)


def test_a_run_whose_reward_file_was_edited_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewards = tmp_path / "rewards.py"
    rewards.write_text("def near(completions):\n    return [1.0 for _ in completions]\n")
    sets = ["train.rewards=functions", "reward.functions.path=rewards.py", "reward.functions.name=near"]
    config = load(None, sets)
    claim_code(tmp_path, config)
    claim_code(tmp_path, config)
    assert "file rewards.py" in json.loads((tmp_path / CODE).read_text())
    rewards.write_text(rewards.read_text().replace("1.0", "0.5"))
    said = f"the code of file rewards.py has changed since the run in '{tmp_path}' began"
    with pytest.raises(RunError, match=re.escape(said)):
        claim_code(tmp_path, config)


def test_threads_do_not_parse_at_the_same_time(package, monkeypatch):
    """Runs of a population start together, and Python 3.11's parser keeps its depth in one place for all threads."""
    parse, inside, both = ast.parse, [], threading.Event()

    def watched(source, *others, **more):
        inside.append(source)
        if len(inside) > 1:
            both.set()
        both.wait(0.1)
        inside.pop()
        return parse(source, *others, **more)

    monkeypatch.setattr(ast, "parse", watched)
    component = dovetail.registry.register("policy_loss", "soft_in_threads", "acme_code.losses.soft:soft")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(code_of, [component] * 2)
    assert first == second
    assert not both.is_set()
