"""In tests JAX is strict: implicit rank or dtype promotion is an error. Registrations are undone after each test."""

import gc
import itertools
import os
import signal
import threading
from importlib import metadata
from pathlib import Path

from packaging import version

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would all programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile much and compute little. Without LLVM's costly passes and XLA's newer way to emit fusions, a tiny run
# takes a third of the processor time.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_parallel_codegen_split_count=1"
    # of several devices one may be late on a busy machine, and after 40 seconds XLA would abort the process
    " --xla_cpu_collective_call_terminate_timeout_seconds=300"
    # JAX 0.11 has no other way, and XLA ends a process that names a flag that it does not know
    + " --xla_cpu_use_fusion_emitters=false"
    * (version.parse(metadata.version("jax")) < version.parse("0.11")),
)
# Writing to JAX's compilation cache has crashed a worker with a segmentation fault, and a test should not depend on
# files that an earlier run has left in the home folder.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
# The threads of torch and of numpy's BLAS spin while they wait for one another. With a worker of the suite on each core
# an export of SmolLM2 that transformers reads took twice as long with two threads as with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import pytest
from jax._src.interpreters import mlir

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Each compiled program holds a dozen memory mappings, and Linux allows a process 65,530 of them. When the limit is
# exceeded, LLVM aborts the process.
MAPPINGS = 30_000
TESTS = itertools.count()

# For each program that it compiles, JAX makes a context of MLIR and loads all dialects into it: 3 ms, as long as much
# of what tests compile takes. Here a thread's programs share one; it keeps what is made in it, hence the limit.
PROGRAMS_OF_A_CONTEXT = 200
make_context = getattr(mlir, "make_ir_context", None)


# What JAX and what it has traced consist of lives as long as the process: a full collection looks at millions of objects,
# takes up to a second and frees next to nothing. Full collections took a tenth of the suite's processor time.
gc.set_threshold(50_000, 20, 1_000)


class Context(threading.local):
    """A thread's context, and how many programs may still be made in it."""

    made, left = None, 0

    def take(self):
        if not self.left:
            self.made, self.left = make_context(), PROGRAMS_OF_A_CONTEXT
        self.left -= 1
        return self.made


if hasattr(mlir, "make_ir_context"):  # which is private: without it tests take longer, and are the same
    mlir.make_ir_context = Context().take


@pytest.fixture(autouse=True)
def forget_what_is_registered():
    yield
    from dovetail.registry import current

    current().remove("session")


@pytest.fixture(autouse=True)
def forget_what_is_compiled():
    yield
    maps = Path("/proc/self/maps")
    if next(TESTS) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MAPPINGS:
        jax.clear_caches()
        gc.collect()  # what holds programs in cycles, too
