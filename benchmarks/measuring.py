"""What `benchmarks/accelerator.py` measures, in this process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flops import Work
from lengths import sampled
from workloads import COMMON, SHAPES, register

from dovetail.config import Config, load
from dovetail.devices.compiled import share
from dovetail.devices.mesh import Devices
from dovetail.plan.roles import POLICY, REFERENCE
from dovetail.protocols import DoesNotFit, Weights
from dovetail.step import keys
from dovetail.step.algorithm import assemble
from dovetail.step.moment import Moment
from dovetail.step.scoring import Scoring
from dovetail.step.update import Trained, Update, mini_batches
from dovetail.training.models import Models, in_mode
from dovetail.training.settled import sizing
from dovetail_kit.machine.survey import survey
from dovetail_lab.sweep.population import Population

ON_CPU = ("train.prompts=2", "train.group_size=4", "train.max_prompt_tokens=64", "sampling.max_tokens=32")
ON_ACCELERATOR = (
    *("train.prompts=16", "train.group_size=8", "train.max_prompt_tokens=256", "sampling.max_tokens=256"),
    *("task.fixed_prompts.length=256", "model.decoder.dtype=bfloat16", "model.decoder.param_dtype=bfloat16"),
)
MEMBERS = (1, 8)


def findings(name: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the findings of the machine, of the population, or of a model."""
    register()
    if name == "machine":
        yield from machine(calls)
    elif name == "population":
        yield from population(calls)
    else:
        yield from model(name, calls)


def is_cpu() -> bool:
    return jax.default_backend() == "cpu"


def clock() -> float:
    """Return the time in seconds; on CPUs, which are seldom idle, processor time divided by the number of cores."""
    return time.process_time() / len(os.sched_getaffinity(0)) if is_cpu() else time.perf_counter()


def seconds_of(function: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Return the seconds of the first call, which compiles, and of the fastest of some calls after it."""
    seconds = []
    for _ in range(1 + calls):
        start = clock()
        jax.block_until_ready(function())
        seconds.append(clock() - start)
    return seconds[0], min(seconds[1:])


def peak_gib() -> float:
    """Return the peak memory of this process on the device so far; on a CPU, its greatest resident size."""
    there = jax.devices()[0].memory_stats() or {}
    peak = there.get("peak_bytes_in_use") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return round(peak / 2**30, 2)


def machine(calls: int) -> Iterator[dict[str, Any]]:
    """Yield the device, the rates of its matrix products, and its memory bandwidth."""
    facts, device = survey(), jax.devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit") or facts.memory
    yield {
        "of": "machine",
        "what": "device",
        "backend": facts.backend,
        "note": "on cpu: no accelerator was measured" if is_cpu() else None,
        "kind": device.device_kind,
        "count": len(facts.devices),
        "memory_gib": round(memory / 2**30, 1),
        "cores": facts.cores,
        "load": round(os.getloadavg()[0], 1),
        "driver": next((gpu.driver for gpu in facts.gpus), None),
        **facts.versions,
    }
    size, times = (1024, 4) if is_cpu() else (8192, 16)
    for dtype in ("bfloat16", "float32"):
        x = jnp.full((size, size), 1 / size, dtype)
        chain = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda _, y: y @ x, x))
        rate = 2 * size**3 * times / seconds_of(lambda chain=chain, x=x: chain(x), calls)[1]
        yield {"of": "machine", "what": dtype, "tflops_per_s": round(rate / 1e12, 3), "per_s": rate, "size": size}
    count = (1 << 26) if is_cpu() else (1 << 29)
    box = [jnp.zeros(count, jnp.float32)]
    add = jax.jit(lambda x: x + 1, donate_argnums=0)  # in place, so that nothing is read only to be overwritten

    def stream() -> Any:
        box[0] = add(box[0])
        return box[0]

    rate = 2 * 4 * count / seconds_of(stream, 2 * calls)[1]
    how = "read and written in place"
    yield {"of": "machine", "what": "bandwidth", "gb_per_s": round(rate / 1e9, 1), "per_s": rate, "how": how}


class Step:
    """The parts of a GRPO step of a random model with random tokens, compiled as in a run."""

    def __init__(self, config: Config) -> None:
        train = config.train
        self.config, self.devices = config, Devices.open(config.mesh, config.apart)
        self.tokenizer: Any = config.choice("train.tokenizer").bind()
        models = Models(config=config, devices=self.devices, vocab_size=self.tokenizer.vocab_size)
        algorithm = assemble(config)
        self.settled = sizing(config).update(config, algorithm, models, self.devices)
        self.algorithm = self.settled.apply(algorithm)
        graphdef, self.weights = models.policy()
        self.graphdef = in_mode(graphdef, self.weights, self.settled.mode)
        self.work = Work.of(config, self.tokenizer.vocab_size)
        self.batch = batch = sampled(config, "full")
        self.prompts = np.asarray(batch["prompt_tokens"][:: train.group_size])

    def engine(self) -> Callable[[], Any]:
        """Return a function that samples the completions of a step."""
        opened: Any = self.config.choice("train.rollout").bind()
        opened = opened.open(self.graphdef, self.weights, self.tokenizer)
        train, mask = self.config.train, np.ones_like(self.prompts, bool)
        each = keys.per_sample(keys.stream(0, keys.SAMPLING, 0), train.prompts, train.group_size)
        return lambda: opened.generate(self.prompts, mask, each, self.config.sampling)

    def scoring(self) -> Callable[[], Any]:
        """Return a function that computes the reference's log-probabilities, with a copy of the weights as in a run."""
        scoring = Scoring(algorithm=self.algorithm, graphdefs={POLICY: self.graphdef}, roles=(REFERENCE,))
        reference = Weights(jax.tree.map(lambda x: x.copy(), self.weights.trained), self.weights.frozen)
        hyper = self.algorithm.hyper
        score = jax.jit(lambda weights, batch: scoring({REFERENCE: weights}, batch, hyper)[0])
        return lambda: score(reference, self.batch)

    def update(self, scored: Any) -> Callable[[], Any]:
        """Return a function that updates the policy once; the weights of this object are used up by it."""
        sizes, algorithm = self.algorithm.sizes, self.algorithm
        batch = {"old_logps": self.batch["rollout_logps"]} | self.batch | scored
        (batch,) = mini_batches(batch, sizes.mini_batch_size, 1, jax.random.key(0), sizes.rows_per_prompt)
        update = share(Update(algorithm=algorithm, graphdefs={POLICY: self.graphdef}), donate=(0,))
        trained = Trained(self.weights.trained, algorithm.optimisers["train"].init(self.weights.trained))
        frozen, moment, box = self.weights.frozen, now(), [trained]

        def once() -> Any:
            box[0], _ = update(box[0], frozen, {}, batch, moment, algorithm.hyper)
            return box[0]

        return once


def now() -> Moment:
    """Return the first of ten steps."""
    return Moment(
        step=jnp.int32(0),
        total=jnp.int32(10),
        key=jax.random.key(0),
        coefficients={"train.kl_coef": jnp.float32(0.04), "train.entropy_coef": jnp.float32(0)},
        update=jnp.int32(0),
    )


def configured(name: str) -> Config:
    """Return the config of a shape, in the type and with the sizes that suit the platform."""
    return load(None, [*COMMON, *SHAPES[name], *(ON_CPU if is_cpu() else ON_ACCELERATOR)])


def model(name: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of sampling, scoring and updating with one model."""
    config = configured(name)
    try:
        step = Step(config)
    except DoesNotFit as error:
        yield {"of": name, "what": "does not fit", "why": str(error)}
        return
    work, dtype = step.work, config.choice("train.model").params["dtype"]
    rows = f"{work.prompts} prompts of {work.prompt} tokens, {work.group} completions of {work.answer} each"
    yield {"of": name, "what": "step", "rows": rows, "computed": str(step.settled)}

    def timed(what: str, function: Callable[[], Any], operations: float, **more: Any) -> dict[str, Any]:
        first, seconds = seconds_of(function, calls)
        figures = {"seconds": round(seconds, 5), "first_call_s": round(first, 1), "dtype": dtype}
        tokens = work.rows * work.answer
        rate = {"tokens": tokens, "tokens_per_s": round(tokens / seconds)}
        return {"of": name, "what": what} | figures | rate | {"operations": operations, "peak_gib": peak_gib()} | more

    yield timed("decode", step.engine(), work.forward, bytes_read=work.read)
    score = step.scoring()
    yield timed("scoring", score, work.forward)
    yield timed("update", step.update(score()), work.update)
    planned = step.settled.planned / 2**30
    yield {"of": name, "what": "memory", "peak_gib": peak_gib(), "planned_gib": round(planned, 2)}


def population(calls: int) -> Iterator[dict[str, Any]]:
    """Yield the rate of small models that are sampled from and updated together, by their number."""
    for members in MEMBERS:
        steps = [Step(configured("tiny")) for _ in range(members)]
        engines = [step.engine() for step in steps]
        updates = [step.update({"ref_logps": step.batch["rollout_logps"]}) for step in steps]
        for what, functions in (("decode", engines), ("update", updates)):
            _, seconds = seconds_of(lambda functions=functions: together(functions), calls)
            yield {
                "of": "population",
                "what": what,
                "members": members,
                "seconds": round(seconds, 5),
                "members_per_s": round(members / seconds, 1),
            }


def together(functions: list[Callable[[], Any]]) -> list[Any]:
    """Call functions as the runs of a population, whose compiled calls are combined."""
    runs = Population(len(functions))

    def run(number: int) -> Any:
        with runs.member(number):
            return functions[number]()

    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(run, range(len(functions))))
