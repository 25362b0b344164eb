"""The functions of CESQL, and how more are added.

A function is identified by its name and its number of arguments. The arguments are already cast to the types
of its parameters. The function returns a value of its declared type, or raises `Failed` with the value to
return in addition to the error. IS_INT and IS_BOOL are extensions of Knative.

Spec: CESQL 3.5, and 3.7 for the casts INT, BOOL, STRING.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from knative_gateway.filters.cesql.casts import as_boolean, as_integer, as_string, type_of
from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import Type
from knative_gateway.filters.refusal import ErrorKind, Failed, Primitive
from knative_gateway.filters.work import TEXT_MAX

# The White_Space characters of the Unicode database. str.strip() without an argument would also remove the
# control characters U+001C to U+001F.
_WHITESPACE: Final = (
    "\t\n\v\f\r"
    " \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class Function:
    """One definition of a function.

    `parameters` are the fixed parameters. `variadic` is the type of any number of further arguments, or None.
    `name` is in upper case and consists of letters and `_`. `run` is called with one value for each argument.
    """

    name: str
    parameters: tuple[Type, ...]
    returns: Type
    run: Callable[..., Primitive]
    variadic: Type | None = None

    def types(self, count: int) -> tuple[Type, ...]:
        """Return the types of `count` arguments."""
        more = count - len(self.parameters)
        return self.parameters if self.variadic is None else self.parameters + (self.variadic,) * more


class Functions:
    """A set of definitions in which each call has at most one meaning."""

    __slots__ = ("_fixed", "_variadic")

    def __init__(self, definitions: Iterable[Function]) -> None:
        """Create a set.

        Raises:
          ValueError: two definitions conflict: they have the same name and number of arguments, or a variadic
          one
            does not have more fixed parameters than all others of its name (CESQL 3.5).
        """
        self._fixed: Final[dict[tuple[str, int], Function]] = {}
        self._variadic: Final[dict[str, Function]] = {}
        longest: dict[str, int] = {}
        for definition in definitions:
            name, count = definition.name, len(definition.parameters)
            if definition.variadic is not None:
                taken = name in self._variadic
                self._variadic[name] = definition
            else:
                taken = (name, count) in self._fixed
                self._fixed[name, count] = definition
                longest[name] = max(longest.get(name, count), count)
            if taken:
                raise ValueError(f"two definitions of {name} have the same parameters")
        for name, definition in self._variadic.items():
            if name in longest and len(definition.parameters) <= longest[name]:
                raise ValueError(
                    f"the variadic definition of {name} conflicts with the one with {longest[name]}"
                    " parameters"
                )

    def find(self, name: str, count: int) -> Function | None:
        """Return the definition for a call with `count` arguments, or None."""
        definition = self._fixed.get((name, count))
        if definition is None:
            definition = self._variadic.get(name)
            if definition is not None and count < len(definition.parameters):
                return None
        return definition

    def more(self, definitions: Iterable[Function]) -> "Functions":
        """Return these functions and further ones, as a new set.

        Raises:
            ValueError: two definitions match the same call.
        """
        return Functions([*self._fixed.values(), *self._variadic.values(), *definitions])


def _length(text: str) -> int:
    return len(text)


def _concat(*texts: str) -> str:
    return _joined("", texts)


def _concat_with(delimiter: str, *texts: str) -> str:
    return _joined(delimiter, texts)


def _joined(delimiter: str, texts: tuple[str, ...]) -> str:
    """The length is checked before the text is built: an expression may repeat a long attribute
    many times.
    """
    length = sum(map(len, texts)) + len(delimiter) * max(0, len(texts) - 1)
    if length > TEXT_MAX:
        raise Failed(
            ErrorKind.FUNCTION_EVALUATION,
            f"a text of {length} characters is longer than the maximum, {TEXT_MAX}",
            "",
        )
    return delimiter.join(texts)


def _lower(text: str) -> str:
    return text.lower()


def _upper(text: str) -> str:
    return text.upper()


def _trim(text: str) -> str:
    return text.strip(_WHITESPACE)


def _left(text: str, count: int) -> str:
    if count < 0:
        raise Failed(ErrorKind.FUNCTION_EVALUATION, f"LEFT of {count} characters", text)
    return text[:count]


def _right(text: str, count: int) -> str:
    if count < 0:
        raise Failed(ErrorKind.FUNCTION_EVALUATION, f"RIGHT of {count} characters", text)
    return text[max(0, len(text) - count) :]


def _substring(text: str, position: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise Failed(ErrorKind.FUNCTION_EVALUATION, f"SUBSTRING of {length} characters", "")
    if position == 0:
        return ""
    if not -len(text) <= position <= len(text):
        raise Failed(
            ErrorKind.FUNCTION_EVALUATION, f"SUBSTRING from {position} of {len(text)} characters", ""
        )
    start = position - 1 if position > 0 else len(text) + position
    return text[start:] if length is None else text[start : start + length]


def _absolute(value: int) -> int:
    if value == INTEGER_MIN:
        raise Failed(ErrorKind.MATH, f"ABS of {value} does not fit 32 bits", INTEGER_MAX)
    return abs(value)


def _is_integer(value: Primitive) -> bool:
    return _casts(as_integer, value)


def _is_boolean(value: Primitive) -> bool:
    return _casts(as_boolean, value)


def _casts(cast: Callable[[Primitive], Primitive], value: Primitive) -> bool:
    try:
        cast(value)
    except Failed:
        return False
    return True


_TEXT: Final = (Type.STRING,)
BUILT_IN: Final = Functions(
    (
        Function("LENGTH", _TEXT, Type.INTEGER, _length),
        Function("CONCAT", (), Type.STRING, _concat, Type.STRING),
        Function("CONCAT_WS", _TEXT, Type.STRING, _concat_with, Type.STRING),
        Function("LOWER", _TEXT, Type.STRING, _lower),
        Function("UPPER", _TEXT, Type.STRING, _upper),
        Function("TRIM", _TEXT, Type.STRING, _trim),
        Function("LEFT", (Type.STRING, Type.INTEGER), Type.STRING, _left),
        Function("RIGHT", (Type.STRING, Type.INTEGER), Type.STRING, _right),
        Function("SUBSTRING", (Type.STRING, Type.INTEGER), Type.STRING, _substring),
        Function("SUBSTRING", (Type.STRING, Type.INTEGER, Type.INTEGER), Type.STRING, _substring),
        Function("ABS", (Type.INTEGER,), Type.INTEGER, _absolute),
        Function("INT", (Type.ANY,), Type.INTEGER, as_integer),
        Function("BOOL", (Type.ANY,), Type.BOOLEAN, as_boolean),
        Function("STRING", (Type.ANY,), Type.STRING, as_string),
        Function("IS_INT", (Type.ANY,), Type.BOOLEAN, _is_integer),
        Function("IS_BOOL", (Type.ANY,), Type.BOOLEAN, _is_boolean),
    )
)


def checked(function: Function) -> Callable[..., Primitive]:
    """Return the callable of a function. The result type of functions that are not built in is checked at
    each call.

    Spec: CESQL 3.5.3.
    """
    if BUILT_IN.find(function.name, len(function.parameters)) is function:
        return function.run

    def run(*values: Primitive) -> Primitive:
        result = function.run(*values)
        if function.returns is not Type.ANY and (
            not isinstance(result, str | int) or type_of(result) is not function.returns
        ):
            raise Failed(
                ErrorKind.FUNCTION_EVALUATION,
                f"{function.name} did not return a value of type {function.returns.value}",
                function.returns.zero,
            )
        return result

    return run
