"""Which policy is asked for, and with what settings it completes prompts: the same for commands and for Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from dovetail.errors import ConfigError, RunError

if TYPE_CHECKING:
    from dovetail.config import Config


@attrs.frozen(kw_only=True)
class Asked:
    """The policy of a config, of a run, or of a run under another config.

    Attributes:
        run: the run's folder; None: the weights are those that the config begins with.
        config: a gin file or the name of a shipped config; None: the run's, or `quickstart` without a run.
        settings: `key=value` strings that override it.
        trusted: whether the run's config may name programs to run and servers to call.
    """

    run: Path | None
    config: str | None
    settings: Sequence[str]
    trusted: bool

    def read(self, also: Sequence[str] = ()) -> tuple[Path, Config]:
        """Return the config and its file, under further settings.

        Raises:
            RunError: if the folder is not a run's, or the run needs a single-file plugin that is not loaded.
            ConfigError: with one line for each problem.
        """
        from dovetail.config import load
        from dovetail.run.folder import CONFIG
        from dovetail.shipped import find
        from dovetail_lab.of_run import load_of_run

        if self.run is not None and not (self.run / CONFIG).is_file():
            raise RunError(f"'{self.run}' is not a run folder: it holds no {CONFIG}")
        if self.run is not None and self.config is None:
            return self.run / CONFIG, load_of_run(self.run, [*self.settings, *also], trusted=self.trusted)
        path = find(self.config)
        return path, load(path, [*self.settings, *also])

    def to_generate(self, preset: str | None, here: Sequence[str] = ()) -> Config:
        """Return the config with which prompts are completed.

        Args:
            preset: the name of a sampling preset; its values replace those of the config.
            here: `key=value` strings, which replace the values of the preset too.

        Raises:
            DovetailError: as `read` and `with_preset`.
        """
        _, config = self.read(here)
        return with_preset(config, "sampling", preset, _keys(here))

    def to_evaluate(self, preset: str | None, here: Sequence[str] = ()) -> tuple[Path, Config]:
        """Return the config of an evaluation, and its file; the arguments are those of `to_generate`.

        Raises:
            ConfigError: if the preset is for samples, and the config asks for none; otherwise as `to_generate`.
        """
        path, config = self.read(here)
        config = with_preset(config, "eval", preset, _keys(here))
        if preset and config.eval.temperature and not config.eval.samples:
            raise ConfigError(
                f"preset '{preset}' is for samples beside the greedy completion, and eval.samples is 0; ask for some:"
                " -n NUMBER on the command line, samples=NUMBER in Python"
            )
        return path, config


def with_preset(
    config: Config, section: Literal["sampling", "eval"], name: str | None, kept: Collection[str] = ()
) -> Config:
    """Return a config whose `sampling` or `eval` section is overridden by the values of a preset.

    Args:
        config: the config.
        section: the section.
        name: the preset's name; None changes nothing.
        kept: keys, `sampling.temperature`, whose values in the config stay.

    Raises:
        UnknownNameError: if there is no such preset.
        ConfigError: if the preset has a value for a setting that the section does not have.
    """
    if name is None:
        return config
    preset = config.component("sampling_preset", name)
    settings = getattr(config, section)
    unknown = preset.params.keys() - attrs.fields_dict(type(settings)).keys()
    if unknown:
        raise ConfigError(f"{preset.component.label} gives '{min(unknown)}', which {section} has not")
    values = {each: value for each, value in preset.params.items() if f"{section}.{each}" not in kept}
    return attrs.evolve(config, sections={**config.sections, section: attrs.evolve(settings, **values)})


def at_least_one(name: str, number: int | None) -> None:
    """Refuse a number below 1.

    Raises:
        ConfigError: naming what it is a number of.
    """
    if number is not None and number < 1:
        raise ConfigError(f"{name} {number}: it must be at least 1")


def _keys(overrides: Sequence[str]) -> set[str]:
    return {override.partition("=")[0] for override in overrides}
