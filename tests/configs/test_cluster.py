"""The templates in `configs/cluster`: what they would start is a command that `dovetail` takes."""

import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from dovetail.cli import parse
from dovetail.cli.train import train_command
from dovetail.shipped import find
from dovetail_executor.hosts.command import meeting

CLUSTER = Path(__file__).parents[2] / "configs" / "cluster"
SUBMITTED = ["quickstart", "--set", "mesh.fsdp=2"]


def slurm():
    script = str(CLUSTER / "slurm.sbatch")
    subprocess.run(["bash", "-n", script], check=True)
    done = subprocess.run(
        ["bash", script, *SUBMITTED],
        env={"PATH": "/usr/bin:/bin", "DRY_RUN": "1", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "123456"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]


def ray(capsys):
    assert runpy.run_path(str(CLUSTER / "ray_train.py"))["main"](["--dry-run", "--processes", "2", *SUBMITTED]) == 0
    return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]


def jobset():
    job = yaml.safe_load((CLUSTER / "jobset.yaml").read_text())
    (train,) = job["spec"]["replicatedJobs"]
    spec = train["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    host = f"{job['metadata']['name']}-{train['name']}-0-0.{job['metadata']['name']}"
    (port,) = container["ports"]
    assert f"--coordinator={host}:{port['containerPort']}" in container["command"]
    assert (
        f"--set=mesh.fsdp={spec['completions'] * container['resources']['limits']['nvidia.com/gpu']}"
        in (container["command"])
    )
    return [
        [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["command"]]
        for index in range(spec["completions"])
    ]


@pytest.mark.parametrize("template", ["slurm", "ray", "jobset"])
def test_what_a_template_starts_is_a_command_of_ours(template, capsys):
    commands = {"slurm": slurm, "jobset": jobset, "ray": lambda: ray(capsys)}[template]()
    assert len(commands) == 2
    for index, (program, *arguments) in enumerate(commands):
        assert program == "dovetail"
        options = parse(arguments)
        assert options.run is train_command
        assert find(options.config).is_file()
        assert any(override.startswith("mesh.fsdp=") for override in options.overrides)
        met = meeting(options)
        assert (met.processes, met.process) == (2, index)
        assert met.coordinator == meeting(parse(commands[0][1:])).coordinator
