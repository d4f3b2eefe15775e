"""Commands of plugins: found, listed with their owner, refused if the name is taken; a broken plugin affects no other."""

import sys

import pytest
from tests.distribution import write_distribution

from dovetail.cli import main, parse
from dovetail.errors import DovetailWarning
from dovetail.registry import _discovered
from dovetail.training import loop

HELLO = """
import dovetail

@dovetail.hookimpl
def dovetail_commands(commands):
    hello = commands.add_parser("hello", help="greet 100% of them")
    hello.add_argument("--to", default="you")
    hello.set_defaults(run=lambda options: print("hello", options.to, "from {module}"))
"""
BODY = HELLO.partition("    hello = ")[0]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a distribution with one plugin module on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, module: str, source: str = HELLO) -> None:
        files = {f"{module}.py": source.replace("{module}", module)}
        write_distribution(tmp_path, distribution, files, {"dovetail": {"plugin": module}})
        sys.modules.pop(module, None)
        _discovered.cache_clear()

    yield put
    _discovered.cache_clear()


def listed(capsys) -> str:
    with pytest.raises(SystemExit):
        main(["--help"])
    return " ".join(capsys.readouterr().out.split())


def test_a_plugin_adds_a_command(install, capsys):
    install("acme-rl", "acme_hello")
    assert main(["hello", "--to", "us"]) == 0
    assert capsys.readouterr().out == "hello us from acme_hello\n"
    assert "hello greet 100% of them [acme-rl]" in listed(capsys)


def test_a_plugin_adds_an_option_to_training_and_surrounds_it(install, tmp_path, monkeypatch, capsys):
    source = """
import contextlib
import dovetail

@contextlib.contextmanager
def told(options, config, folder):
    print("begins", options.tell, config.train.steps, folder.name)
    yield
    print("ends")

@dovetail.hookimpl
def dovetail_training(training):
    training.parser.add_argument("--tell")
    training.around.append(told)
"""
    install("acme-rl", "acme_told", source)
    monkeypatch.setattr(loop, "train", lambda *_, **options: print("trains", options))
    monkeypatch.setattr("dovetail_lab.summary.summarise", lambda folder: "summary")
    folder = ("--folder", str(tmp_path / "run"))
    assert main(["train", *folder, "--set", "train.steps=3", "--tell", "us"]) == 0
    assert capsys.readouterr().out.splitlines() == ["begins us 3 run", "trains {'only_sft': False}", "ends", "summary"]
    assert main(["sft", *folder, "--set", "train.steps=3"]) == 0
    assert "begins None 3 run" in capsys.readouterr().out


def test_a_group_says_which_of_its_commands_is_meant_where_none_is_named(install, capsys):
    source = BODY + (
        '    board = commands.add_group("board", help="runs", default="show")\n'
        '    for name in ("show", "clear"):\n'
        "        each = board.add_parser(name, help=name)\n"
        '        each.add_argument("folder", nargs="?")\n'
        "        each.set_defaults(run=lambda options, name=name: print(name, options.folder))\n"
    )
    install("acme-rl", "acme_board", source)
    for words in (["board", "runs"], ["board"], ["board", "clear", "runs"]):
        assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["show runs", "show None", "clear runs"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (HELLO + "    raise ValueError('no\\nluck')\n", "its dovetail_commands raised ValueError: no luck [{file}:"),
        (HELLO + "    raise SystemExit(3)\n", "its dovetail_commands raised SystemExit: 3 [{file}:"),
        (HELLO + HELLO.splitlines()[-3] + "\n", "the command 'dovetail hello' is added twice [{file}:"),
        (BODY + "    commands.add_parser('say hello', help='')\n", "'say hello' cannot be the name of a command"),
    ],
)
def test_a_plugin_that_raises_is_named_and_the_other_commands_work(install, capsys, tmp_path, source, reason):
    install("acme-rl", "acme_broken", source)
    install("zeta-rl", "zeta_fine", HELLO.replace('"hello"', '"zeta"', 1))
    with pytest.warns(DovetailWarning) as warned:
        assert main(["zeta"]) == 0
    (said,) = [str(warning.message) for warning in warned]
    assert said.startswith("broken plugin acme-rl 1.0: ")
    assert reason.replace("{file}", str(tmp_path / "acme_broken.py")) in said
    assert said.endswith("mend it, or set DOVETAIL_DISABLE=acme-rl")
    assert "\n" not in said
    with pytest.warns(DovetailWarning), pytest.raises(SystemExit):
        main(["hello"])
    assert "invalid choice: 'hello'" in capsys.readouterr().err, "nothing of the broken plugin is taken"


@pytest.mark.parametrize("words", [["hello"], ["hello", "--to", "us", "-x"], ["hello", "--help"]])
def test_a_command_of_two_plugins_is_refused_with_both_named(install, capsys, words):
    install("zeta-rl", "zeta_hello")
    install("acme-rl", "acme_hello")
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "error: the command 'dovetail hello' is added by acme-rl and by zeta-rl, so neither is run; switch one"
        " off, as in DOVETAIL_DISABLE=zeta-rl\n"
    )
    assert "hello refused, because several plugins add it [acme-rl, zeta-rl]" in listed(capsys)


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_a_built_in_command_cannot_be_replaced(install, name):
    install("a-first", "acme_train", HELLO.replace('"hello"', f'"{name}"', 1))
    with pytest.warns(DovetailWarning, match=f"a-first 1.0: it adds a command 'dovetail {name}', which is built in"):
        assert parse([name]).run.__module__.startswith("dovetail")


def test_a_command_without_a_function_says_what_is_missing(install, capsys):
    install("acme-rl", "acme_empty", BODY + "    commands.add_parser('hello', help='greet')\n")
    assert main(["hello"]) == 1
    assert "its plugin must call parser.set_defaults(run=function)" in capsys.readouterr().err


def test_a_plugin_may_build_commands_below_its_own_with_argparse(install, capsys):
    source = BODY + (
        '    below = commands.add_parser("board", help="runs").add_subparsers()\n'
        '    below.add_parser("show").set_defaults(run=lambda options: print("shown"))\n'
    )
    install("acme-rl", "acme_below", source)
    assert main(["board", "show"]) == 0
    assert capsys.readouterr().out == "shown\n"


def test_a_switched_off_distribution_adds_nothing(install, monkeypatch, capsys):
    install("acme-rl", "acme_hello")
    monkeypatch.setenv("DOVETAIL_DISABLE", "acme-rl")
    assert "acme-rl" not in listed(capsys)
