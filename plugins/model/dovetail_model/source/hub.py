"""A model on the Hugging Face hub. Each file is downloaded when it is needed, and kept in the hub's own cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs

from dovetail.errors import ConfigError
from dovetail.extras import needs
from dovetail.run.sources import stands_for
from dovetail_model.huggingface.config import HuggingFaceConfig
from dovetail_model.huggingface.safetensors import INDEX, SINGLE, Readable, weight_map
from dovetail_model.source.folder import TEXTS, Folder
from dovetail_model.source.gguf.model import GgufModel, open_model

CONFIG: Final = "config.json"
MAIN: Final = "main"

_NAME: Final = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(?:/(?P<file>[^@]+\.gguf))?(?:@(?P<revision>[\w./-]+))?")
_LOOKED_UP: Final[dict[str, str]] = {}
"""The latest commit of each branch that this process has looked up."""


@attrs.frozen
class HubName:
    """A repository `OWNER/NAME`, one of its files or None, and a branch, tag or commit."""

    repo: str
    file: str | None
    revision: str

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Return the parts of a name, or None if it cannot be one.

        >>> HubName.parse("Qwen/Qwen2.5-0.5B-Instruct@main")
        HubName(repo='Qwen/Qwen2.5-0.5B-Instruct', file=None, revision='main')
        >>> HubName.parse("models/tiny/folder"), HubName.parse("../tiny")
        (None, None)
        """
        found = _NAME.fullmatch(text)
        return None if found is None else cls(found["repo"], found["file"], found["revision"] or MAIN)

    def __str__(self) -> str:
        file = "" if self.file is None else f"/{self.file}"
        return f"{self.repo}{file}" + ("" if self.revision == MAIN else f"@{self.revision}")


@attrs.frozen
class Hub:
    """A model on the hub; see `Source`. A resumed run uses the commit that it began with."""

    of: HubName
    settings: str = attrs.field(default="config.json", init=False)

    @property
    def name(self) -> str:
        """The name as given."""
        return str(self.of)

    def known(self) -> HuggingFaceConfig:
        """Return its `config.json`; nothing is downloaded for models that shipped configs name."""
        plain = self.of.file is None and self.of.revision == MAIN
        published = HuggingFaceConfig.known(self.of.repo.partition("/")[2]) if plain else None
        return published or self.config()

    def config(self) -> HuggingFaceConfig:
        """Return its `config.json`."""
        return self._files([CONFIG]).config()

    def tensors(self) -> Mapping[str, Readable]:
        """Return its tensors.

        Only the files that have them are downloaded: some repositories hold the weights in a second layout too.
        """
        files = self._files([CONFIG, SINGLE, INDEX])
        if isinstance(files, Folder) and (index := files.path / INDEX).is_file():
            files = self._files([CONFIG, INDEX, *sorted(set(weight_map(index).values()))])
        return files.tensors()

    def text(self, name: str) -> bytes | None:
        """Return a file's content."""
        return self._files([CONFIG, *TEXTS]).text(name)

    def copy_texts(self, to: Path) -> None:
        """Copy the files that do not depend on the weights."""
        self._files([CONFIG, *TEXTS]).copy_texts(to)

    def _files(self, patterns: Sequence[str]) -> Folder | GgufModel:
        if self.of.file is not None:
            return open_model(download(self.of, [self.of.file]) / self.of.file)
        return Folder(download(self.of, patterns))


def download(name: HubName, patterns: Sequence[str], kind: str = "model") -> Path:
    """Return the folder with a repository's files that match the patterns; files not in the cache are downloaded.

    Raises:
        ConfigError: if there is no such repository or revision, access must be requested, or there is no network and
            the files are not in the cache; the message says what to do.
    """
    known = f"{kind} {name.repo}@{name.revision}"
    # The name of a snapshot's folder in the cache is its commit.
    commit = stands_for(known, lambda: _LOOKED_UP.get(known) or _fetch(name, name.revision, tuple(patterns), kind).name)
    _LOOKED_UP[known] = commit
    return _fetch(name, commit, tuple(patterns), kind)


def commit_of(name: HubName, kind: str) -> str:
    """Return the commit that a name stands for.

    Raises:
        ConfigError: as in `download`.
    """
    # Nearly every repository has these two files; once they are cached, the commit is known offline.
    return download(name, [".gitattributes", "README.md"], kind).name


@lru_cache
def _fetch(name: HubName, revision: str, patterns: tuple[str, ...], kind: str) -> Path:
    library = hub_library()
    with _in_words(library, name, kind):
        folder = library.snapshot_download(
            name.repo, repo_type=kind, revision=revision, allow_patterns=list(patterns), library_name="dovetail"
        )
    return Path(folder)


@contextmanager
def _in_words(library: Any, name: HubName, kind: str) -> Iterator[None]:
    """Turn the hub's errors into one line that says what to do."""
    errors = library.errors
    what = "data set" if kind == "dataset" else kind
    try:
        yield
    except errors.GatedRepoError as error:
        raise ConfigError(
            f"{name}: access to this {what} must be asked for at {_page(library, name, kind)}; then log in with"
            " `hf auth login`, or set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"'{name}' is neither a folder here nor a {what} at {_page(library, name, kind)}; a private one needs"
            " `hf auth login` or HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"{name}: the {what} has no branch, tag or commit {name.revision!r}") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        why = "HF_HUB_OFFLINE is set" if library.constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        option = " --repo-type dataset" if kind == "dataset" else ""
        raise ConfigError(
            f"'{name}' is not a folder here nor in the cache '{library.constants.HF_HUB_CACHE}', and {why}. Where there"
            f" is a network, `hf download {name.repo}{option}` fills the cache, which may be copied; or name a folder"
        ) from error
    except (errors.HFValidationError, errors.HfHubHTTPError) as error:
        raise ConfigError(f"{name}: the hub refuses it: {' '.join(str(error).split())}") from error


def _page(library: Any, name: HubName, kind: str) -> str:
    return f"{library.constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name.repo}"


def hub_library() -> Any:
    """Return the `huggingface_hub` package.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise ConfigError(needs("the Hugging Face hub", "the huggingface_hub library", "hf")) from error
    return huggingface_hub
