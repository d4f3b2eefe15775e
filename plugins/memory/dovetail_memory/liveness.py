"""Estimates the memory of a compiled function from its trace, without compiling or running it.

The operations of the trace are processed in order. A value is stored from the operation that computes it to the last
one that reads it, unless XLA would compute it inside the operations that read it:

* elementwise operations, slices and conversions are fused into their readers, but not where a product, a loop or the
  result needs the value itself; nor, except on GPUs, where several readers would repeat a costly operation or read
  several arrays again;
* equal operations on equal values are one, except in what is recomputed in the backward pass on purpose;
* an elementwise result takes the place of an operand of its size that nobody reads any more; so do the carried values
  of loops, and results in the place of donated arguments.

`docs/performance.md` compares the estimates with the memory that XLA allocates.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
from jax.extend import core

FRAGMENTS: Final = 1.04
"""The ratio of allocated to live memory, because buffers of different sizes and lifetimes share one block."""

VIEWS: Final = frozenset(
    (
        "reshape",
        "squeeze",
        "expand_dims",
        "bitcast_convert_type",
        "copy",
        "stop_gradient",
        "name",
        "optimization_barrier",
    )
)
REARRANGED: Final = VIEWS | {"transpose"}
MOVES: Final = frozenset(
    """transpose broadcast_in_dim iota convert_element_type slice dynamic_slice pad rev concatenate split
    reduce_precision random_wrap random_unwrap""".split()  # noqa: SIM905
)
CHEAP: Final = frozenset(
    """add add_any sub mul neg max min and or xor not eq ne lt le gt ge select_n abs sign is_finite integer_pow square
    clamp floor round population_count shift_left shift_right_logical shift_right_arithmetic""".split()  # noqa: SIM905
)
COSTLY: Final = frozenset(
    """exp exp2 log log1p expm1 tanh logistic sin cos tan rsqrt sqrt div rem pow erf erf_inv erfc
    atan2""".split()  # noqa: SIM905
)
FUSED: Final = VIEWS | MOVES | CHEAP | COSTLY
IN_PLACE: Final = FUSED | {"dynamic_update_slice", "scatter", "scatter-add"}
LOOPS: Final = frozenset(("scan", "while", "cond"))
KEPT_APART: Final = frozenset(("checkpoint", "remat", "remat2"))


@attrs.frozen
class Traced:
    """The predicted properties of a function's compiled program.

    Attributes:
        peak: peak bytes, including arguments and results.
        operations: number of operations, including those in the bodies of loops.
    """

    peak: int
    operations: int


def traced(function: Callable[..., Any], *shapes: Any, donated: int = 0, gathered: Sequence[int] = ()) -> Traced:
    """Trace a function.

    Args:
        function: the function to trace.
        shapes: its arguments, or their shapes.
        donated: number of leading arguments that are donated; the first results have their shapes.
        gathered: for each array of the arguments, the bytes by which it grows where products read it, because a device
            holds a part of it and collects the others.
    """
    found = jax.make_jaxpr(function)(*shapes)
    reused = len(jax.tree.leaves(shapes[:donated]))
    arguments = sum(_size(variable.aval) for variable in (*found.jaxpr.constvars, *found.jaxpr.invars))
    program = _Program.of(found.jaxpr, reused, gathered)
    return Traced(arguments + int(FRAGMENTS * program.peak()), program.count())


@attrs.define
class _Operation:
    """An equation: its operation, and the indices of the values that it reads (None for a constant) and computes.

    `carried` says how many of these, the first ones, may take the place of operands. `wanted` says which results of a
    conditional are read; the others are not computed, and are not among `makes`.
    """

    name: str
    reads: list[int | None]
    makes: list[int]
    carried: int
    params: Mapping[str, Any]
    key: Any
    wanted: tuple[bool, ...] = ()

    @property
    def is_filling(self) -> bool:
        """Whether the result repeats a constant, which is stored only where a loop changes it, for this loop alone."""
        return self.name == "broadcast_in_dim" and set(self.reads) == {None}


@attrs.define
class _Program:
    """A trace with inner calls inlined: operations, the sizes of values, and the inputs and outputs."""

    operations: list[_Operation]
    sizes: dict[int, int]
    inputs: set[int]
    outputs: list[int]
    gathered: dict[int, int]
    """The bytes by which inputs grow where they are read."""

    @classmethod
    def of(cls, jaxpr: Any, reused: int = 0, gathered: Sequence[int] = (), wanted: Sequence[bool] = ()) -> _Program:
        """Read a trace whose first `reused` results take the place of arguments; not `wanted` ones are left out."""
        reader = _Reader()
        constants, inputs = ([reader.number(each) for each in own] for own in (jaxpr.constvars, jaxpr.invars))
        numbers: dict[Any, int | None] = dict(
            zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *inputs), strict=True)
        )
        given = {*constants, *inputs}
        reader.read(jaxpr, numbers, apart=None)
        results = itertools.compress(jaxpr.outvars, wanted) if wanted else jaxpr.outvars
        found = [_look_up(numbers, atom) for atom in results]
        makers = {value: operation for operation in reader.operations for value in operation.makes}
        for result in found[:reused]:
            number = result
            while number is not None and number not in given:
                reader.sizes[number] = 0
                maker = makers.get(number)
                # a product is computed in the order of its transpose
                number = maker.reads[0] if maker and maker.name in REARRANGED else None
        outputs = [number for number in found if number is not None]
        grow = {number: size for number, size in zip(inputs, gathered, strict=False) if size}
        return cls(_merged(reader.operations, outputs), reader.sizes, given, outputs, grow)

    def peak(self) -> int:
        """Return the peak bytes in addition to the arguments."""
        fused = self._fused()
        roots = self._roots(fused)
        ends, read = self._ends(fused, roots)
        collected = self._collected(roots) if self.gathered else [0] * len(self.operations)
        alive: set[int] = set()
        now = highest = 0
        for time, operation in enumerate(self.operations):
            made = [value for value in operation.makes if value not in fused]
            if not made:
                continue
            dying = [value for value in ends[time] if value in alive]
            room = sum(self.sizes[value] for value in made) - self._reused(operation, made, dying)
            inside = _inside(operation, [self._growth(value, roots) for value in operation.reads])
            highest = max(highest, now + room + inside + collected[time])
            gone = {*dying, *(value for value in made if value not in read)}
            now += sum(self.sizes[value] for value in made) - sum(self.sizes[value] for value in gone)
            alive = (alive | set(made)) - gone
        return highest

    def count(self) -> int:
        """Return the number of operations."""
        return len(self.operations) + sum(_counted(body) for each in self.operations for body in _bodies(each))

    def _fused(self) -> set[int]:
        """Return the values that are never stored."""
        readers = defaultdict(list)
        for operation in self.operations:
            for value in operation.reads:
                if value is not None:
                    readers[value].append(operation)
        outputs = set(self.outputs)
        found = set()
        for operation in self.operations:
            if operation.name in FUSED:
                found |= {value for value in operation.makes if self._fits(operation, readers[value], value in outputs)}
        return found

    def _fits(self, operation: _Operation, readers: Sequence[_Operation], is_output: bool) -> bool:
        """Return whether a value is computed inside all of its readers."""
        if operation.name in VIEWS or operation.name == "iota":
            return True
        if is_output or any(not (reader.name in FUSED or reader.name.startswith("reduce_")) for reader in readers):
            return False
        if len(readers) < 2 or jax.default_backend() == "gpu":
            return True
        read_again = {value for value in operation.reads if value is not None and self.sizes[value] > 8}
        return operation.name not in COSTLY and len(read_again) < 2

    def _roots(self, fused: set[int]) -> dict[int, frozenset[int]]:
        """Return, for each value, the stored values from which it is computed; itself if it is stored."""
        roots = {value: frozenset([value]) for value in self.inputs}
        for operation in self.operations:
            below = [roots[value] for value in operation.reads if value is not None]
            for value in operation.makes:
                roots[value] = frozenset().union(*below) if value in fused else frozenset([value])
        return roots

    def _ends(self, fused: set[int], roots: Mapping[int, frozenset[int]]) -> tuple[dict[int, list[int]], set[int]]:
        """Return the values that each operation is the last to read, and the set of all values that are read."""
        last: dict[int, int] = {}
        for time, operation in enumerate(self.operations):
            if all(value in fused for value in operation.makes):
                continue
            for root in itertools.chain.from_iterable(roots[value] for value in operation.reads if value is not None):
                last[root] = time
        for value in self.outputs:
            last |= dict.fromkeys(roots[value], len(self.operations))
        ends: dict[int, list[int]] = defaultdict(list)
        for value, time in last.items():
            ends[time].append(value)
        return ends, set(last)

    def _growth(self, value: int | None, roots: Mapping[int, frozenset[int]]) -> int:
        """Return the bytes by which a value grows where it is read."""
        return 0 if value is None else sum(self.gathered.get(root, 0) for root in roots[value])

    def _collected(self, roots: Mapping[int, frozenset[int]]) -> list[int]:
        """Return the bytes at each operation of what has been collected from other devices.

        It is kept from the first to the last product that reads it, but collected again for what is computed again.
        Each device changes its own part of a parameter, and a loop collects what it reads itself.
        """
        spans: dict[tuple[int, Any], tuple[int, int]] = {}
        for time, operation in enumerate(self.operations):
            if operation.name in FUSED or operation.name in LOOPS:
                continue
            found = frozenset().union(*(roots[value] for value in operation.reads if value is not None))
            for root in found & self.gathered.keys():
                begin, _ = spans.get((root, operation.key[1]), (time, time))
                spans[root, operation.key[1]] = begin, time
        changes = [0] * (len(self.operations) + 1)
        for (root, _), (begin, end) in spans.items():
            changes[begin] += self.gathered[root]
            changes[end + 1] -= self.gathered[root]
        return list(itertools.accumulate(changes))[:-1]

    def _reused(self, operation: _Operation, made: Sequence[int], dying: Sequence[int]) -> int:
        """Return the bytes of results that take the place of operands."""
        free = sorted(self.sizes[value] for value in dying)
        total = 0
        for value in operation.makes[: operation.carried]:
            if value in made and self.sizes[value] in free:
                free.remove(self.sizes[value])
                total += self.sizes[value]
        return total


class _Reader:
    """Inlines inner calls and numbers the values."""

    def __init__(self) -> None:
        self.operations: list[_Operation] = []
        self.sizes: dict[int, int] = {}
        self._numbers = itertools.count()
        self._keys: dict[int, tuple[Any, Any]] = {}

    def number(self, variable: Any) -> int:
        """Return the number of a new value."""
        number = next(self._numbers)
        self.sizes[number] = _size(variable.aval)
        return number

    def read(self, jaxpr: Any, numbers: dict[Any, int | None], apart: int | None) -> None:
        """Read the equations; `apart` distinguishes deliberate recomputations from the first computation."""
        for equation in jaxpr.eqns:
            name, reads = equation.primitive.name, [_look_up(numbers, atom) for atom in equation.invars]
            inner = None if name in LOOPS else _inner(equation)
            if inner is None:
                makes = [self.number(variable) for variable in equation.outvars]
                numbers |= dict(zip(equation.outvars, makes, strict=True))
                key = (self._key(equation), apart)
                self.operations.append(_Operation(name, reads, makes, _carried(equation), equation.params, key))
                continue
            below: dict[Any, int | None] = dict(zip(inner.invars, reads, strict=True))
            below |= {variable: self.number(variable) for variable in inner.constvars}
            # on CPUs XLA removes the barrier before recomputations
            own = len(self.operations) if name in KEPT_APART and jax.default_backend() != "cpu" else apart
            self.read(inner, below, own)
            numbers |= {
                variable: _look_up(below, atom) for variable, atom in zip(equation.outvars, inner.outvars, strict=True)
            }

    def _key(self, equation: Any) -> Any:
        """Return a key that is equal for equations that compute the same function; layers share their equations."""
        if id(equation) not in self._keys:
            constants = tuple(str(atom.val) for atom in equation.invars if isinstance(atom, core.Literal))
            # the equation is kept alive so that its id is not reused
            self._keys[id(equation)] = equation, (equation.primitive.name, constants, str(equation.params))
        return self._keys[id(equation)][1]


def _look_up(numbers: Mapping[Any, int | None], atom: Any) -> int | None:
    return None if isinstance(atom, core.Literal) else numbers[atom]


def _carried(equation: Any) -> int:
    """Return how many results may take the place of operands; what a scan stacks has one more axis than in its body."""
    name, results = equation.primitive.name, equation.outvars
    if name == "scan":
        bodies = zip(equation.params["jaxpr"].jaxpr.outvars, results, strict=True)
        return sum(len(one.aval.shape) == len(whole.aval.shape) for one, whole in bodies)
    return len(results) if name in IN_PLACE or name == "while" else 0


def _inner(equation: Any) -> Any:
    """Return the trace that an equation calls with its operands, if it is such a call."""
    found = [
        getattr(value, "jaxpr", value)
        for value in equation.params.values()
        if isinstance(value, core.Jaxpr | core.ClosedJaxpr)
    ]
    fitting = [jaxpr for jaxpr in found if len(jaxpr.invars) == len(equation.invars)]
    return fitting[0] if len(fitting) == 1 and len(fitting[0].outvars) == len(equation.outvars) else None


def _merged(operations: Sequence[_Operation], outputs: list[int]) -> list[_Operation]:
    """Merge equal operations (updating `outputs` in place) and remove unused ones."""
    instead: dict[int, int] = {}
    known: dict[Any, list[int]] = {}
    left = []
    for operation in operations:
        operation.reads = [instead.get(value, value) if value is not None else None for value in operation.reads]
        key = (operation.key, tuple(operation.reads))
        if operation.name not in LOOPS and not operation.is_filling and key in known:
            instead |= dict(zip(operation.makes, known[key], strict=True))
            continue
        known[key] = operation.makes
        left.append(operation)
    outputs[:] = [instead.get(value, value) for value in outputs]
    needed, found = set(outputs), []
    for operation in reversed(left):
        if needed & set(operation.makes):
            if operation.name == "cond":
                operation.wanted = tuple(value in needed for value in operation.makes)
                operation.makes = [value for value in operation.makes if value in needed]
            needed |= {value for value in operation.reads if value is not None}
            found.append(operation)
    return found[::-1]


def _inside(operation: _Operation, growth: Sequence[int]) -> int:
    """Return the bytes that a loop's body, or a conditional's larger branch, needs besides its inputs and outputs.

    Args:
        operation: any operation.
        growth: the bytes by which each value that it reads grows where the body reads it.
    """
    own = growth[_first_of_body(operation) :]
    bodies, grown = _bodies(operation), tuple(own) if any(own) else ()
    return max((_held(body, grown, operation.wanted) for body in bodies), default=0)


def _first_of_body(operation: _Operation) -> int:
    """Return the index of the first operand of a loop or a conditional that its bodies get."""
    return {"cond": 1, "while": operation.params.get("cond_nconsts", 0)}.get(operation.name, 0)


def _bodies(operation: _Operation) -> Sequence[Any]:
    """Return the traces that a loop or a conditional runs."""
    if operation.name not in LOOPS:
        return ()
    names = {"scan": "jaxpr", "while": "body_jaxpr", "cond": "branches"}
    found = operation.params[names[operation.name]]
    return [body.jaxpr for body in (found if operation.name == "cond" else (found,))]


@functools.lru_cache(maxsize=1024)
def _counted(body: Any) -> int:
    return _Program.of(body).count()


@functools.lru_cache(maxsize=1024)
def _held(body: Any, gathered: tuple[int, ...], wanted: tuple[bool, ...]) -> int:
    """Return the bytes that a body needs besides its inputs and outputs; layers share their bodies.

    Its results are written where those of the loop are, so that they take no room of their own at any moment.
    """
    return _Program.of(body, len(body.outvars), gathered, wanted).peak()


def _size(shape: Any) -> int:
    """Return the bytes of a value; a key counts as two numbers."""
    if not hasattr(shape, "shape"):
        return 0
    is_key = jnp.issubdtype(shape.dtype, jax.dtypes.extended)
    return math.prod(shape.shape) * (8 if is_key else shape.dtype.itemsize)
