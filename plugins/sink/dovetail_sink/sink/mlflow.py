"""Metrics in MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import dovetail
from dovetail.run.files import hold
from dovetail_sink._tracked import Once, Tracked, import_tracker, named

LONGEST = 500
"""The greatest number of characters of a parameter's value that old servers accept."""
PATIENCE_SECONDS = 60.0
PARAMS_AT_A_TIME = 100
LOCK = "mlflow.lock"


@dovetail.declares(elsewhere=True)
@attrs.frozen(kw_only=True)
class MLflow:
    """Logs to a run of MLflow, with the config as parameters; the runs of a sweep are children of a run with its name.

    A resumed run continues the same run of MLflow, and what it does again after a crash is not logged again. Characters
    that MLflow does not allow in names are replaced: `eval/pass@4` becomes `eval/pass_4`. Needs the extra `mlflow`.

    Args:
        uri: a server, or a database such as `sqlite:///runs/mlflow.db`; None means `MLFLOW_TRACKING_URI` or, if that is
            not set, `mlflow.db` in the working directory.
        experiment: the name of the MLflow experiment.
    """

    uri: str | None = None
    experiment: str = "dovetail"

    def open(self, folder: Path, total_steps: int, start_step: int) -> Once:
        """Begin or continue the run.

        Raises:
            ConfigError: if MLflow is not installed.
        """
        mlflow = import_tracker("mlflow", "mlflow", "MLflow")
        client, about = mlflow.MlflowClient(self.uri), Tracked.of(folder)
        with _one_at_a_time(about.sweep or folder):
            found = client.get_experiment_by_name(self.experiment)
            experiment = found.experiment_id if found else client.create_experiment(self.experiment)
            above = {}
            if about.sweep:
                parent = _run(client, experiment, _key_of(about.sweep), about.sweep.name, {})
                above = {"mlflow.parentRunId": parent, "dovetail.sweep": about.sweep.name}
            run = _run(client, experiment, about.key, about.name, above)
        known = client.get_run(run).data.params
        params = [
            mlflow.entities.Param(_allowed(key), value[:LONGEST])
            for key, value in about.settings.items()
            if _allowed(key) not in known
        ]
        for first in range(0, len(params), PARAMS_AT_A_TIME):
            client.log_batch(run, params=params[first : first + PARAMS_AT_A_TIME])
        return Once.over(MLflowRun(client, run, mlflow.entities.Metric), "mlflow", folder, about.key)


def _one_at_a_time(folder: Path) -> Any:
    """Serialise the trials of a sweep while they look up or create their parent run."""
    return hold(folder / LOCK, f"'{folder}' for MLflow", patience=PATIENCE_SECONDS)


def _run(client: Any, experiment: str, key: str, name: str, tags: Mapping[str, str]) -> str:
    """Return the run with a key, which is created if necessary."""
    found = client.search_runs([experiment], filter_string=f"tags.`dovetail.key` = '{key}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return found[0].info.run_id
    return client.create_run(experiment, run_name=name, tags={"dovetail.key": key, **tags}).info.run_id


def _key_of(sweep: Path) -> str:
    """Return the key of a sweep's own run: its path, but for the character that ends a text in a filter of MLflow.

    >>> _key_of(Path("/home/o'neill/sweep"))
    '/home/o%27neill/sweep'
    """
    return str(sweep).replace("'", "%27")


def _allowed(name: str) -> str:
    """Return a name in the characters that MLflow allows.

    >>> _allowed("eval/pass@4")
    'eval/pass_4'
    """
    return re.sub(r"[^\w\-. /:]", "_", name)


@attrs.frozen
class MLflowRun:
    """An open run of MLflow."""

    client: Any
    run: str
    metric: Any

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one step's metrics."""
        _, found = named(metrics)
        now = int(time.time() * 1000)
        made = [self.metric(_allowed(name), float(value), now, step) for name, value in found.items()]
        if made:
            self.client.log_batch(self.run, metrics=made)

    def close(self) -> None:
        """Mark the run as ended."""
        self.client.set_terminated(self.run)
