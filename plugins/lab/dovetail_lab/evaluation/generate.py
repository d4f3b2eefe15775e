"""Completions of prompts, written to a file as they come, so that a killed command can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from jaxtyping import Bool, Int

from dovetail.host.completer import Completed
from dovetail.host.prompts import Selected
from dovetail.protocols import Example, Sampling
from dovetail.step import keys
from dovetail_lab.evaluation.batches import in_full_batch
from dovetail_lab.evaluation.lines import open_lines
from dovetail_lab.evaluation.policy import Policy

Watch = Callable[[str, int, int], None]


@attrs.frozen(kw_only=True)
class Generator:
    """Draws `samples` completions of each prompt with `sampling`, in batches of `batch_size` prompts.

    Sample j of prompt i is drawn with the key (seed, i, j), so that it is the same whatever was done before, and a
    larger number of samples only adds to what there is.
    """

    policy: Policy
    sampling: Sampling
    samples: int
    batch_size: int

    def __call__(self, examples: Sequence[Example], out: Path, watch: Watch) -> tuple[int, int]:
        """Write what `out` lacks, a line for each completion.

        Args:
            examples: their prompts as the model gets them.
            out: the file; see `dovetail_lab.evaluation.lines`.
            watch: told of the progress.

        Returns:
            How many completions were written, and how many there were before.

        Raises:
            RunError: if the file is made of something else, or cannot be written.
        """
        with open_lines(out, self._identity(examples)) as lines:
            lacking = np.ones((len(examples), self.samples), bool)
            position = {int(index): row for row, index in enumerate(_indices(examples))}
            for record in lines.found:
                if record["index"] in position and record["sample"] < self.samples:
                    lacking[position[record["index"]], record["sample"]] = False
            before = int((~lacking).sum())
            self.draw(examples, lacking, lines.append, watch)
            return lacking.size - before, before

    def draw(
        self,
        examples: Sequence[Example],
        lacking: Bool[np.ndarray, "prompt sample"],
        write: Callable[[list[dict[str, Any]]], None],
        watch: Watch,
    ) -> None:
        """Draw the samples that are lacking, and pass their records on after each batch.

        Args:
            examples: their prompts as the model gets them.
            lacking: which samples are drawn.
            write: is given a record for each completion: index, sample, prompt, completion, finish, tokens, logp,
                record, and of an episode messages and ended.
            watch: told of the progress.
        """
        rows = np.flatnonzero(lacking.any(axis=1))
        watch("prompts", len(examples) - len(rows), len(examples))
        if not len(rows):
            return
        first = int(lacking.any(axis=0).argmax())
        root = keys.stream(self.policy.config.run.seed, keys.GENERATION)
        size = min(self.batch_size, len(rows))
        indices = _indices(examples)
        with self.policy.engine() as engine:
            complete = self.policy.completer(engine)
            for start in range(0, len(rows), size):
                chosen = rows[start : start + size]
                batch = [examples[row] for row in chosen]
                batch_keys = keys.of_samples(root, indices[chosen], self.samples)[:, first:]
                completed = in_full_batch(complete, batch, batch_keys, self.sampling, size)
                write(self._records(completed, indices[chosen], lacking[chosen][:, first:], first))
                watch("prompts", len(examples) - len(rows) + start + len(chosen), len(examples))

    def _records(
        self,
        completed: Completed,
        indices: Int[np.ndarray, "prompt"],
        wanted: np.ndarray,
        first: int,
    ) -> list[dict[str, Any]]:
        """Return a record for each completion that is wanted."""
        records, drawn = [], completed.completions
        for row, (prompt, sample) in enumerate(np.ndindex(wanted.shape)):
            if not wanted[prompt, sample]:
                continue
            mask, example = drawn.mask[row], completed.examples[prompt]
            played = completed.episodes
            records.append(
                {
                    "index": int(indices[prompt]),
                    "sample": first + sample,
                    "prompt": example["prompt"],
                    "completion": self.policy.tokenizer.decode(drawn.tokens[row][mask].tolist()),
                    "finish": str(drawn.finish[row]),
                    "tokens": int(mask.sum()),
                    "logp": float(drawn.logps[row][mask].sum()),
                    "record": {name: value for name, value in example.items() if name != "prompt"},
                }
                | ({"messages": list(played.conversations[row]), "ended": str(played.ends[row])} if played else {})
            )
        return records

    def _identity(self, examples: Sequence[Example]) -> dict[str, Any]:
        """What a file of completions is made of, but for their number."""
        digest = hashlib.blake2b(digest_size=8)
        for index, example in zip(_indices(examples), examples, strict=True):
            digest.update(f"{index}\0{example['prompt']}\0".encode("utf-8", "surrogatepass"))
        return {
            "weights": f"{self.policy.owner} {self.policy.at}",
            "prompts": f"{len(examples)} of hash {digest.hexdigest()}",
            "sampling": attrs.asdict(self.sampling),
            "seed": self.policy.config.run.seed,
        }


def _indices(examples: Sequence[Example]) -> Int[np.ndarray, "prompt"]:
    """The places of examples in their data set, of which some may be left out."""
    return examples.indices if isinstance(examples, Selected) else np.arange(len(examples))
