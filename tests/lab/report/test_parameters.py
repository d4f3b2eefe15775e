"""What the page of a sweep says about its parameters, and the server that keeps it up to date."""

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import ThreadingHTTPServer

import pytest
from tests.lab.sweep import stub

from dovetail.cli import main
from dovetail.errors import ConfigError, RunError
from dovetail_lab.report import watch
from dovetail_lab.report.numbers import Unit
from dovetail_lab.report.parameters import Scale, parameters, varied
from dovetail_lab.report.sweep import _best, _settings
from dovetail_lab.report.watch import server
from dovetail_lab.sweep import Store, Trial
from dovetail_lab.sweep.importance import importance
from dovetail_lab.sweep.tables import Setting

UNIT = Unit(percent=True)


def setting(*values: float, **settings) -> Setting:
    overrides = tuple(f"train.{key}={value!r}" for key, value in settings.items())
    trials = tuple(Trial(overrides=overrides, seed=seed, id=f"a-s{seed}", group="g") for seed in range(len(values)))
    return Setting(trials=trials, last=values, pruned=0, best=max(values), by_seed=dict(enumerate(values)))


ROWS = [
    setting(0.8, 0.7, lr=1e-3, policy_loss="ppo"),
    setting(0.6, 0.65, lr=1e-4, policy_loss="ppo"),
    setting(0.5, 0.55, lr=1e-5, policy_loss="gspo"),
    setting(0.3, 0.4, lr=1e-3, policy_loss="gspo"),
]


def test_a_parameter_has_a_picture_with_a_band_over_seeds_where_its_values_are_numbers():
    page = parameters(ROWS, "eval/accuracy", "max", UNIT)
    lr, loss = page.split('<b title="train.policy_loss">policy_loss</b>')
    assert lr.count('class="interval"') == lr.count('class="line"') == 1
    assert loss.split("All parameters together")[0].count('class="line"') == 0, "no line from one choice to another"
    assert "lr (log)" in lr
    assert page.count('class="path"') == 2 * len(ROWS), "once for wide and once for narrow screens"


def test_a_setting_of_none_is_a_value_like_others():
    """It was drawn where settings are that do not have the parameter."""
    rows = [setting(0.8, cap=3.0, lr=1), setting(0.6, cap=None, lr=2), setting(0.4, cap=5.0, lr=3)]
    page = parameters(rows, "eval/accuracy", "max", UNIT).split("All parameters together")[1]
    ends = [float(d.split()[1]) for d in re.findall(r'class="path" style="[^"]*" d="M([^"L]*)L', page)[:3]]
    (place,) = {float(y) for y in re.findall(r'y="([\d.]+)">None<', page)}
    assert any(abs(end + 4 - place) < 0.2 for end in ends)
    assert ">none<" not in page


def test_a_single_value_or_a_single_setting_is_no_picture():
    assert parameters(ROWS[:1], "eval/accuracy", "max", UNIT) == ""
    assert list(varied([setting(0.1, lr=1.0, steps=3), setting(0.2, lr=2.0, steps=3)])) == ["train.lr"]


def test_no_label_of_an_axis_leaves_its_picture():
    rows = [setting(0.5 + i / 1000, lr=10.0 ** (i - 9)) for i in range(7)]
    page = parameters(rows, "acme/odd", "max", Unit())
    assert 'x="-' not in page
    assert Scale.of([1e-5, 1e-3]).marks(4) == [(-5.0, "1e−05"), (-3.0, "0.001")]


def test_settings_that_are_equal_as_written_are_ties():
    rows = [setting(0.80001, lr=1e-3), setting(0.80002, lr=1e-4), setting(0.5, lr=1e-5)]
    for ended, words in ((False, "Tied so far, "), (True, "Tied, ")):
        text = f"{words}eval/accuracy 80.0\u00a0%: lr=0.001; lr=0.0001."
        assert text in _best(rows, "eval/accuracy", UNIT, ended=ended)
    table = _settings(rows, UNIT)
    assert table.count(">1=<") == 2
    assert ">3<" in table
    assert '<th scope="col" title="train.lr">lr</th>' in table
    two = [setting(0.80001, lr=1e-3, b2=0.9), setting(0.80002, lr=1e-4, b2=0.9), setting(0.5, lr=1e-5, b2=0.99)]
    page = parameters(two, "eval/accuracy", "max", UNIT)
    assert page.count("opacity:.35") == 2, "one of three is pale, once for wide and once for narrow screens"


def test_two_parameters_of_one_last_name_are_told_apart_and_named_in_full_to_who_points_at_them():
    keys = ("policy_loss.ppo.epsilon_high", "policy_loss.gspo.epsilon_high")
    rows = [
        Setting(
            trials=(Trial(overrides=(f"{key}={value}", "train.lr=0.1"), seed=0, id="a-s0", group="g"),),
            last=(value,),
            pruned=0,
            best=value,
            by_seed={0: value},
        )
        for key in keys
        for value in (0.2, 0.28)
    ]
    shown = ["ppo.epsilon_high", "gspo.epsilon_high"]
    page = parameters(rows, "eval/accuracy", "max", UNIT)
    table = _settings(rows, UNIT)
    for key, short in zip(keys, shown, strict=True):
        assert f'<b title="{key}">{short}</b>' in page
        assert f">{short}<title>{key}</title></text>" in page
        assert f'<th scope="col" title="{key}">{short}</th>' in table


def test_importance_finds_the_parameter_that_matters():
    pytest.importorskip("optuna")
    rows = [
        setting(-abs(i - 12) / 30, lr=10.0 ** (-5 + i / 8), epochs=1 + i % 3, policy_loss=("ppo", "gspo")[i % 2])
        for i in range(25)
    ]
    found = importance(rows, "max")
    assert next(iter(found)) == "train.lr"
    assert found["train.lr"] > 0.8
    with pytest.raises(ConfigError, match=r"Importance needs 10 settings .*; there are 4\."):
        importance(ROWS, "max")


def fetch(port: int, path: str = "/", host: str | None = None) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host} if host else {})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def test_a_page_is_served_to_this_machine_alone_and_says_what_is_wrong():
    texts = iter(["<title>one</title>"])

    def render():
        try:
            return next(texts)
        except StopIteration:
            raise RunError("the folder is gone") from None

    with server(render, 0) as open_server:
        port = open_server.server_address[1]
        assert open_server.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=open_server.serve_forever)
        thread.start()
        try:
            page = fetch(port)
            assert page == '<meta http-equiv="refresh" content="5">\n<title>one</title>'
            assert fetch(port) == page, "kept for a moment"
            for path, host in (("/run.json", None), ("/", f"evil.example:{port}")):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    fetch(port, path, host)
                assert refused.value.code == 404
                refused.value.close()
        finally:
            open_server.shutdown()
            thread.join()
        with pytest.raises(RunError, match=f"port {port} cannot be had"):
            server(render, port)


def test_a_watched_page_of_a_sweep_shows_new_numbers_as_trials_go_on(tmp_path, monkeypatch, capsys):
    """What is served is read anew from the folder: another value of a running trial, then the trial's end."""
    planned, about = stub.plan(1e-3, 1e-4)
    store = Store.create(tmp_path / "swept", planned, {**about, "metric": "eval/accuracy"})
    first, second = store.trials
    pages = []

    def record(trial: Trial, step: int, value: float) -> None:
        line = {"phase": "rl", "step": step, "eval/accuracy": value}
        with (store.folder(trial) / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def visit(open_server: ThreadingHTTPServer) -> None:
        port = open_server.server_address[1]
        try:
            with store.claim(first):
                pages.append(fetch(port))
                record(first, 20, 0.618)
                store.settle(first, "done")
            pages.append(fetch(port))
            record(second, 20, 0.739)
            store.settle(second, "done")
            pages.append(fetch(port))
        finally:
            open_server.shutdown()

    def serving(render: Callable[[], str], port: int) -> ThreadingHTTPServer:
        made = server(render, port)
        visitor.append(threading.Thread(target=visit, args=(made,)))
        visitor[0].start()
        return made

    visitor: list[threading.Thread] = []
    monkeypatch.setattr(watch, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(watch, "server", serving)
    for trial in store.trials:
        store.prepare(trial, planned.configs[trial.id])
        (store.folder(trial) / "run.json").write_text(json.dumps({"run_id": trial.id}))
        record(trial, 10, 0.5)
    assert main(["report", str(store.path), "--watch", "--port", "0"]) == 0
    visitor[0].join()
    assert "http://127.0.0.1:" in capsys.readouterr().out
    begun, one_done, ended = pages
    assert "1 running, 1 waiting" in begun
    assert "61.8" not in begun
    assert "Best so far: lr=0.001, eval/accuracy 61.8" in one_done
    assert "Best: lr=0.0001, eval/accuracy 73.9" in ended
    assert all('http-equiv="refresh"' in page for page in pages)
