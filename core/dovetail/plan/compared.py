"""Which of the trainer's log-probabilities may be compared with the sampler's.

A cut (top-k, top-p, min-p) restricts sampling to a support S, a subset of the vocabulary. The sampler reports
probabilities over S, the trainer over the whole vocabulary. Their ratio would include the probability mass of S, which
says nothing about the difference between the two policies: it is 0.07 for 50 of 700 equally likely tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from dovetail.config.settings import Sampling
from dovetail.errors import ConfigError
from dovetail.plan.roles import OLD

if TYPE_CHECKING:
    from dovetail.config import Config

SAMPLER: Final = "rollout_logps"
VOCABULARY: Final = "logps"
SUPPORT: Final = "support_logps"
"""The field component that scores tokens over the support that the engine has kept."""

KEPT: Final = "support"
"""The field that holds the support."""

REPORTS: Final = "reports_logps"
"""The claim of an engine, unless False, that it samples its completions, and says with what probabilities."""

NO_CUT: Final[dict[str, tuple[Any, ...]]] = {"top_k": (None,), "top_p": (None, 1.0), "min_p": (None, 0.0)}


def cuts(sampling: Sampling) -> tuple[str, ...]:
    """Return the settings that restrict sampling to part of the vocabulary; none for greedy sampling.

    >>> cuts(Sampling(top_k=50, top_p=1.0))
    ('top_k',)
    """
    names = tuple(name for name, none in NO_CUT.items() if getattr(sampling, name) not in none)
    return names if sampling.temperature else ()


def compared(config: Config) -> str | None:
    """Return the field of the trainer that is comparable with `rollout_logps`.

    None if there are none, or the engine keeps no support.
    """
    sampling = config.sampling
    if not reported(config):
        return None
    if not cuts(sampling) or sampling.logps == "vocabulary":
        return VOCABULARY
    return SUPPORT if sampling.top_k is not None and sampling.top_k <= _kept(config) else None


def reported(config: Config) -> bool:
    """Return whether there are log-probabilities of a sampler."""
    return config.choice("train.rollout").declares.get(REPORTS, True)


def likened(reads: Iterable[str], like: str | None) -> dict[str, str]:
    """Return the fields to substitute for the trainer's log-probabilities in a component that reads the sampler's too.

    >>> likened(("old_logps", "rollout_logps", "mask"), "support_logps")
    {'logps': 'support_logps', 'old_logps': 'old_support_logps'}
    >>> likened(("old_logps", "mask"), "support_logps")
    {}
    """
    if SAMPLER not in reads or like != SUPPORT:
        return {}
    return {VOCABULARY: SUPPORT, OLD + VOCABULARY: OLD + SUPPORT}


def unlike(config: Config) -> str:
    """Return an explanation of why the log-probabilities cannot be compared, and the remedies."""
    (cut, *_), choice = cuts(config.sampling), config.choice("train.rollout")
    ways = []
    if choice.declares.get("vocabulary_logps", True):
        ways.append("set sampling.logps = 'vocabulary'")
    if _kept(config):
        ways.append(f"set sampling.top_k to at most {_kept(config)}, so that the engine keeps the support")
    return (
        f"those are over what sampling.{cut} = {getattr(config.sampling, cut)} ({config.origins[f'sampling.{cut}']})"
        f" leaves of the vocabulary, the trainer's over all of it; {', or '.join([*ways, 'remove the cut'])}"
    )


def check_reported(config: Config) -> None:
    """Refuse `sampling.logps = 'vocabulary'` with an engine that reports log-probabilities only over the support.

    Raises:
        ConfigError: with the cut and where it is set.
    """
    choice, found = config.choice("train.rollout"), cuts(config.sampling)
    name = choice.component.name
    if config.sampling.logps == "vocabulary" and found and not choice.declares.get("vocabulary_logps", True):
        raise ConfigError(
            f"{config.origins['sampling.logps']}: sampling.logps = 'vocabulary' with sampling.{found[0]}: rollout"
            f" '{name}' reports log-probabilities over the support only; use 'support', remove the cut, or use the"
            " engine 'vanilla'"
        )


def _kept(config: Config) -> int:
    """Return the largest top-k whose support the engine keeps."""
    return config.choice("train.rollout").declares.get("keeps_support", 0)
