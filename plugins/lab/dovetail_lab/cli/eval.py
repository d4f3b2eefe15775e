"""`dovetail eval`: how good a model is on a dataset."""

from __future__ import annotations

import argparse

from dovetail.cli.options import Commands, add_config, given_path
from dovetail.errors import printable
from dovetail_lab.cli.policies import add_policy


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "score a config's model, or the model of a run, on the eval split of the task"
    description = (
        f"{summary}. Prints accuracy, mean rewards, lengths and, from several samples, pass@k and maj@k, each with its"
        " 95 % interval, for all prompts and for each value of the column data_source; writes report.json,"
        " samples.jsonl and the config that they are about."
    )
    command = commands.add_parser("eval", help=summary, description=description)
    add_config(command)
    add_policy(command)
    command.add_argument(
        "-n", "--samples", type=int, help="samples per prompt, for pass@k and maj@k (default: eval.samples)"
    )
    command.add_argument(
        "--sampling",
        metavar="PRESET",
        help="how to draw these samples: standard, liberal, ... (default: as in the config)",
    )
    command.add_argument("--examples", type=int, help="how many prompts to use, from the first on (default: all)")
    command.add_argument(
        "--out",
        type=given_path,
        help="folder for the results (default: evaluations/WEIGHTS in the run folder; with a mark if settings or code"
        " are not the run's)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Evaluate, print the report and write it."""
    from dovetail.run.files import make_folder
    from dovetail.run.process import prepare
    from dovetail_lab.cli.policies import asked, run_folder
    from dovetail_lab.cli.progress import progress
    from dovetail_lab.evaluation.asked import at_least_one
    from dovetail_lab.of_run import SCORES, mark_of_settings, warn_of_other_code

    at_least_one("--examples", options.examples)
    samples = [f"eval.samples={options.samples}"] if options.samples is not None else []
    path, config = asked(options).to_evaluate(options.sampling, samples)
    beside = "" if options.out else "; the results go to evaluations/WEIGHTS-{mark}, and earlier ones stay"
    mark = warn_of_other_code(options.of, config, SCORES, beside)
    other = mark_of_settings(options.of, config, options.examples, trusted=options.trust)
    prepare()
    from dovetail_lab.evaluation.policy import open_policy
    from dovetail_lab.evaluation.report import evaluate
    from dovetail_lab.evaluation.room import Batch

    if options.out:
        make_folder(options.out)
    with progress() as watch:
        policy = open_policy(config, options.of, options.checkpoint, Batch.of_evaluation(config, options.examples))
        report = evaluate(policy, limit=options.examples, watch=watch)
    name = "-".join(part for part in (report.at, mark, other) if part)
    out = options.out or run_folder(options, config, path) / "evaluations" / name
    report.write(out)
    if options.json:
        print(report.json())
        return 0
    if report.lengths.too_long:
        print(printable(report.lengths))
    print(printable(report.table()))
    print(f"\nweights  {report.at}\nfolder   {out}")
    return 0
