"""What `dovetail.open_policy` returns: a model that completes prompts and is evaluated, for notebooks and scripts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from dovetail.config import Config
from dovetail.errors import ConfigError, DovetailWarning
from dovetail.run.process import prepared
from dovetail_lab.cli.progress import progress
from dovetail_lab.evaluation.asked import Asked, at_least_one
from dovetail_lab.evaluation.checkpoints import NEWEST
from dovetail_lab.evaluation.given import Prompt, with_examples
from dovetail_lab.of_run import SCORES, warn_of_other_code
from dovetail_lab.one_run import RecordedRun, Settings, open_run, texts

if TYPE_CHECKING:
    from dovetail.protocols import Tokenizer
    from dovetail_lab.evaluation.policy import Policy
    from dovetail_lab.evaluation.report import Report


@attrs.frozen(kw_only=True, repr=False)
class OpenPolicy:
    """A model with its tokenizer. Its weights stay in memory for as long as the object does.

    What it draws depends on the weights, the prompts, the sampling settings and `run.seed`, as for `dovetail generate`
    and `dovetail eval`; sample j of prompt i is the same however many prompts and samples there are.
    """

    _policy: Policy = attrs.field(alias="policy")
    _asked: Asked = attrs.field(alias="asked")

    def __repr__(self) -> str:
        return f"OpenPolicy({self.weights} of {self._asked.run or self._asked.config})"

    @property
    def weights(self) -> str:
        """Which weights it has: `start`, or a run's phase and step, as `rl-100`."""
        return self._policy.at

    @property
    def config(self) -> Config:
        """The config with all defaults."""
        return self._policy.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, a `dovetail.protocols.Tokenizer`."""
        return self._policy.tokenizer

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int = 1,
        *,
        preset: str | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        **sampling: Any,
    ) -> list[list[str]]:
        """Return completions of prompts, as `dovetail generate` writes them.

        Args:
            prompts: texts as the model reads them, conversations for the tokenizer's chat template (lists of messages
                with `role` and `content`), or mappings with a `prompt` and the columns that an environment reads.
            n: completions of each prompt.
            preset: how to sample: `greedy`, `standard`, `liberal`, ...; by default as in the config.
            seed: of the samples, in place of `run.seed`.
            batch_size: prompts at a time, in place of `eval.batch_size`.
            **sampling: settings of the section `sampling`: `temperature=0.7`, `max_tokens=200`, `stop=("\\n",)`. They
                take precedence over the preset.

        Returns:
            The texts by prompt and sample, `n` for each prompt; none for a prompt that `train.long_prompts = 'filter'`
            leaves out, of which a warning tells.

        Raises:
            DataError: if a prompt is none, or longer than `train.max_prompt_tokens` where that is an error.
            ConfigError: if a setting is wrong.
            DoesNotFit: if a batch takes more memory than there is.
        """
        drawn = self.completions(prompts, n, preset=preset, seed=seed, batch_size=batch_size, **sampling)
        found: list[list[str]] = [[] for _ in prompts]
        for record in drawn:
            found[record["index"]].append(record["completion"])
        return found

    def completions(
        self,
        prompts: Sequence[Prompt],
        n: int = 1,
        *,
        preset: str | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        **sampling: Any,
    ) -> list[dict[str, Any]]:
        """Return completions as the records that `dovetail generate` writes; the arguments are those of `generate`.

        Returns:
            By prompt and sample, `index` (of the prompt), `sample`, `prompt` (what the model read), `completion`,
            `finish` (why it ended), `tokens` (their number), `logp` (natural, of all of them), `record` (the other
            columns), and of an episode of several turns `messages` and `ended`.

        Raises:
            DovetailError: as `generate`.
        """
        from dovetail.training.texts import prompts as fitting
        from dovetail_lab.evaluation.generate import Generator
        from dovetail_lab.evaluation.room import Batch

        at_least_one("n", n)
        at_least_one("batch_size", batch_size)
        chosen = {} if seed is None else {"run.seed": seed}
        here = texts(chosen | {f"sampling.{name}": value for name, value in sampling.items()})
        config = with_examples(self._asked.to_generate(preset, here), prompts, "prompts")
        size = batch_size or config.eval.batch_size
        policy = attrs.evolve(self._policy, config=config)
        policy.check_room(Batch(prompts=min(size, len(prompts)), samples=n))
        task = config.choice("eval.task").bind()
        examples, lengths = fitting(config, task, "eval", policy.tokenizer, policy.loop)
        if lengths.too_long:
            warnings.warn(str(lengths), DovetailWarning, stacklevel=2)
        generator = Generator(policy=policy, sampling=config.sampling, samples=n, batch_size=size)
        found: list[dict[str, Any]] = []
        with prepared(), progress() as watch:
            generator.draw(examples, np.ones((len(examples), n), bool), found.extend, watch)
        return found

    def evaluate(
        self,
        task: str | Sequence[Prompt] | None = None,
        *,
        examples: int | None = None,
        samples: int | None = None,
        preset: str | None = None,
        **options: Any,
    ) -> Report:
        """Return the report of an evaluation, with the numbers that `dovetail eval` prints.

        Args:
            task: the name of a task, whose eval split is used, or a list of examples: mappings with a `prompt` and the
                columns that the rewards read, such as `answer`. By default `eval.task`, or else the task of training.
            examples: how many of them, from the first on; by default all.
            samples: completions of each prompt beside the greedy one, in place of `eval.samples`.
            preset: how to draw these; by default as in the config.
            **options: settings of the section `eval`: `pass_at=(1, 4)`, `success="math"`, `batch_size=64`.

        Returns:
            A `Report`: `print` shows the table, `metrics["accuracy"]` is a number, `figures["all"]["accuracy"]` has its
            95 % interval (`low`, `high`) and the number of prompts (`n`), `records` hold the completions, and
            `write(folder)` writes the files of `dovetail eval`.

        Raises:
            DovetailError: if a setting is wrong, a reward reads a column that the examples lack, or a batch takes more
                memory than there is.
        """
        from dovetail_lab.evaluation.report import evaluate
        from dovetail_lab.evaluation.room import Batch

        at_least_one("examples", examples)
        named = {"task": task} if isinstance(task, str) else {}
        counted = {} if samples is None else {"samples": samples}
        here = texts({f"eval.{name}": value for name, value in {**named, **counted, **options}.items()})
        _, config = self._asked.to_evaluate(preset, here)
        asked = config if task is None or isinstance(task, str) else with_examples(config, task, "task")
        policy = attrs.evolve(self._policy, config=asked)
        policy.check_room(Batch.of_evaluation(asked, examples))
        with prepared(), progress() as watch:
            report = evaluate(policy, limit=examples, watch=watch)
        return attrs.evolve(report, config=config)  # a file cannot hold the examples; the records do


def open_policy(
    run: RecordedRun | str | Path | None = None,
    *,
    checkpoint: str | int = NEWEST,
    config: str | Path | None = None,
    settings: Settings = (),
    trust: bool = False,
) -> OpenPolicy:
    """Open the policy of a run, or the model that a config begins with, to complete prompts and to be evaluated.

    Args:
        run: a run or its folder, which may be training: nothing in it is changed.
        checkpoint: a step of the run, `newest`, or `best`, which is that of `run.keep_best`.
        config: a gin file or the name of a shipped config, in place of the run's.
        settings: settings that override those of the config, as for `dovetail.load`.
        trust: whether the config in the run's folder may name programs to run and servers to call.

    Raises:
        RunError: if the folder is not a run's, or lacks the checkpoint; the message names those that there are.
        ConfigError: if the config is invalid.
        DoesNotFit: if the weights take more memory than there is.
    """
    if run is None and config is None:
        raise ConfigError("no policy is named: give open_policy the folder of a run, or config=NAME")
    if run is None and checkpoint != NEWEST:
        raise ConfigError(f"checkpoint = {checkpoint!r} is of a run: give open_policy its folder too")
    folder = None if run is None else (run if isinstance(run, RecordedRun) else open_run(run)).folder
    asked = Asked(run=folder, config=None if config is None else str(config), settings=texts(settings), trusted=trust)
    _, loaded = asked.read()
    warn_of_other_code(folder, loaded, SCORES)
    with prepared():
        from dovetail_lab.evaluation.policy import open_policy as opened

        with progress():
            policy = opened(loaded, folder, str(checkpoint))
    return OpenPolicy(policy=policy, asked=asked)
