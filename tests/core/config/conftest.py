"""A small registry of its own, so that these tests hold whatever the built-in plugins are."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
from annotated_types import Interval

from dovetail.builtin import SECTIONS
from dovetail.config import Config, load
from dovetail.config.schema import fields_of, schema
from dovetail.errors import ConfigError
from dovetail.kinds import KINDS, Kind
from dovetail.registry import STATIC, Origin, Registry, Section
from dovetail.registry.contract import methods_of

DOVETAIL = Origin("dovetail", "0.1.0", "tests")


def stub(mask: Any) -> Any:
    return mask


def method(self: Any, *given: Any, **named: Any) -> Any:
    return self, given, named


def idle() -> Any:
    return None


def stub_of(kind: Kind) -> Any:
    """Return a function, or a class where a function alone would lack the methods of a protocol."""
    if kind.offers:
        return idle
    protocol = kind.load_protocol()
    names = methods_of(protocol) if protocol else {}
    if "__call__" in names or not names:
        return stub
    members = {name: () if isinstance(names[name], property) else method for name in names}
    constant = {"declares": {"constant": True}} if kind.name.endswith("_controller") else {}  # a zero stays zero
    return attrs.frozen(type("Stub", (), members | constant))


def grpo(logps: Any, mask: Any, *, epsilon_low: float = 0.2, epsilon_high: float = 0.2) -> Any:
    return logps, mask, epsilon_low, epsilon_high


def gspo(logps: Any, mask: Any, *, epsilon_low: float = 3e-4, epsilon_high: float = 4e-4) -> Any:
    return logps, mask, epsilon_low, epsilon_high


def ppo_value(values: Any, *, clip: float | None = 0.2, half: bool = True) -> Any:
    return values, clip, half


def low_var(logps: Any, ref_logps: Any, *, clamp: float = 10) -> Any:
    return logps, ref_logps, clamp


def adamw(
    lr: Any,
    *,
    b1: Annotated[float, Interval(ge=0, lt=1)] = 0.9,
    b2: float = 0.999,
    k: int = 1,
    decay: Annotated[float, STATIC] = 0.0,
) -> Any:
    return lr, b1, b2, k, decay


def assorted(
    completion: Any,
    *,
    number: float = -1.5,
    limit: float = float("inf"),
    count: int = 0,
    flag: bool = False,
    text: str = "",
    choice: Literal["a", "b"] = "a",
    pair: tuple[int, str] = (1, "x"),
    floats: tuple[float, ...] = (),
    nested: list[tuple[float | None, dict[str, int]]] = [],  # noqa: B006 - a default that nobody changes
    table: dict[str, float] = {},  # noqa: B006
    anything: Any = None,
) -> Any:
    return completion, number, limit, count, flag, text, choice, pair, floats, nested, table, anything


@attrs.frozen(kw_only=True)
class Jsonl:
    """A task with a parameter that has no default, and one with a range."""

    path: str
    limit: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def examples(self, split: str) -> list[Any]:
        return []

    def corpus(self) -> list[str]:
        return []


def probe(logits: Any, *, chunk: int = 64) -> Any:
    return logits, chunk


def logps(logits: Any, tokens: Any) -> Any:
    return logits, tokens


def nll(logps: Any, mask: Any, *, margin: float = 0.0) -> Any:
    return logps, mask, margin


def follow(weights: Any, policy: Any, *, decay: Annotated[float, Interval(ge=0, le=1)] = 0.99) -> Any:
    return weights, policy, decay


SPECIFIC: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("policy_loss", "grpo", grpo, ()),
    ("policy_loss", "gspo", gspo, ()),
    ("policy_loss", "dr_grpo", stub, ()),
    ("value_loss", "ppo", ppo_value, ()),
    ("kl", "low_var", low_var, ("k3",)),
    ("optimizer", "adamw", adamw, ()),
    ("optimizer", "sgd", stub, ()),
    ("reward", "assorted", assorted, ()),
    ("reward", "length", stub, ()),
    ("task", "jsonl", Jsonl, ()),
    ("field", "probe", probe, ()),
    ("field", "logps", logps, ()),
    ("loss_term", "nll", nll, ()),
    ("follower", "ema", follow, ()),
]


@pytest.fixture
def bare() -> Registry:
    """The engine's kinds and sections, without any component."""
    made = Registry()
    for kind in KINDS:
        made.add_kind(kind, DOVETAIL)
    for name, (settings, purpose) in SECTIONS.items():
        made.add_section(
            Section(name=name, target=f"dovetail.config.settings:{settings}", purpose=purpose, origin=DOVETAIL)
        )
    return made


@pytest.fixture
def registry(bare: Registry) -> Registry:
    """The components above, and a stub for every other default of the settings."""
    made = bare
    for kind, name, target, aliases in SPECIFIC:
        made.add(kind, name, target, origin=DOVETAIL, aliases=aliases)
    for cls in schema(made).sections.values():
        for _, field in fields_of(cls).values():
            default = (field.default,) if isinstance(field.default, str) else field.default
            for name in default or () if "kind" in field.metadata else ():
                if not made.has(field.metadata["kind"], name):
                    kind = field.metadata["kind"]
                    made.add(kind, name, stub_of(made.kinds[kind]), origin=DOVETAIL)
    return made


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write gin files into the working directory, and return the path of the last one."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "x.gin") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def load_text(write: Callable[..., Path], registry: Registry) -> Callable[..., Config]:
    """Write a gin file, and load it with overrides."""
    return lambda text, *overrides: load(write(text), overrides, registry=registry)


@pytest.fixture
def complaints(load_text: Callable[..., Config]) -> Callable[..., list[str]]:
    """Load a broken gin text, and return the lines of the error."""

    def collect(text: str, *overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, *overrides)
        return str(caught.value).splitlines()

    return collect
