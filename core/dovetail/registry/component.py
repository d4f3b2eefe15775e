"""A component: a plain function or attrs class, identified by (kind, name), whose signature is its interface.

The whole contract of a plugin author is:

* **positional parameters name the inputs that it reads** (batch fields or, for rewards, dataset columns);
* **keyword-only parameters are its hyperparameters**, with defaults and annotations.

The same holds for a class: its keyword-only attrs fields are the hyperparameters, and the positional parameters of its
`__call__`, if it has one, are the inputs.
"""

from __future__ import annotations

import importlib
import inspect
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import attrs

from dovetail.errors import DISK, DovetailError, DovetailWarning, PluginError, nearest
from dovetail.kinds.kind import Around
from dovetail.ranges import bounds, plain, union_of
from dovetail.registry.declares import misspelt
from dovetail.registry.places import first_line, missing_in, place_of, raised_at, raised_in
from dovetail.registry.renamed import Renamed
from dovetail.registry.undisturbed import said_of, undisturbed


class _Static:
    """Marks a hyperparameter that must be a compile-time constant."""

    def __repr__(self) -> str:
        return "dovetail.STATIC"


STATIC: typing.Final = _Static()
"""`Annotated[float, dovetail.STATIC]` marks a float hyperparameter that must not be traced, such as one that determines
a shape."""


@attrs.frozen
class Chooses:
    """Marks a hyperparameter that names another component or none; the instance is passed in place of the name.

        inner: Annotated[Any, dovetail.Chooses("rollout")] = "dovetail/vanilla"

    In a config, `rollout.mine.inner = 'vllm'` chooses the inner component, and `rollout.vllm.gpu_memory = 0.5` sets one
    of its parameters.
    """

    kind: str


class _Required:
    """Stands for the default of a hyperparameter that has none."""

    def __repr__(self) -> str:
        return "(required)"


REQUIRED: typing.Final = _Required()


@attrs.frozen
class Origin:
    """Where a component comes from: the distribution that registers it, its version, and the module that defines it."""

    distribution: str
    version: str
    module: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"


@attrs.frozen
class Interface:
    """The contents of a signature: the inputs read, the hyperparameters with their defaults, and their annotations.

    `static` holds the names of the hyperparameters that are compile-time constants.
    """

    reads: tuple[str, ...]
    params: dict[str, Any]
    hints: dict[str, Any]
    static: frozenset[str]


@attrs.define(eq=False)
class Component:
    """A named, replaceable part of an algorithm, imported on first use.

    Calling it calls the function, or instantiates the class, with the same arguments.
    """

    kind: str
    name: str
    target: str | Callable[..., Any]
    origin: Origin
    aliases: tuple[str, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    common: Mapping[str, Any] = attrs.field(factory=dict)
    """Hyperparameters that every component of the kind has, with their defaults. Only the engine uses them; they are
    not passed to `target`."""
    _loaded: dict[str, Any] = attrs.field(factory=dict, init=False, repr=False)

    @property
    def label(self) -> str:
        """`kind.name`, as a configuration writes it."""
        return f"{self.kind}.{self.name}"

    @property
    def qualified_name(self) -> str:
        """`distribution/name`, which is never ambiguous."""
        return f"{self.origin.distribution}/{self.name}"

    @property
    def spelled(self) -> str:
        """The name as a resolved config writes it: with its owner, except for built-in components."""
        return self.name if self.origin.distribution == "dovetail" else self.qualified_name

    @property
    def old_names(self) -> dict[str, Renamed]:
        """Former names of the component, with their `Renamed`."""
        return {each.old: each for each in self.renamed if each.to is None}

    @property
    def old_params(self) -> dict[str, Renamed]:
        """Former names of its hyperparameters, with their `Renamed`."""
        return {each.old: each for each in self.renamed if each.to is not None}

    @property
    def place(self) -> str:
        """` [file:line]` of the function or class; empty if it is unknown."""
        return place_of(self.load())

    def load(self) -> Callable[..., Any]:
        """Import and return the function or class.

        Raises:
            PluginError: if the import fails, the signature breaks the contract, or a claim is misspelt; the message
                names the distribution.
        """
        if "object" not in self._loaded:
            target = self.target if callable(self.target) else self._import(self.target)
            owner = f"{self.label} of {self.origin}"
            self._loaded["interface"] = _with_common(read_interface(target, owner), self.common, owner)
            if wrong := misspelt(getattr(target, "declares", {})):
                raise PluginError(f"{owner} {wrong}{place_of(target)}")
            self._loaded["object"] = target
        return self._loaded["object"]

    def _import(self, path: str) -> Callable[..., Any]:
        # First, since jaxlib ends the process if an interrupt comes while it imports numpy itself.
        importlib.import_module("numpy")
        module, _, attribute = path.partition(":")
        try:
            with undisturbed() as did:
                target = getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:
            near = nearest(error.name or "", dir(error.obj)) if isinstance(error, AttributeError) else ""
            raise PluginError(
                f"{self.label} of {self.origin.distribution} {self.origin.version} cannot be imported from"
                f" '{path}': {type(error).__name__}: {error}{near and '.'}{near}{raised_at(error) or missing_in(path)}"
            ) from error
        # the environment is not looked at: libraries such as torch set variables of their own
        if said := said_of(did):
            warnings.warn(f"{self.label} of {self.origin}: {said}", DovetailWarning, stacklevel=3)
        if not callable(target):
            raise PluginError(
                f"{self.label} of {self.origin}: '{path}' is neither a function nor a class; register"
                " 'module:attribute' of one"
            )
        return target

    @property
    def interface(self) -> Interface:
        """The signature, read once."""
        self.load()
        return self._loaded["interface"]

    @property
    def reads(self) -> tuple[str, ...]:
        """The inputs it reads, in order."""
        return self.interface.reads

    @property
    def params(self) -> MappingProxyType[str, Any]:
        """Hyperparameters and their defaults; `REQUIRED` for one without a default."""
        return MappingProxyType(self.interface.params)

    @property
    def hints(self) -> MappingProxyType[str, Any]:
        """Annotations of the hyperparameters, including their ranges."""
        return MappingProxyType(self.interface.hints)

    @property
    def static(self) -> frozenset[str]:
        """Hyperparameters that are compile-time constants: marked `STATIC`, or of a type other than float."""
        return self.interface.static

    @property
    def chooses(self) -> dict[str, str]:
        """The hyperparameters that name a component, each with the kind of that component."""
        marked = {name: getattr(hint, "__metadata__", ()) for name, hint in self.hints.items()}
        return {name: mark.kind for name, marks in marked.items() for mark in marks if isinstance(mark, Chooses)}

    @property
    def declares(self) -> MappingProxyType[str, Any]:
        """Its claims (`unbiased_value`, ...): the attribute `declares` of its function or class, empty by default."""
        return MappingProxyType(getattr(self.load(), "declares", {}))

    @property
    def doc(self) -> str:
        """The docstring, without indentation."""
        return inspect.getdoc(self.load()) or ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.doc.split("\n", 1)[0]

    def bind(self, **params: Any) -> Any:
        """Return what the engine uses: the function, or an instance of the class, with its hyperparameters set."""
        target = self.load()
        own = {name: value for name, value in params.items() if name not in self.common}
        built = _Bound(target, own) if not isinstance(target, type) else target(**own)
        for name, value in self.common.items():
            if isinstance(value, Around) and params.get(name) is not None:
                built = params[name].around(self, built)
        return built

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or instantiate the class, with the same arguments."""
        return self.load()(*args, **kwargs)

    @contextmanager
    def named(self, method: str = "") -> Iterator[None]:
        """Attribute what is raised in this context to the component.

        Raises:
            PluginError: in place of any other error but those of the disk, with the component's owner and its own line;
                if none of its lines was reached, with that of the method which was called.
        """
        try:
            yield
        except DovetailError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, OSError) and error.errno in DISK:
                raise
            where = raised_in(self.load(), error) or self._place_of(method)
            raise PluginError(f"{self.label} of {self.origin} raised {first_line(error)}{where}") from error

    def wrong(self, how: str, method: str = "") -> PluginError:
        """Return the error that says what is wrong with its result, and where it, or a method of it, is defined."""
        return PluginError(f"{self.label} of {self.origin} {how}{self._place_of(method)}")

    def _place_of(self, method: str) -> str:
        target = self.load()
        return place_of(getattr(target, method, target) if method else target)


@attrs.frozen
class _Bound:
    """Like `functools.partial`, but a hyperparameter passed twice is an error instead of an override."""

    function: Callable[..., Any]
    params: dict[str, Any]

    def __call__(self, *fields: Any, **kwargs: Any) -> Any:
        return self.function(*fields, **kwargs, **self.params)


def read_interface(target: Callable[..., Any], owner: str) -> Interface:
    """Read the interface of a function or an attrs class from its signature.

    Args:
        target: the function or class.
        owner: what error messages call it, such as `policy_loss.mine of acme-rl 1.0`.

    Raises:
        PluginError: on `*args`, `**kwargs`, a positional parameter with a default, a class that is not a frozen attrs
            class, a class with positional fields, or an annotation that cannot be evaluated or checked; the message
            names `owner` and the file.
    """
    reader = _ClassReader if inspect.isclass(target) else _FunctionReader
    return reader(target, owner).read()


def _with_common(interface: Interface, common: Mapping[str, Any], owner: str) -> Interface:
    """Add the hyperparameters that all components of a kind have."""
    taken = [name for name in common if name in interface.params]
    if taken:
        raise PluginError(f"{owner} has a parameter '{taken[0]}', which the engine gives every component of its kind")
    around = {name: value.kind for name, value in common.items() if isinstance(value, Around)}
    chosen = {name: typing.Annotated[typing.Any, Chooses(kind)] for name, kind in around.items()}
    hints = {name: type(value) for name, value in common.items()} | chosen
    return Interface(
        reads=interface.reads,
        params=interface.params | dict(common) | dict.fromkeys(around),
        hints=interface.hints | hints,
        static=interface.static | {name for name, hint in hints.items() if hint is not float},
    )


def has_float(hint: Any) -> bool:
    """Tell whether an annotation admits a float at its top level (`float`, `float | None`, with a range or not)."""
    return plain(hint) is float or any(has_float(option) for option in union_of(plain(hint)) if option is not hint)


@attrs.frozen
class _FunctionReader:
    target: Callable[..., Any]
    owner: str

    def read(self) -> Interface:
        """Read a function's parameters."""
        reads = []
        keyword_only = {}
        for parameter in inspect.signature(self.target).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self._broken(
                    f"has '{parameter}'; name every field and hyperparameter, so that the planner can read them"
                )
            if parameter.kind is parameter.KEYWORD_ONLY:
                keyword_only[parameter.name] = parameter.default
            elif parameter.default is not parameter.empty:
                raise self._broken(
                    f"gives the positional parameter '{parameter.name}' a default; positional parameters are given in"
                    " every call: put '*' before hyperparameters, and in a tool annotate what a model may leave out"
                    " with '| None'"
                )
            else:
                reads.append(parameter.name)
        params = {
            name: REQUIRED if default is inspect.Parameter.empty else default for name, default in keyword_only.items()
        }
        return self._interface(tuple(reads), params, self.target)

    def _interface(self, reads: tuple[str, ...], params: dict[str, Any], annotated: Any) -> Interface:
        try:
            annotations = typing.get_type_hints(annotated, include_extras=True)
        except Exception as error:
            raise self._broken(
                f"has an annotation that cannot be evaluated: {error}; import what it names at run time, not under"
                " TYPE_CHECKING"
            ) from error
        hints = {name: annotations.get(name, Any) for name in params}
        for name, hint in hints.items():
            try:
                _check_ranges(hint)
            except TypeError as error:
                raise self._broken(f"has a constraint on '{name}' that cannot be checked: {error}") from error
        static = frozenset(name for name, hint in hints.items() if _is_static(hint))
        return Interface(reads=reads, params=params, hints=hints, static=static)

    def _broken(self, what: str) -> PluginError:
        return PluginError(f"{self.owner} {what}{place_of(self.target)}")


@attrs.frozen
class _Frozen:
    """An arbitrary frozen class: attrs gives all of them the same `__setattr__`."""


@attrs.frozen
class _ClassReader(_FunctionReader):
    def read(self) -> Interface:
        """Read a class's fields, and the positional parameters of its `__call__`."""
        cls = typing.cast("type[Any]", self.target)
        if not attrs.has(cls):
            raise self._broken("is a class without attrs; a stateful component is a frozen, keyword-only attrs class")
        # The config id identifies a run only if no hyperparameter can change after the config is read.
        if cls.__setattr__ is not _Frozen.__setattr__:
            raise self._broken("is an attrs class that is not frozen; write @attrs.frozen(kw_only=True)")
        fields = [field for field in attrs.fields(cls) if field.init]
        positional = [field.name for field in fields if not field.kw_only]
        if positional:
            raise self._broken(f"has positional fields {positional}; write @attrs.frozen(kw_only=True)")
        params = {field.alias: self._default(field) for field in fields}
        return self._interface(self._called_with(cls), params, cls)

    def _called_with(self, cls: type[Any]) -> tuple[str, ...]:
        """Return the inputs that `__call__` reads; none if neither the class nor a base defines it."""
        # Without a `__call__` of its own, `cls.__call__` is the metaclass's, which instantiates the class.
        methods = (vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base))
        method = next(methods, None)
        if method is None:
            return ()
        call = _FunctionReader(method, self.owner).read()
        if call.params:
            raise self._broken(f"has keyword-only parameters {sorted(call.params)} in __call__; make them attrs fields")
        return call.reads[1:]

    def _default(self, field: attrs.Attribute[Any]) -> Any:
        if field.default is attrs.NOTHING:
            return REQUIRED
        if not isinstance(field.default, attrs.Factory):  # pyright: ignore[reportArgumentType]
            return field.default
        factory = typing.cast("Any", field.default)
        if factory.takes_self:
            raise self._broken(
                f"computes the default of '{field.name}' from other fields; a config could not spell it out, so use"
                " None and compute it where it is needed"
            )
        return factory.factory()


def _is_static(hint: Any) -> bool:
    marked = typing.get_origin(hint) is typing.Annotated and STATIC in hint.__metadata__
    return marked or not has_float(hint)


def _check_ranges(hint: Any) -> None:
    """Refuse an annotation that contains, at any depth, a constraint that would not be checked."""
    bounds(hint)
    for inner in typing.get_args(hint):
        _check_ranges(inner)
