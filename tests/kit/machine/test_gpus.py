"""A GPU that is present but not used is reported; a GPU that is used, or excluded on purpose, is not."""

import argparse
import warnings

import pytest

from dovetail.config import load
from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.devices.presence import devices
from dovetail.errors import DovetailWarning, RunError
from dovetail_kit.machine import gpus as module
from dovetail_kit.machine.gpus import Gpu, gpus, unseen, warn_if_unseen
from dovetail_kit.notices import before_training

SMI = """#!/bin/sh
echo "NVIDIA H100 80GB HBM3, 580.65.06, 9.0, 81559, 1024"
echo "NVIDIA H100 80GB HBM3, 580.65.06, 9.0, 81559, [N/A]"
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A simulated machine without GPUs."""
    monkeypatch.setattr(module, "DEVICES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    warn_if_unseen.cache_clear()
    yield tmp_path
    warn_if_unseen.cache_clear()


def with_smi(machine, text=SMI):
    (machine / "nvidia-smi").write_text(text)
    (machine / "nvidia-smi").chmod(0o755)


def test_what_the_driver_lists(machine):
    assert gpus() == ()
    with_smi(machine)
    first, second = gpus()
    assert (first.name, first.driver, first.capability) == ("NVIDIA H100 80GB HBM3", "580.65.06", "9.0")
    assert (first.total, first.used, second.used) == (81559, 1024, 0)
    assert first.extra == "cuda13"


def test_what_the_driver_does_not_know_is_unknown(machine):
    with_smi(machine, "#!/bin/sh\necho 'NVIDIA Graphics Device, [N/A], [N/A], [N/A], [N/A]'\n")
    (gpu,) = gpus()
    assert (gpu.capability, gpu.total, gpu.lacks_bf16, gpu.extra) == ("", 0, False, "cuda12")


def test_without_a_driver_a_device_file_is_enough(machine):
    (machine / "nvidia0").touch()
    (machine / "nvidiactl").touch()
    with_smi(machine, "#!/bin/sh\nexit 9\n")
    assert gpus() == (Gpu(),)


def test_a_gpu_that_jax_does_not_see_is_told_once(machine):
    with_smi(machine)
    with pytest.warns(
        DovetailWarning, match=r"there is a GPU \(NVIDIA H100 80GB HBM3\).* pip install -U 'jax\[cuda13\]'"
    ):
        Devices.open(Mesh())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Devices.open(Mesh())


@pytest.mark.parametrize("meant", [True, False])
def test_nobody_is_warned_without_need(machine, monkeypatch, meant):
    if meant:
        with_smi(machine)
        monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unseen()


def test_a_hidden_gpu_is_called_hidden(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES is empty" in str(unseen((Gpu(),), "cpu"))


OLD = SMI.replace("H100 80GB HBM3", "T4").replace("9.0", "7.5")


@pytest.mark.parametrize(
    ("smi", "dtype", "platform", "warned"),
    [
        (OLD, "bfloat16", None, True),
        (OLD, "bfloat16", "cuda", True),
        (OLD, "bfloat16", "cpu", False),
        (OLD, "float32", None, False),
        (SMI, "bfloat16", None, False),
        ("#!/bin/sh\nexit 9\n", "bfloat16", None, False),
    ],
)
def test_a_type_that_the_gpu_does_not_have(machine, monkeypatch, smi, dtype, platform, warned):
    with_smi(machine, smi)
    if platform:
        monkeypatch.setenv("JAX_PLATFORMS", platform)
    config = load(None, [f"model.decoder.dtype={dtype}"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before_training(argparse.Namespace(), config, machine)
    said = [str(each.message) for each in caught if each.category is DovetailWarning]
    assert said == warned * [
        "model.decoder.dtype = 'bfloat16', and NVIDIA T4 has no arithmetic of this type (compute capability 7.5, 8.0 is"
        " needed): it is emulated, which is slow; set model.decoder.dtype = 'float32'"
    ]


def test_a_platform_that_does_not_start_is_one_line(monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'cuda':\n no driver")

    monkeypatch.setattr("jax.devices", fail)
    with pytest.raises(RunError, match=r"backend 'cuda': no driver; `dovetail doctor`"):
        devices()
