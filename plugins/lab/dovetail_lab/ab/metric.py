"""The metrics that a config records, as far as its settings tell, so that typos are found before the first run."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.config import Config
from dovetail.errors import ConfigError, listing, nearest
from dovetail.plan import plan_step

ALWAYS = (
    *(f"reward/{name}" for name in ("mean", "std")),
    *(f"completion/{name}" for name in ("length_mean", "length_max", "truncated")),
    *(f"optimizer/{name}" for name in ("lr", "grad_norm", "update_norm")),
)


def check_metric(metric: str, config: Config) -> None:
    """Refuse a metric that no run of this config can record.

    Raises:
        ConfigError: with the nearest name, and with the setting that is missing where it is one.
    """
    known = [*evaluated(config), *trained(config)]
    section, slash, name = metric.partition("/")
    # what a component reports, under the name of its kind, is up to it: that is checked with the first finished run
    if metric in known or (slash and name and section in reporting(config)):
        return
    if metric.startswith(("eval/pass@", "eval/maj@", "eval/sampled_")) and not config.eval.samples:
        raise ConfigError(f"metric {metric} needs several samples of each prompt: set eval.samples, which is 0")
    raise ConfigError(
        f"no run of this config has a metric '{metric}'.{nearest(metric, known)} There are: {listing(known)}"
    )


def reporting(config: Config) -> set[str]:
    """Return under which names the components of a config may report metrics: those of the kinds that a step calls."""
    plan = config.plan or plan_step(config)
    return {"mismatch", *(call.kind.name for call in plan.calls), *(call.model for call in plan.calls)}


def evaluated(config: Config) -> Iterator[str]:
    """Yield the metrics of an evaluation."""
    settings = config.eval
    checks = ["accuracy", *(f"{name}_accuracy" for name in ("partial", "format") if getattr(settings, name))]
    rewards = [f"reward/{choice.component.name}" for choice in config.several("train.rewards")]
    for name in (*checks, *rewards, "reward_mean", "length_mean", "truncated"):
        yield f"eval/{name}"
    if settings.samples:
        sampled = [f"sampled_{check}" for check in checks]
        votes = [f"maj@{k}" for k in settings.majority_at]
        for name in (*sampled, *(f"pass@{k}" for k in settings.pass_at), *votes):
            yield f"eval/{name}"


def trained(config: Config) -> Iterator[str]:
    """Yield the metrics of a training step that the engine records."""
    yield from ALWAYS
    yield from (f"reward/{choice.component.name}" for choice in config.several("train.rewards"))
    yield from ("policy_loss/loss", *(f"{choice.component.name}/mean" for choice in config.several("train.monitor")))
    if config.train.kl_coef:
        yield from ("kl/mean", "kl/coef")
