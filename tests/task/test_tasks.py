"""Requirements of built-in tasks and sinks beyond `dovetail_kit.conformance`."""

import subprocess
import sys


def test_tasks_and_sinks_import_nothing_heavy():
    code = (
        "import dovetail, sys\n"
        "for kind in ('task', 'sink'):\n"
        "    for name in dovetail.names(kind): dovetail.get(kind, name).load()\n"
        "dovetail.get('task', 'arithmetic').bind().examples('train')[0]\n"
        "print([m for m in ('jax', 'grain', 'matplotlib', 'pyarrow', 'rich', 'tensorboardX') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
