"""The public names of the kit, and the cost of importing it."""

import subprocess
import sys

import dovetail_kit.rollout

PUBLIC = ["CHECKS", "EngineCase", "Numbers", "check_close", "expected_logps"]


def test_the_public_names_are_these():
    assert sorted(dovetail_kit.rollout.__all__) == PUBLIC
    assert all(hasattr(dovetail_kit.rollout, name) for name in PUBLIC)


def test_the_package_and_its_commands_import_nothing_heavy():
    code = (
        "import sys, dovetail_kit, dovetail_kit.cli\n"
        "print(*sorted(set(sys.modules) & {'jax', 'flax', 'numpy', 'pytest', 'dovetail.config'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "\n"
