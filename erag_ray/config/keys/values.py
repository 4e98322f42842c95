"""Types of keys, and the base of all configs: values of YAML, a command line or Python checked by pydantic.

A scalar of YAML or of a command line comes as `Written`, so that its key decides what it is: a run called ``no``,
``1.1`` or ``2024-01-01`` keeps its name. A Python text is never a number.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import pydantic.dataclasses
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from erag_ray.config.keys.messages import KeysError, Problem, problems_of
from erag_ray.config.keys.names import UNUSED, below, field_hints
from erag_ray.config.keys.scalars import as_any, as_flag, as_number, as_text, as_whole, expanded
from erag_ray.support.logs import warn

Config = TypeVar("Config")
# built when a job is checked: a help needs none
CONFIG = pydantic.ConfigDict(extra="forbid", defer_build=True)
Text = Annotated[str, BeforeValidator(as_text), Field(strict=True)]
EXPANDED = AfterValidator(expanded)
Path = Annotated[Text, EXPANDED]
"""A path or URI, in which ``$NAME`` and ``~`` are replaced."""
Whole = Annotated[int, BeforeValidator(as_whole), Field(strict=True)]
Number = Annotated[float, BeforeValidator(as_number), Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(as_flag), Field(strict=True)]
Anything = Annotated[Any, BeforeValidator(as_any)]
AtLeast0 = Annotated[Whole, Field(ge=0)]
AtLeast1 = Annotated[Whole, Field(ge=1)]
Above0 = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]


class _Refusing(type):
    """Turns what pydantic says of values into `KeysError`."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        if args:
            raise KeysError([Problem("", f"{cls.__name__}: give keys by name, as in model={args[0]!r}")])
        try:
            return super().__call__(**values)
        except ValidationError as error:
            raise KeysError(problems_of(cls, error)) from None


@typing.dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, Field)
)
class Keys(metaclass=_Refusing):
    """A config: each subclass is a frozen dataclass whose fields are the keys, with a docstring each.

    The method ``_check`` of each class raises ValueError where values that are right by themselves do not go together;
    its message starts with the name of the key.

    Raises:
        KeysError: keys are unknown or missing, or values are of another type, out of range, or contradict each other.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        # makes the dataclass in place
        pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=CONFIG)(cls)

    def __post_init__(self) -> None:
        for kind in reversed(type(self).__mro__):
            if "_check" in vars(kind):
                kind._check(self)  # type: ignore[attr-defined]


def build(kind: type[Config], values: Mapping[str, Any], key: str = "") -> Config:
    """Return a config of values of its keys, of Python or `Written`: mappings for configs in it; raises as `Keys`."""
    unused = [name for name in UNUSED if name in values and not key]
    warn(*(f"{name} has no effect any more, since {UNUSED[name]}; remove the key" for name in unused))
    try:
        used = {name: value for name, value in values.items() if name not in unused}
        return pydantic.TypeAdapter(kind).validate_python(used)
    except ValidationError as error:
        raise KeysError(problems_of(kind, error, key)) from None


def require(condition: bool, message: str) -> None:
    """Raise ValueError with the message if the condition does not hold; the message starts with the key."""
    if not condition:
        raise ValueError(message)


def paths_of(config: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield key and path of every `Path` of a config, and of the configs inside it."""
    for name, hint in field_hints(config.__class__, with_bounds=True).items():
        value, full = getattr(config, name), below(key, name)
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if _is_path(hint):
            yield from ((full, path) for path in items if path is not None)
        for item_name, item in value.items() if isinstance(value, dict) else [("", value)]:
            if dataclasses.is_dataclass(item):
                yield from paths_of(item, below(full, item_name) if item_name else full)


def _is_path(hint: Any) -> bool:
    return EXPANDED in getattr(hint, "__metadata__", ()) or any(map(_is_path, typing.get_args(hint)))
