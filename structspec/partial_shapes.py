"""Which part of a Python type a part of its JSON belongs to, and what a half-written object is."""

from __future__ import annotations

import dataclasses
import types
import typing
import warnings
from collections import deque
from collections.abc import Collection, Mapping, Sequence, Set
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.fields import FieldInfo
from typing_extensions import ReadOnly, TypeAliasType, is_typeddict

_COLLECTIONS = (list, set, frozenset, deque, Sequence, Set, Collection)
_QUALIFIERS = (Required, NotRequired, ReadOnly)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The parts of a type whose JSON is an object or an array.

    `fields` says for a key of the JSON, or an index, what stands there: the attribute's name and
    its type; `rest` is the type of all others. `partial` is made of what there is; None: a plain
    dict or list. `key` is the type of an object's keys, where that is another than str.
    """

    kind: Literal["object", "array"]
    fields: Mapping[Any, tuple[str, Any]] = dataclasses.field(default_factory=dict)
    rest: Any = Any
    partial: type[BaseModel] | None = None
    key: Any = str

    def part(self, key: Any) -> tuple[Any, Any]:
        """The name and the type of what stands under a key or an index."""
        return self.fields.get(key, (key, self.rest))


OBJECT, ARRAY = Shape("object"), Shape("array")


def shapes_of(kind: Any) -> list[Shape]:
    """What the JSON of a type may be that grows piece by piece; for a union those of its parts."""
    kind = _bare(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return [shape for argument in arguments for shape in shapes_of(argument)]
    if isinstance(kind, type) and origin is None and (shape := _shape_of_class(kind)) is not None:
        return [shape]
    container = origin or kind
    if not isinstance(container, type):
        return []
    if issubclass(container, tuple):
        return [_tuple(arguments)]
    if container in _COLLECTIONS:
        return [Shape("array", rest=arguments[0] if arguments else Any)]
    if issubclass(container, Mapping):
        key, rest = arguments if len(arguments) == 2 else (str, Any)
        return [Shape("object", rest=rest, key=key)]
    return []


def item_of(kind: Any) -> Any:
    """The type of the items of `list[T]` and the like; None for what has not one such type."""
    kind = _bare(kind)
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return arguments[0] if arguments[1:] == (Ellipsis,) else None
    return arguments[0] if get_origin(kind) in _COLLECTIONS and len(arguments) == 1 else None


def _bare(kind: Any) -> Any:
    """A type without its names and notes."""
    while True:
        if get_origin(kind) is Annotated or get_origin(kind) in _QUALIFIERS:
            kind = get_args(kind)[0]
        elif isinstance(kind, TypeAliasType):
            kind = kind.__value__
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif isinstance(kind, type) and issubclass(kind, RootModel):
            kind = kind.model_fields["root"].annotation
        else:
            return kind


def _tuple(arguments: tuple[Any, ...]) -> Shape:
    if arguments[1:] == (Ellipsis,):
        return Shape("array", rest=arguments[0])
    return Shape("array", {index: (str(index), one) for index, one in enumerate(arguments)})


@lru_cache(maxsize=256)  # as many as there are targets of classes, see structspec.schema
def _shape_of_class(cls: type) -> Shape | None:
    if issubclass(cls, BaseModel):
        fields = {_key(name, info): (name, _kind(info)) for name, info in cls.model_fields.items()}
        return Shape("object", fields, partial=_partial(cls, tuple(cls.model_fields)))
    if dataclasses.is_dataclass(cls):
        names = tuple(field.name for field in dataclasses.fields(cls) if field.init)
        hints = _hints(cls)
        fields = {name: (name, hints.get(name, Any)) for name in names}
        return Shape("object", fields, partial=_partial(cls, names))
    if is_typeddict(cls):
        return Shape("object", {name: (name, kind) for name, kind in _hints(cls).items()})
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints, names = _hints(cls), cls._fields
        places = {index: (name, hints.get(name, Any)) for index, name in enumerate(names)}
        return Shape("array", places, partial=_partial(cls, names))
    return None


def _key(name: str, info: FieldInfo) -> str:
    """The key that the JSON schema of a model has for a field."""
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((one for one in alias.choices if isinstance(one, str)), None)
    return alias if isinstance(alias, str) else name


def _kind(info: FieldInfo) -> Any:
    notes = list(info.metadata)
    if info.discriminator is not None:
        notes.append(Field(discriminator=info.discriminator))
    return Annotated[info.annotation, *notes] if notes else info.annotation


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:  # annotations that only pydantic, from where the class is, can resolve
        return {}


def _partial(cls: type, names: Sequence[str]) -> type[BaseModel]:
    """A model with these attributes, each None until it is there; checks nothing."""
    config = ConfigDict(protected_namespaces=())
    fields: dict[str, Any] = {name: (Any, None) for name in names if not name.startswith("_")}
    with warnings.catch_warnings():
        # a name that shadows one of BaseModel's was warned of where the class was made
        warnings.simplefilter("ignore", UserWarning)
        return create_model(f"Partial{cls.__name__}", __config__=config, **fields)
