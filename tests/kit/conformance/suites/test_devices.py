"""The processes that check components apart from this one: how many there are, and for whom each answers."""

import json
import subprocess

import attrs
import pytest

from dovetail.registry import Origin, current
from dovetail_kit.answers import MARK
from dovetail_kit.conformance.check import Inapplicable
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites import devices
from dovetail_kit.conformance.suites.devices import answers_of, share_processes

ENDS_ITS_PROCESS = "broken/kl.k3"
SILENT = "silent/kl.k3"


@pytest.fixture
def asked(monkeypatch):
    """The names that each process was asked about; one that is asked about a broken component ends without answers."""
    names = []

    def run(*arguments, input, **options):
        names.append([each[0] for each in json.loads(input)])
        if ENDS_ITS_PROCESS in names[-1]:
            return subprocess.CompletedProcess(arguments, -11, "", "Segmentation fault")
        said = f"loading...\n{MARK}{json.dumps(dict.fromkeys(names[-1], 0.5))}\nit is over\n"
        return subprocess.CompletedProcess(arguments, 0, "" if SILENT in names[-1] else said, "")

    monkeypatch.setattr(devices.subprocess, "run", run)
    return names


def subject(distribution, name):
    component = current().get("kl", name)
    return Subject(attrs.evolve(component, origin=Origin(distribution, "1.0", "module")))


def test_one_process_answers_for_all_distributions(asked):
    subjects = [subject("acme", "k1"), subject("acme", "k2"), subject("other", "k1")]
    share_processes(subjects)
    assert all(answers_of("imports", each)[devices.name_of(each)] == 0.5 for each in subjects)
    assert asked == [["acme/kl.k1", "acme/kl.k2", "other/kl.k1"]]


def test_a_component_that_ends_the_process_leaves_other_distributions_their_answers(asked):
    sound, also, broken = subject("acme", "k1"), subject("acme", "k2"), subject("broken", "k3")
    share_processes([sound, broken, also])
    with pytest.raises(Inapplicable, match="a fresh process failed: Segmentation fault"):
        answers_of("imports", broken)
    assert [answers_of("imports", each)[devices.name_of(each)] for each in (sound, also)] == [0.5, 0.5]
    assert asked[1:] == [["broken/kl.k3"], ["acme/kl.k1", "acme/kl.k2"]], "each once, whoever asks first"


def test_a_process_that_ends_without_an_answer_is_told(asked):
    with pytest.raises(Inapplicable, match="a fresh process failed: it ended with status 0 and no answer"):
        answers_of("imports", subject("silent", "k3"))
