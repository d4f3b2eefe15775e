"""The doctor's advice for simulated machines."""

import json

import attrs
import pytest

from dovetail.cli import main
from dovetail_kit.machine.advice import findings
from dovetail_kit.machine.command import described
from dovetail_kit.machine.gpus import Gpu
from dovetail_kit.machine.survey import Device, Survey

H100 = Gpu(name="NVIDIA H100", driver="580.1", capability="9.0", total=81_559, used=500)
FINE = Survey(
    system="Linux", cores=16, memory=128 << 30, free=100 << 30, has_bf16=True, shared=64 << 30, python="3.12.1",
    versions={"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda13-plugin": "0.10.2", "nvidia-cudnn-cu13": "9.12"},
    backend="gpu", error="", devices=(Device(kind="NVIDIA H100", limit=60 << 30),), gpus=(H100,), programs=(),
    variables={}, extras={"hf": True, "vllm": False}, cache="/cache", cache_is_writable=True,
)  # fmt: skip


def test_a_machine_on_which_all_is_well():
    assert findings(FINE) == []
    text = "\n".join(described(FINE, []))
    assert "NVIDIA H100, driver 580.1, 81,059 of 81,559 MiB free" in text
    assert "cuDNN 9.12" in text
    assert "not installed: vllm" in text
    assert "nothing found" in text


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({"backend": "cpu"}, "error", "JAX computes on the CPU: pip install -U 'jax[cuda13]'"),
        ({"backend": "cpu", "variables": {"JAX_PLATFORMS": "cpu"}}, "note", "JAX_PLATFORMS=cpu leaves it alone"),
        ({"gpus": (), "backend": "cpu"}, "error", "jax-cuda13-plugin is installed, and no GPU answers"),
        ({"error": "JAX cannot start"}, "error", "JAX cannot start"),
        (
            {"gpus": (attrs.evolve(H100, used=40_000),), "programs": ("python (process 7, 39500 MiB)",)},
            "error",
            "taken by python (process 7, 39500 MiB): JAX takes 75 %",
        ),
        ({"versions": FINE.versions | {"jax-cuda13-plugin": "0.9.0"}}, "error", "jax-cuda13-plugin is 0.9.0 and jaxlib 0.10.2"),
        ({"gpus": (attrs.evolve(H100, capability="7.5"),)}, "slow", "has no bfloat16"),
        ({"devices": FINE.devices * 4}, "slow", "one of 4 devices"),
        ({"free": 1 << 30}, "slow", "`dovetail plan CONFIG`"),
        ({"shared": 64 << 20}, "note", "--shm-size"),
        ({"cache_is_writable": False}, "slow", "every start compiles again"),
        ({"variables": {"JAX_ENABLE_X64": "1"}}, "slow", "twice as wide"),
        ({"gpus": (), "versions": {}, "backend": "cpu", "has_bf16": False}, "slow", "the processor has no bfloat16"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_slow_is_said_with_the_cure(changes, level, said):
    found = findings(attrs.evolve(FINE, **changes))
    assert any(finding.level == level and said in finding.text for finding in found), list(map(str, found))


def test_this_machine(capsys):
    status = main(["doctor", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["versions"]["jax"]
    assert facts["devices"]
    assert status == any(finding["level"] == "error" for finding in facts["findings"])
