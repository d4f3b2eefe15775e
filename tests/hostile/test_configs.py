"""Configs that are wrong, odd or not configs at all: refused with file and line, before anything is loaded."""

import os
from pathlib import Path

import pytest
from tests.hostile.case import Case, attempt


def gin(text: str | bytes, pattern: str, **others) -> Case:
    """Return a case of one config, `a.gin`, which `dovetail explain` reads."""
    return Case("explain a.gin", pattern, **{"files": {"a.gin": text}, **others})


def value(binding: str, pattern: str, **others) -> Case:
    """Return a case of one binding, whose line the message must name."""
    return gin(f"# a comment\n{binding}\n", rf"a\.gin:2: .*{pattern}", **others)


def link_to_itself(folder: Path) -> None:
    os.symlink("a.gin", folder / "a.gin")


def long_chain(folder: Path) -> None:
    for number in range(2000):
        (folder / f"{number}.gin").write_text(f"include '{number + 1}.gin'\n")
    (folder / "a.gin").write_text("include '0.gin'\n")


CASES = {
    # names
    "unknown setting": value("train.step = 3", "Did you mean 'steps'"),
    "unknown section": gin("trian.steps = 3\n", r"a\.gin:1: .*Did you mean 'train'"),
    "unknown component": value("train.policy_loss = 'gpso'", "Did you mean 'gspo'"),
    "unknown component in a list": value("train.rewards = ['exact_mach']", "Did you mean 'exact_match'"),
    "unknown parameter": value("policy_loss.grpo.epsilom_low = 1", "Did you mean 'epsilon_low'"),
    "parameter of an unknown component": gin("policy_loss.gpso.epsilon_low = 0.1\n", r"a\.gin:1: .*'gspo'"),
    "unknown kind": gin("policy_los.grpo.epsilon_low = 0.1\n", r"a\.gin:1: .*policy_loss"),
    "a key of four parts": gin("policy_loss.grpo.epsilon.low = 0.1\n", r"a\.gin:1: "),
    "unknown scope": gin("techer/model = 'decoder'\n", r"a\.gin:1: .*techer", lines=2),
    "scope in a scope": gin("a/b/train.steps = 3\n", r"a\.gin:1: "),
    "a name of another script": gin("train.stеps = 3\n", r"a\.gin:1: "),
    "a key with a hyphen": gin("train.group-size = 3\n", r"a\.gin:1: .*'-' is written '_'"),
    "a key with a dot too many": gin("train..steps = 3\n", r"a\.gin:1: "),
    "a private name": gin("train.__class__ = 3\n", r"a\.gin:1: .*__class__"),
    "a name that is a path": value("train.policy_loss = '../../etc/passwd'", "unknown policy_loss"),
    "a name that is empty": value("train.policy_loss = ''", "policy_loss"),
    "a name with control characters": value(r"train.policy_loss = '\x1b[31mred\x1b[0m'", r"unknown policy_loss '\\x1b"),
    "a name of 100,000 characters": gin(f"train.policy_loss = '{'x' * 100_000}'\n", r"a\.gin:1: .{0,2000}$"),
    # macros
    "a macro that nobody defines": value("train.lr = %rate", "rate"),
    "a macro that nobody uses": gin("rate = 0.1\n", r"a\.gin:1: .*rate"),
    "a macro of itself": gin("rate = %rate\ntrain.lr = %rate\n", r"a\.gin:\d: .*rate"),
    "macros in a circle": gin("a = %b\nb = %a\ntrain.lr = %a\n", r"a\.gin:\d: "),
    "a macro of a wrong type": gin("rate = 'fast'\ntrain.lr = %rate\n", r"a\.gin:2.*lr"),
    "a macro without a name": gin("train.lr = %\n", r"a\.gin:1: "),
    "macros that multiply": gin(
        "a0 = [1, 1]\n" + "".join(f"a{i + 1} = [%a{i}, %a{i}]\n" for i in range(40)) + "train.rewards = %a40\n",
        r"a\.gin:\d+: ",
    ),
    # includes
    "an include that is missing": gin("include 'b.gin'\n", r"a\.gin:1: no such file: b\.gin"),
    "an include that is nearly there": gin(
        "include 'bse.gin'\n", "Did you mean 'base.gin'", files={"a.gin": "include 'bse.gin'\n", "base.gin": ""}
    ),
    "an include of itself": gin("include 'a.gin'\n", r"a\.gin:1: include cycle: a\.gin -> a\.gin"),
    "includes in a circle": gin(
        "", "include cycle", files={"a.gin": "include 'b.gin'\n", "b.gin": "include 'a.gin'\n"}
    ),
    "an include of a folder": gin(
        "", r"a\.gin:1: b\.gin cannot be read", files={"a.gin": "include 'b.gin'\n", "b.gin": None}
    ),
    "an include without quotes": gin("include b.gin\n", r"a\.gin:1: "),
    "an include with a macro": gin("include %b\n", r"a\.gin:1: "),
    "2000 includes one in another": gin("", r"\.gin:1: ", files={}, prepare=long_chain),
    "an include of a device": gin("include '/dev/zero'\n", r"a\.gin:1: /dev/zero cannot be read"),
    "an include with a null byte": gin(r"include 'a\x00b.gin'" + "\n", r"a\.gin:1: "),
    # code
    "an import": gin("import os\n", r"a\.gin:1: 'import os' is refused: a config is data"),
    "an import from": gin("from os import path\n", r"a\.gin:1: .*refused"),
    "a reference": gin("train.lr = @os.getcwd()\n", r"a\.gin:1: '@os\.getcwd' is refused"),
    "a call": value("train.lr = open('x')", ""),
    "a comprehension": value("train.rewards = [x for x in y]", ""),
    # duplicates
    "a binding twice": gin("train.steps = 3\ntrain.steps = 4\n", r"a\.gin:2: .*already bound at a\.gin:1"),
    "a binding twice, in two spellings": gin(
        "kl.low_var_kl.clamp = 3\nkl.k3.clamp = 4\n", r"a\.gin:2: .*already bound at a\.gin:1"
    ),
    "a macro twice": gin("r = 0.1\nr = 0.2\ntrain.lr = %r\n", r"a\.gin:2: .*already bound at a\.gin:1"),
    # types and ranges
    "text for a number": value("train.steps = 'many'", ""),
    "a fraction for a count": value("train.steps = 2.5", "2.5"),
    "a truth value for a count": value("train.steps = True", "True"),
    "a number for a truth value": value("run.keep_messages = 1", ""),
    "None for a number": value("train.lr = None", "None"),
    "a list for a number": value("train.lr = [0.1]", ""),
    "a dict for a list": value("train.rewards = {'exact_match': 1}", ""),
    "a list in a list": value("train.rewards = [['exact_match']]", ""),
    "bytes for text": value("run.folder = b'x'", ""),
    "a complex number": value("train.lr = 3j", ""),
    "a negative count": value("train.steps = -3", "-3"),
    "no prompts": value("train.prompts = 0", "0"),
    "a negative learning rate": value("train.lr = -1e-3", "-0.001"),
    "NaN": value("train.lr = nan", "nan"),
    "infinity": value("train.lr = inf", "inf"),
    "a literal that overflows": value("train.lr = 1e999", "inf"),
    "infinity where it means no limit": gin("train.max_grad_norm = inf\n", "", status=0),
    "minus infinity": value("sampling.temperature = -inf", "inf"),
    "NaN for a parameter": value("policy_loss.grpo.epsilon_low = nan", "nan"),
    "a count of a hundred digits": value(f"train.prompts = {10**100}", ""),
    "a count beyond 64 bits": value("train.group_size = 9223372036854775808", ""),
    "a count of 10,000 digits": gin(f"train.steps = {'9' * 10_000}\n", r"a\.gin:1: "),
    "a learning rate of 400 digits": gin(f"train.lr = {'9' * 400}\n", r"a\.gin:1: "),
    "a number beyond float32": value("train.lr = 1e300", ""),
    "a base of positions of zero": value("model.decoder.rope_theta = 0.0", "0 < |> 0"),
    "a width beyond any memory": value("model.decoder.width = 1000000000000", r"1 <= int <= 1e\+06"),
    "a hundred million layers": value("model.decoder.layers = 100000000", "1 <= int <= 1000"),
    # text
    "brackets without end": gin("train.rewards = [1,\n", r"a\.gin:\d: syntax error"),
    "a quote without end": gin("run.folder = 'x\n", r"a\.gin:1: syntax error"),
    "a long string without end": gin("run.folder = '''x\n\n", r"a\.gin:\d: syntax error"),
    "brackets 10,000 deep": gin("train.rewards = " + "[" * 10_000 + "]" * 10_000 + "\n", r"a\.gin:1: .{0,2000}$"),
    "150 brackets": gin("train.rewards = " + "[" * 150 + "]" * 150 + "\n", r"a\.gin:1: .{0,2000}$"),
    "minus signs 10,000 times": gin("train.lr = " + "-" * 10_000 + "1\n", r"a\.gin:1: .{0,2000}$"),
    "a key alone": gin("train.steps\n", r"a\.gin:1: syntax error"),
    "no value": gin("train.steps =\n", r"a\.gin:1: syntax error"),
    "two values": gin("train.steps = 1 2\n", r"a\.gin:1: syntax error"),
    "a value alone": gin("3\n", r"a\.gin:1: "),
    "YAML": gin("train:\n  steps: 3\n", r"a\.gin:2: syntax error"),
    "JSON": gin('{"train": {"steps": 3}}\n', r"a\.gin:1: syntax error"),
    "a dict with a list as key": gin("train.rewards = {[]: 1}\n", r"a\.gin:1: "),
    "mistakes without end": gin("".join(f"M{i} = {i}\n" for i in range(500)), r"and 480 more$", lines=21),
    "indented": gin("  train.steps = 3\n  train.lr = 0.1\n", "", status=0),
    "odd dedents": gin("a:\n    b = 1\n  c = 2\n", r"a\.gin:\d: "),
    "a null byte": gin(b"train.steps = 3\x00\n", r"a\.gin:1: "),
    "an escape sequence": gin(b"train.steps = \x1b[31m3\n", r"a\.gin:1: "),
    "an escape sequence in a key": gin(b"\x1b]0;owned\x07train.steps = 3\n", r"a\.gin:1: "),
    "a binary file": gin(bytes(range(256)) * 8, r"a\.gin cannot be read"),
    "UTF-16": gin("train.steps = 3\n".encode("utf-16"), r"a\.gin cannot be read: it is not UTF-8"),
    "Latin-1": gin("# é\n".encode("latin-1"), r"a\.gin cannot be read: it is not UTF-8"),
    "BOM": gin(b"\xef\xbb\xbftrain.steps = 3\n", "", status=0),
    "CRLF": gin(b"train.steps = 3\r\ntrain.lr = 0.1\r\n", "", status=0),
    "CR alone": gin(b"train.steps = 3\rtrain.lr = 0.1\r", "", status=0),
    "the line of a mistake with CRLF": gin(b"train.steps = 3\r\ntrain.lrr = 0.1\r\n", r"a\.gin:2: "),
    "the line of a mistake behind a form feed": gin(
        "# a\x0cb\x85c\u2028d\ntrain.steps = = 3\n", r"a\.gin:2: .*: train.steps = = 3$"
    ),
    "no line break at the end": gin("train.steps = 3", "", status=0),
    "empty": gin("", "", status=0),
    "Unicode in a comment and a text": gin("# 日本語 🦜\ntask.arithmetic.template = '答え {question}'\n", "", status=0),
    "a no-break space": gin("train.steps\u00a0= 3\n", r"a\.gin:1: "),
    "half of a surrogate pair": value(r"run.folder = '\ud800'", r"'\\ud800' holds half of a surrogate pair"),
    "half of a surrogate pair in a list": value(r"train.rewards = ['\udfff']", "surrogate|unknown reward"),
    # places
    "a folder": Case("explain a.gin", "'a.gin' is a folder", files={"a.gin": None}),
    "a folder without an ending": Case("explain folder", r"'folder' is a folder", files={"folder": None}),
    "no such file": Case("explain b.gin", r"b\.gin"),
    "no such name": Case("explain quickstar", "Did you mean 'quickstart'"),
    "no name at all": Case("explain ''", "."),
    "a link to itself": Case("explain a.gin", "'a.gin' is a link to nothing", prepare=link_to_itself),
    "a name too long": Case(f"explain {'x' * 5000}.gin", "."),
    "a device": Case("explain /dev/zero", "'/dev/zero' is not a file"),
    "a name with an escape sequence": Case("explain '\x1b[31mred.gin'", r"red\.gin"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_config(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)
