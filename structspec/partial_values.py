"""Typed values of JSON that is still being written: what is closed, validated; what is not, absent.

`{"name": "Ada", "address": {"city": "Lon` is PartialPerson(name='Ada', age=None,
address=PartialAddress(city=None)).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from structspec.constraint import JsonSchema
from structspec.errors import InvalidRequest, OutputInvalid
from structspec.generation import Generation
from structspec.partial_json import Node, PartialJson
from structspec.partial_shapes import ARRAY, OBJECT, Shape, item_of, shapes_of
from structspec.schema import resolve_schema

_MAX_DEPTH = 100  # of what is open: deeper parts are absent until they close
_ABSENT = object()


@dataclass(slots=True)
class _Grown:
    """What of an open object or array is closed, made into values once."""

    shape: Shape
    num_children: int
    values: Any  # a dict or a list


class PartialValues:
    """Reads the JSON of one value piece by piece and gives what there is of it.

    Of a pydantic model, dataclass or NamedTuple that is a `Partial…` with the same attributes, None
    where nothing is yet, and `model_fields_set` says where; of TypedDicts, dicts and lists a dict
    or list that is shorter. Sets are lists until they close. Closed parts are validated, each once
    for every part that it belongs to; one that does not pass by itself is absent, and what is wrong
    with it is said of the whole. Of a union of objects the first is taken that fits what is there.
    A value costs a shallow copy of all that is open.
    """

    def __init__(self, schema: Any) -> None:
        is_json = isinstance(schema, Mapping | bool | str | Path | JsonSchema)
        self._kind: Any = Any if is_json else schema
        self._reader = PartialJson()
        self._adapters: dict[int, tuple[Any, TypeAdapter[Any]]] = {}
        self._shapes: dict[int, tuple[Any, list[Shape]]] = {}

    def take(self, read: str | Generation) -> Iterator[Any]:
        """The new value that a piece of the text makes, if it makes one, or the last one."""
        if not isinstance(read, str):
            yield read.value
        elif self._reader.feed(read):
            root = self._reader.root
            assert root is not None
            if not root.is_closed:  # the whole is judged where the request is, and given then
                yield self._build(root, self._kind, 0)

    def _build(self, node: Node, kind: Any, depth: int) -> Any:
        if not node.is_closed:
            return self._build_open(node, kind, depth) if depth < _MAX_DEPTH else _ABSENT
        if node.shape is not kind:
            node.built, node.shape = self._validate(self._reader.text_of(node), kind), kind
        return node.built

    def _validate(self, text: bytes, kind: Any) -> Any:
        try:
            return json.loads(text) if kind is Any else self._adapter(kind).validate_json(text)
        except Exception:  # also what a caller's validator raises: the whole is still to be judged
            return _ABSENT

    def _build_open(self, node: Node, kind: Any, depth: int) -> Any:
        shape = self._choose(node, kind, depth)
        grown = node.built
        if not isinstance(grown, _Grown) or grown.shape is not shape:
            grown = node.built = _Grown(shape, 0, {} if node.kind == "object" else [])
        for index in range(grown.num_children, len(node.children)):
            if not node.children[index].is_closed:
                break
            self._put(grown.values, node, index, shape, depth)
            grown.num_children = index + 1
        values = grown.values.copy()
        if grown.num_children < len(node.children):
            self._put(values, node, grown.num_children, shape, depth)
        if shape.partial is None:
            return values
        if node.kind == "array":
            names = [shape.part(index)[0] for index in range(len(values))]
            values = {name: v for name, v in zip(names, values, strict=True) if v is not _ABSENT}
        return shape.partial.model_construct(**values)

    def _put(self, values: Any, node: Node, index: int, shape: Shape, depth: int) -> None:
        """Add a child to what there is of its parent."""
        is_object = node.kind == "object"
        name, kind = shape.part(node.keys[index] if is_object else index)
        value = self._build(node.children[index], kind, depth + 1)
        if not is_object:
            values.append(None if value is _ABSENT and shape.partial is None else value)
        elif value is not _ABSENT:
            values[name if shape.key is str else self._key(name, shape.key)] = value

    def _key(self, name: str, kind: Any) -> Any:
        try:
            return self._adapter(kind).validate_python(name)
        except Exception:  # as above: the whole is still to be judged
            return name

    def _choose(self, node: Node, kind: Any, depth: int) -> Shape:
        """The shape of an open value: the only one, or the first that fits; else a plain one."""
        if id(kind) not in self._shapes:  # with the type itself: its id is its own as long as it is
            self._shapes[id(kind)] = (kind, shapes_of(kind))
        fitting = [shape for shape in self._shapes[id(kind)][1] if shape.kind == node.kind]
        if len(fitting) == 1:
            return fitting[0]
        if node.kind == "array":
            return ARRAY
        return next((shape for shape in fitting if self._fits(node, shape, depth)), OBJECT)

    def _fits(self, node: Node, shape: Shape, depth: int) -> bool:
        if shape.partial is not None and not all(key in shape.fields for key in node.keys):
            return False
        closed = [(key, c) for key, c in zip(node.keys, node.children, strict=True) if c.is_closed]
        return all(self._build(c, shape.part(key)[1], depth) is not _ABSENT for key, c in closed)

    def _adapter(self, kind: Any) -> TypeAdapter[Any]:
        if id(kind) not in self._adapters:
            self._adapters[id(kind)] = (kind, TypeAdapter(kind))
        return self._adapters[id(kind)][1]


class PartialItems:
    """Reads the JSON of a list piece by piece and gives each item, validated, once it is closed."""

    def __init__(self, schema: Any) -> None:
        """`schema` is `list[T]` or another collection, or a JSON schema of an array with `items`.

        Raises InvalidRequest for others.
        """
        self._target = resolve_schema(_items_of(schema))
        self._reader = PartialJson()
        self._num_items = 0

    def take(self, read: str | Generation) -> Iterator[Any]:
        """The items that a piece of the text closes; else OutputInvalid, `#/2/age: message`."""
        if not isinstance(read, str):
            return
        self._reader.feed(read)
        root = self._reader.root
        while root is not None and self._num_items < len(root.children):
            node = root.children[self._num_items]
            if not node.is_closed:
                break
            yield self._validate(self._reader.text_of(node).decode())
            self._num_items += 1

    def _validate(self, text: str) -> Any:
        try:
            return self._target.validate(text)
        except OutputInvalid as error:
            place = f"#/{self._num_items}"
            errors = tuple(place + one.removeprefix("#") for one in error.errors)
            raise OutputInvalid(
                f"item {self._num_items} is not a valid {self._target.name}: {'; '.join(errors)}",
                text=self._reader.data.decode(),
                errors=errors,
            ) from None


def _items_of(schema: Any) -> Any:
    if isinstance(schema, JsonSchema):
        schema = schema.schema
    if isinstance(schema, Mapping | str | bool | Path):
        whole = resolve_schema(schema).json_schema
        items = whole.get("items")
        if whole.get("type") == "array" and isinstance(items, Mapping):
            shared = {
                key: whole[key] for key in ("$schema", "$defs", "definitions") if key in whole
            }
            return {**shared, **items}
    elif (item := item_of(schema)) is not None:
        return item
    raise InvalidRequest(
        "stream_items takes schema=list[T], or a JSON schema of an array with 'items', not"
        f" {schema!r}"
    )
