"""Configuration: gin files, treated as data and checked completely when they are read."""

from dovetail.config.dump import Entry, dump, explain_origin
from dovetail.config.ids import config_id, run_id, versions
from dovetail.config.resolve import load, load_experiment
from dovetail.config.resolved import Choice, Config, Unused, floats, in_few_lines, statics
from dovetail.config.settings import Critic, Eval, Run, Sampling, Sft, Train, chosen

__all__ = [
    "Choice",
    "Config",
    "Critic",
    "Entry",
    "Eval",
    "Run",
    "Sampling",
    "Sft",
    "Train",
    "Unused",
    "chosen",
    "config_id",
    "dump",
    "explain_origin",
    "floats",
    "in_few_lines",
    "load",
    "load_experiment",
    "run_id",
    "statics",
    "versions",
]
