"""The commands that use a trained policy (`eval`, `generate`, `export`), and `sft`, which trains one."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, DovetailWarning
from dovetail.run.code import CODE
from dovetail.run.files import read_lines
from dovetail_lab.cli import generate
from dovetail_model.huggingface.safetensors import open_folder

ROOT = Path(__file__).parents[3]
QUICK = (*TINY, "sft.steps=1", "train.steps=1", "eval.examples=2", "eval.every=9")


def sets(*overrides):
    return [part for override in overrides for part in ("--set", override)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("config") / "empty.gin"
    path.write_text("")
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, empty) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "trained"
    assert main(["train", empty, "--folder", str(folder), *sets(*QUICK)]) == 0
    return folder


@pytest.mark.slow
def test_a_checkpoint_is_chosen_by_its_step(trained, tmp_path, capsys):
    export = ["export", str(trained), "--out", str(tmp_path / "out")]
    assert main([*export, "--checkpoint", "0"]) == 0
    assert "weights  sft-1" in capsys.readouterr().out
    assert main(["export", str(trained), "--out", str(tmp_path / "other"), "--checkpoint", "7"]) == 1
    assert "has no checkpoint '7'. There: newest, best, 0, 1" in capsys.readouterr().err
    assert main(["eval", "quickstart", "--checkpoint", "best"]) == 1
    assert "--checkpoint best is of a run: name its folder with --run" in capsys.readouterr().err


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i} + 1=", "answer": str(i + 1)}) + "\n" for i in range(5)))
    return path


def test_eval_reports_every_figure_with_its_interval(trained, tmp_path, capsys):
    several = sets("eval.pass_at=(1, 2)", "eval.majority_at=(2,)", "eval.answer=tagged")
    checks = sets("eval.partial=close_answer", "eval.format=match_format_exactly")
    out = tmp_path / "out"
    arguments = ["eval", "--run", str(trained), "-n", "2", "--examples", "5", "--out", str(out), *several, *checks]
    assert main([*arguments, "--sampling", "standard"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("all (5 prompts)")
    for name in ("accuracy", "partial_accuracy", "format_accuracy", "reward/exact_match", "pass@2", "maj@2"):
        assert f"  {name} " in printed
    assert "weights  rl-1" in printed
    report = json.loads((out / "report.json").read_text())
    assert report["weights"] == "rl-1"
    figure = report["sources"]["arithmetic"]["accuracy"]
    assert figure["n"] == 5
    assert figure["low"] <= figure["value"] <= figure["high"]
    samples = read_lines(out / "samples.jsonl")
    assert [sum(sample["how"] == how for sample in samples) for how in ("greedy", "sampled")] == [5, 10]
    assert samples[0]["data_source"] == "arithmetic"


def test_eval_of_a_run_scores_the_whole_split_and_agrees_with_the_run(trained, capsys):
    last = [line for line in read_lines(trained / "metrics.jsonl") if "eval/accuracy" in line][-1]
    assert main(["eval", "--run", str(trained), "--json", "--examples", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)["sources"]["all"]
    assert figures["length_mean"]["value"] == last["eval/length_mean"]
    assert figures["reward_mean"]["value"] == last["eval/reward_mean"]
    assert main(["eval", "--run", str(trained), "--json", *sets("task.arithmetic.eval_size=7")]) == 0
    assert json.loads(capsys.readouterr().out)["sources"]["all"]["accuracy"]["n"] == 7


@pytest.mark.slow
def test_evaluations_with_other_settings_stand_beside_one_another(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("evaluations"))
    for more in ((), ("--examples", "2"), sets("task.arithmetic.eval_size=7"), sets("eval.samples=2"), ()):
        assert main(["eval", "--run", str(run), *more]) == 0
        assert f"folder   {run}" in capsys.readouterr().out
    found = sorted((run / "evaluations").iterdir())
    assert [each.name.rpartition("-")[0] for each in found] == ["rl", *["rl-1-config"] * 3]
    assert found[0].name == "rl-1"
    assert (found[0] / "config.gin").read_text() == (run / "config.gin").read_text()
    sizes = {json.loads((each / "report.json").read_text())["sources"]["all"]["accuracy"]["n"] for each in found}
    assert {2, 7} < sizes


def test_eval_with_other_code_says_so_and_keeps_the_earlier_result(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    arguments = ["eval", "--run", str(run), "--examples", "2"]
    (run / "evaluations" / "rl-1").mkdir(parents=True, exist_ok=True)
    (run / "evaluations" / "rl-1" / "report.json").write_text("earlier")
    noted = json.loads((run / CODE).read_text())
    (run / CODE).write_text(json.dumps(noted | {"reward.exact_match of dovetail": "0"}))
    with pytest.warns(DovetailWarning, match=r"reward\.exact_match .*; the results go to evaluations/WEIGHTS-code-"):
        assert main(arguments) == 0
    (beside,) = (run / "evaluations").glob("rl-1-code-*")
    assert f"folder   {beside}" in capsys.readouterr().out
    assert (run / "evaluations" / "rl-1" / "report.json").read_text() == "earlier"


def test_eval_of_a_config_takes_the_weights_it_begins_with(empty, tmp_path, capsys):
    assert main(["eval", empty, "--examples", "2", "--out", str(tmp_path), *sets(*QUICK)]) == 0
    assert "weights  start" in capsys.readouterr().out


def completions(path):
    return {(line["index"], line["sample"]): line["completion"] for line in read_lines(path)}


def test_generate_goes_on_where_it_was(trained, prompts, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    arguments = ["generate", "--run", str(trained), "--prompts", str(prompts), "--batch-size", "2"]
    assert main([*arguments, "--out", str(out), "-n", "2"]) == 0
    assert "10 completions written, 0 were there already" in capsys.readouterr().out
    undisturbed, lines = completions(out), out.read_bytes().splitlines(keepends=True)
    assert sorted(undisturbed) == [(index, sample) for index in range(5) for sample in range(2)]
    assert json.loads(lines[0]) | {"completion": "", "logp": 0} == {
        "index": 0,
        "sample": 0,
        "prompt": "0 + 1=",
        "completion": "",
        "finish": "length",
        "tokens": 6,
        "logp": 0,
        "record": {"answer": "1"},
    }
    out.write_bytes(b"".join([*lines[:3], lines[7]]) + lines[8][:9])
    assert main([*arguments, "--out", str(out), "-n", "2"]) == 0
    assert "6 completions written, 4 were there already" in capsys.readouterr().out
    assert completions(out) == undisturbed
    assert len(read_lines(out)) == 10
    assert main([*arguments, "--out", str(out), "-n", "3"]) == 0
    assert "5 completions written, 10 were there already" in capsys.readouterr().out
    assert completions(out).items() >= undisturbed.items()


@pytest.mark.slow
def test_generate_survives_a_kill(trained, prompts, tmp_path):
    out = tmp_path / "out.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{i} + {i}="}) + "\n" for i in range(40)))
    command = [sys.executable, "-m", "dovetail", "generate", "--run", str(trained), "--prompts", str(prompts)]
    command += ["--out", str(out), "--batch-size", "1", "-n", "2"]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (out.exists() and out.stat().st_size):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert out.read_bytes()
    assert main(command[3:]) == 0
    assert len(read_lines(out)) == len(completions(out)) == 80


@pytest.mark.parametrize(("given", "said"), [(None, ["Add.", "0 + 1="]), ("", ["0 + 1="]), ("No.", ["No.", "0 + 1="])])
def test_generate_says_what_the_task_has_said_in_training(given, said, prompts):
    config = load(
        None,
        ["train.task='records'", "task.records.path='x.jsonl'", "task.records.system='Add.'", "task.records.chat=True"],
    )
    options = argparse.Namespace(prompts=prompts, prompt_column="prompt", chat=True, system=given)
    prompt = generate._task(options, config).examples("eval")[0]["prompt"]
    assert [message["content"] for message in prompt] == said


def test_generate_names_its_option_for_a_file_that_is_not_there(prompts):
    options = argparse.Namespace(prompts=prompts.with_name("promts.jsonl"), prompt_column="prompt", chat=False)
    with pytest.raises(
        ConfigError, match=r"^--prompts: there is no file '.*promts.jsonl'. Did you mean 'prompts.jsonl'"
    ):
        generate._task(options, load(None))


def test_generate_takes_conversations_and_presets(trained, tmp_path, capsys):
    path, out = tmp_path / "chats.jsonl", tmp_path / "out.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "1+1="}]}) + "\n")
    arguments = [
        "generate",
        "--run",
        str(trained),
        "--prompts",
        str(path),
        "--out",
        str(out),
        "--prompt-column",
        "messages",
    ]
    assert main(arguments) == 1
    assert "the tokenizer has no chat template" in capsys.readouterr().err
    from dovetail_model.huggingface.chat_template import ChatTemplate

    tokenizer = trained / "tokenizer"
    ChatTemplate(source="{{ messages[-1].content }}", place="", tokens={}, options={}, moment="").save(tokenizer)
    try:
        assert main([*arguments, "--sampling", "greedy"]) == 0
    finally:
        (tokenizer / "chat_template.jinja").unlink()
    line = read_lines(out)[0]
    assert line["prompt"] == "1+1="
    assert line["record"] == {"messages": [{"role": "user", "content": "1+1="}]}
    assert json.loads((tmp_path / "out.jsonl.json").read_text())["sampling"]["temperature"] == 0


def test_export_writes_a_folder_that_loads(trained, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    told = []
    monkeypatch.setattr("dovetail_sink.pulse.Pulse.tell", lambda self, doing: told.append(str(doing)))
    assert main(["export", str(trained), "--out", str(out)]) == 0
    assert told[0].startswith("loading policy, ")
    assert told[-1] == f"writing {out}"
    assert "weights  rl-1" in capsys.readouterr().out
    again = sets("train.model=pretrained", f"model.pretrained.path='{out}'", f"tokenizer.sentencepiece.path='{out}'")
    both = []
    for arguments in (["--run", str(trained)], [str(trained / "config.gin"), *again]):
        assert main(["eval", *arguments, "--json", "--examples", "4", "--out", str(tmp_path / "eval")]) == 0
        both.append(json.loads(capsys.readouterr().out)["sources"])
    assert both[0] == both[1]
    assert main(["export", str(trained), "--out", str(tmp_path / "half"), "--dtype", "bfloat16"]) == 0
    assert {tensor.dtype.name for tensor in open_folder(tmp_path / "half").values()} == {"bfloat16"}


MISTAKES = {
    "no run": (["eval", "--run", "{tmp}"], "is not a run folder: it holds no config.gin"),
    "no checkpoint": (["eval", "--run", "{begun}"], "holds no tokenizer yet"),
    "another model": (["eval", "--run", "{run}", "--set", "model.decoder.width=32"], "holds another model than the config makes: "),
    "an unknown preset": (["generate", "--run", "{run}", "--out", "{tmp}/o", "--sampling", "gredy"], "Did you mean 'greedy'?"),
    "a preset without samples": (["eval", "--run", "{run}", "--sampling", "standard"], "preset 'standard' is for samples beside the greedy completion, and eval.samples is 0; ask for some: -n NUMBER"),
    "no samples": (["generate", "--run", "{run}", "--out", "{tmp}/o", "-n", "0"], "--samples 0: it must be at least 1"),
    "no prompts": (["generate", "--run", "{run}", "--out", "{tmp}/o", "--prompts", "{tmp}/p.jsonl"], "there is no file"),
    "a suffix": (["generate", "--run", "{run}", "--out", "{tmp}/o", "--prompts", "{tmp}/p.txt"], "has an unknown suffix '.txt'; known: .csv, .jsonl, .parquet"),
    "too many passes": (["eval", "--run", "{run}", "-n", "2", "--set", "eval.pass_at=(4,)"], "needs numbers from 1 to eval.samples = 2"),
    "a full folder": (["export", "{run}", "--out", "{run}"], "is not an empty folder; name another"),
    "no adapter": (["export", "{run}", "--out", "{tmp}/o", "--adapter"], "export it whole"),
    "no memory for the weights": (["export", "{run}", "--out", "{tmp}/o", "--set", "memory.limit=1e-6"], "and 1.1 kB may be used; no single change makes it fit. memory.limit, in GiB"),
    "no supervised phase": (["sft", "{run}/config.gin", "--folder", "{tmp}/r", "--set", "sft.steps=0"], "sft.steps = 0: there is no supervised phase"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(trained, tmp_path, capsys, arguments, message):
    (tmp_path / "p.txt").write_text("1+1=\n")
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.gin").write_text((trained / "config.gin").read_text())
    places = {"tmp": tmp_path, "run": trained, "begun": begun}
    assert main([argument.format(**places) for argument in arguments]) == 1
    captured = capsys.readouterr()
    (said,) = (line for line in captured.err.splitlines() if not line.startswith("["))  # how far it is, if it is slow
    assert message in said
    assert not (tmp_path / "o").exists()


def test_sft_needs_nothing_that_only_rewards_read(tmp_path, empty, capsys):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{i}+1=", "completion": str(i + 1)}) + "\n" for i in range(40)))
    own = sets("train.task=records", f"task.records.path='{data}'", "task.records.completion_column='completion'")
    folder = tmp_path / "run"
    assert main(["sft", empty, "--folder", str(folder), *sets(*QUICK, "eval.success=None"), *own]) == 0
    assert "warm start   loss" in capsys.readouterr().out
    assert main(["generate", "--run", str(folder), "--out", str(tmp_path / "out.jsonl"), *sets("run.seed=1")]) == 0
    note = json.loads((tmp_path / "out.jsonl.json").read_text())
    assert note["weights"].endswith("sft-1")


@pytest.mark.parametrize("command", ["eval", "generate", "export", "sft"])
def test_help_imports_nothing_heavy(command):
    heavy = "[m for m in ('jax', 'grain', 'orbax', 'numpy', 'rich') if m in sys.modules]"
    code = f"import sys; sys.argv = ['dovetail', {command!r}, '--help']\nfrom dovetail.cli import main\ntry: main()\nexcept SystemExit: print({heavy})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"
