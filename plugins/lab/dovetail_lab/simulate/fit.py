"""How long drawing a batch and learning from it take, fitted to a run's records."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.config.settings import Train
from dovetail.errors import RunError
from dovetail.run.files import read_lines
from dovetail_lab.of_run import load_of_run
from dovetail_lab.one_run import open_run
from dovetail_lab.simulate.programs import Forecast, Rounds, simulate

LEAST: Final = 3
"""Steps without compilation that are needed."""
STEPS: Final = 20_000


@attrs.frozen(kw_only=True)
class Fitted:
    """A run's times, one number for each step that compiled nothing.

    Decoding takes `per_position` seconds for each position of the longest completion, which no engine beside another
    makes shorter, and `per_token` for each token of all, which engines share: the form of Graham's bound (1966)
    for work of which the next piece begins as soon as there is room.

    Attributes:
        rows: completions of a step.
        group_size: completions of a prompt.
        tokens: of all completions that the step learns from.
        longest: tokens of the longest of them.
        rounds: rounds of sampling; one in each step, except with a group filter.
        drawing: how many rounds a step takes; None without a group filter.
        decoding: seconds of sampling.
        pace: seconds per token of a completion that waits for no other, where the engine tells; else None.
        rewards: seconds of rewards and of waiting for prompts; when sampling ahead, also of taking new weights.
        training: seconds of scoring and updates, the new weights' way to the engine included.
        spread: standard deviation of the logarithm of a completion's length.
        limit: `sampling.max_tokens`.
        staleness: of the run itself.
    """

    rows: int
    group_size: int
    tokens: Float[np.ndarray, "step"]
    longest: Float[np.ndarray, "step"]
    rounds: Float[np.ndarray, "step"]
    drawing: Rounds | None
    decoding: Float[np.ndarray, "step"]
    pace: float | None
    rewards: Float[np.ndarray, "step"]
    training: Float[np.ndarray, "step"]
    limit: int
    staleness: int

    @property
    def spread(self) -> float:
        """Return σ of lognormal lengths whose mean and greatest of a step's rows are those recorded.

        With m the mean length and M the geometric mean of the greatest ones, ln(M/m) = z·σ - σ²/2, of which the smaller
        root is taken; z is the expected greatest of as many standard normal numbers as a step has rows. If there is
        none, since lengths are more unequal than lognormal ones can be, σ = z.
        """
        z = _expected_greatest(self.rows)
        gap = float(np.log(self.longest).mean() - np.log(self.tokens.mean() / self.rows))
        return z - float(np.sqrt(max(0.0, z * z - 2 * gap)))

    def costs(self) -> tuple[float, float]:
        """Return seconds per position and per token: non-negative least squares of decoding on both.

        Where the engine tells its pace, that is the cost of a position, and only the other one is fitted.
        """
        from scipy.optimize import nnls

        sizes = self._sizes()
        if self.pace is None:
            (per_position, per_token), _ = nnls(sizes, self.decoding)
            return float(per_position), float(per_token)
        per_position = min(self.pace, float(self.decoding.sum() / sizes[:, 0].sum()))
        (per_token,), _ = nnls(sizes[:, 1:], self.decoding - per_position * sizes[:, 0])
        return per_position, float(per_token)

    @property
    def doubtful(self) -> bool:
        """Whether the records do not tell the two costs apart, so that forecasts for more engines are bounds.

        That is so if the standard error of the part of decoding that more engines do not change exceeds a fifth of it.
        """
        if self.pace is not None:
            return False
        sizes, steps = self._sizes(), len(self.decoding)
        _, squares, rank, _ = np.linalg.lstsq(sizes, self.decoding, rcond=None)
        if rank < 2:
            return True
        variance = float(squares[0]) / (steps - 2) * np.linalg.inv(sizes.T @ sizes)[0, 0]
        return float(np.sqrt(variance) * sizes[:, 0].mean()) > self.decoding.mean() / 5

    def _sizes(self) -> Float[np.ndarray, "step 2"]:
        """Return the longest completions and the tokens of all rounds of each step."""
        return np.stack(self._round(self._share(self.drawing)), axis=1) * self.rounds[:, None]

    def forecast(
        self, k: int, group_size: int | None = None, engines: int = 1, oversample: int | None = None, seed: int = 0
    ) -> Forecast:
        """Return what a step would come to: recorded rounds and updates, drawn with replacement and scaled.

        A group of any size is taken to pass the filter as often as those recorded.
        """
        factor, rng = (group_size or self.group_size) / self.group_size, np.random.default_rng(seed)
        drawing, rounds, ages = self.drawing, np.ones(STEPS, int), np.zeros(STEPS)
        if drawing is not None:
            drawing = drawing if oversample is None else attrs.evolve(drawing, more=oversample)
            rounds, ages = drawing.drawn(STEPS, rng)
        seconds = self._seconds_of_rounds(factor * self._share(drawing), engines)
        of_steps = np.repeat(np.arange(STEPS), rounds)
        sampling = np.bincount(of_steps, rng.choice(seconds, len(of_steps)), minlength=STEPS)
        found = simulate(sampling, rng.choice(self.training * factor, STEPS), k, ages)
        return attrs.evolve(found, rounds=float(rounds.mean()))

    def _share(self, drawing: Rounds | None) -> float:
        """Return the groups of a round over those of a step."""
        return 1.0 if drawing is None else drawing.size / drawing.wanted

    def _round(self, factor: float) -> tuple[Float[np.ndarray, "step"], Float[np.ndarray, "step"]]:
        """Return the longest completion and the tokens of rounds with `factor` times as many rows as a step."""
        before, after = _expected_greatest(self.rows), _expected_greatest(self.rows * factor)
        longest = np.minimum(self.longest * np.exp(self.spread * (after - before)), self.limit)
        return longest, self.tokens * factor

    def _seconds_of_rounds(self, factor: float, engines: int) -> Float[np.ndarray, "round"]:
        """Return the seconds of sampling and rewards of the recorded rounds, with `factor` times as many rows."""
        (per_position, per_token), recorded = self.costs(), self._share(self.drawing)
        (longest, tokens), (longer, more) = self._round(recorded), self._round(factor)
        fitted = per_position * longest + per_token * tokens
        changed = per_position * longer + per_token * more / engines
        decoding = self.decoding * changed / np.where(fitted > 0, fitted, 1.0)
        there, rewards = self.rounds > 0, self.rewards * factor / recorded
        each = (decoding[there] + rewards[there]) / self.rounds[there]
        return np.repeat(each, self.rounds[there].astype(int))


def fit(folder: Path, *, trusted: bool = False) -> Fitted:
    """Read a run's `timings.jsonl` and `metrics.jsonl`.

    Args:
        folder: of the run.
        trusted: whether its config may name programs to run and servers to call, as those with engines do.

    Raises:
        RunError: if too few steps have been recorded that compiled nothing.
    """
    config = load_of_run(open_run(folder).folder, trusted=trusted)
    train, limit = config.train, config.sampling.max_tokens
    lengths = {line["step"]: line for line in read_lines(folder / "metrics.jsonl", "rl") if MEAN in line}
    timed = [line for line in read_lines(folder / "timings.jsonl", "rl") if "time/update" in line]
    kept = [line for line in timed if "compile/programs" not in line and line["step"] in lengths]
    if len(kept) < LEAST:
        raise RunError(
            f"'{folder}' has {len(kept)} of {len(timed)} steps in which nothing was compiled, and a fit needs {LEAST};"
            " train for a few steps more"
        )
    found = [lengths[line["step"]] for line in kept]
    of = "sampler" if train.staleness else "time"
    rows = train.prompts * train.group_size
    return Fitted(
        rows=rows,
        group_size=train.group_size,
        tokens=np.array([rows * line[MEAN] for line in found]),
        longest=np.array([line["completion/length_max"] for line in found]),
        rounds=np.array([line.get(ROUNDS, 1.0) for line in found]),
        drawing=_drawing(found, train),
        decoding=_sum(kept, f"{of}/rollout"),
        pace=_pace(kept),
        rewards=_sum(kept, f"{of}/reward", f"{of}/waiting", "sampler/sync"),
        training=_sum(kept, "time/scoring", "time/update", "time/sync"),
        limit=limit,
        staleness=train.staleness,
    )


MEAN: Final = "completion/length_mean"
ROUNDS: Final = "group_filter/rounds"


def _drawing(lines: list[dict[str, Any]], train: Train) -> Rounds | None:
    """Return how many rounds a step takes, from the share of the sampled groups that the filter kept."""
    rounds = sum(line.get(ROUNDS, 0.0) for line in lines)
    if not rounds:
        return None
    passed = sum(line[ROUNDS] * line.get("group_filter/kept", 0.0) for line in lines)
    most = 1 + train.refill_rounds
    return Rounds(wanted=train.prompts, more=train.oversample, passing=passed / rounds, most=most)


def _sum(lines: list[dict[str, Any]], *names: str) -> Float[np.ndarray, "step"]:
    return np.array([sum(line.get(name, 0.0) for name in names) for line in lines])


def _pace(lines: list[dict[str, Any]]) -> float | None:
    """Return the median over steps, of an engine that tells it in all of them."""
    told = [line["rollout/seconds_per_token"] for line in lines if "rollout/seconds_per_token" in line]
    return float(np.median(told)) if len(told) == len(lines) else None


def _expected_greatest(count: float) -> float:
    """Return about the expected greatest of `count` standard normal numbers (Blom 1958).

    >>> round(_expected_greatest(32), 2), _expected_greatest(1)
    (2.07, 0.0)
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
