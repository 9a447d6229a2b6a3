"""Python types that `schema=` takes, each with values of it: a table for laws."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import re
import string
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_interface,
)
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    TypeVar,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints
from typing_extensions import TypedDict

T = TypeVar("T")
NO_VALUES = st.nothing()  # a type that is not dumped as it is read


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Weight(enum.Enum):
    LIGHT = 0.5
    HEAVY = 2.0  # written as 2


class Size(enum.StrEnum):
    S = "s"
    M = "m"


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    NOTHING = None
    WORD = "w"
    PAIR = (1, 2)  # no JSON is read as it


class Pair(NamedTuple):
    left: int
    right: Color


class Movie(TypedDict):
    title: Annotated[str, Field(max_length=3)]
    year: NotRequired[int]


@dataclasses.dataclass
class Book:
    day: dt.date
    pages: int = 100


class Tree(BaseModel):
    value: dt.timedelta
    below: list[Tree] = Field(max_length=2)


class Page(BaseModel, Generic[T]):
    items: Annotated[list[T], Field(max_length=2)]
    by: dict[Level, T]


class Cat(BaseModel):
    kind: Literal["cat"]
    born: pydantic.AwareDatetime


class Dog(BaseModel):
    kind: Literal["dog"]
    home: pydantic.HttpUrl


class Short(BaseModel):
    model_config = ConfigDict(str_max_length=3, str_min_length=2, str_strip_whitespace=True)
    text: str


class Strictly(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: dt.date
    id: UUID
    tags: tuple[str, ...]
    level: Level


class Coded(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex", ser_json_bytes="hex")
    data: bytes


LOWER = Annotated[str, StringConstraints(to_lower=True, pattern="^[aAbB]$")]
STRIPPED = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2)]
PETS = Annotated[Cat | Dog, Field(discriminator="kind")]

seconds = st.integers(-59, 59)
zones = st.integers(-1439, 1439).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
aware = st.datetimes(timezones=zones)
deltas = st.timedeltas(dt.timedelta(days=-(10**6)), dt.timedelta(days=10**6))
ints = st.integers(-(10**9), 10**9)
texts = st.text(max_size=5)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(string.ascii_letters + string.digits, min_size=1, max_size=6)
hosts = st.builds("{}.{}".format, words, st.sampled_from(["com", "org", "co.uk"]))
tails = st.sampled_from(["", "/", "/a/b.c", "/a?x=1&y=%20", "/#top", ":8080/a;b=(1)"])
networks_4 = st.integers(0, 32).flatmap(
    lambda p: st.integers(0, 2**p - 1).map(lambda n: IPv4Network((n << (32 - p), p)))
)
networks_6 = st.integers(0, 128).flatmap(
    lambda p: st.integers(0, 2**p - 1).map(lambda n: IPv6Network((n << (128 - p), p)))
)


def interfaces(version: Literal[4, 6]) -> st.SearchStrategy[Any]:
    bits = 32 if version == 4 else 128
    return st.builds(
        lambda address, prefix: ip_interface(f"{address}/{prefix}"),
        st.ip_addresses(v=version),
        st.integers(0, bits),
    )


def urls(kind: Any, *schemes: str) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type of URLs, and some of them."""
    places = st.sampled_from(["", "me@", "me:pw@"])
    return kind, st.builds(
        lambda *parts: kind("{}://{}{}{}".format(*parts)),
        st.sampled_from(schemes), places, hosts, tails,
    )  # fmt: skip


def decimals(digits: int | None, places: int | None) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type of limited decimals, and some of them."""
    kind = Annotated[Decimal, Field(max_digits=digits, decimal_places=places)]
    num_behind = min(p for p in (places, digits, 3) if p is not None)
    num_before = (
        6 if digits is None else max(0, digits - (num_behind if places is None else places))
    )
    values = st.builds(
        lambda number, shift: Decimal(number).scaleb(-num_behind) * 1 if shift else Decimal(number),
        st.integers(1, 10 ** (num_behind + num_before) - 1), st.just(num_behind > 0),
    )  # fmt: skip
    return kind, values


TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    # times
    "date": (dt.date, st.dates()),
    "time": (dt.time, st.times()),
    "time-aware": (dt.time, st.times(timezones=zones)),
    "datetime": (dt.datetime, st.datetimes()),
    "datetime-with-zone": (dt.datetime, aware),
    "datetime-aware": (pydantic.AwareDatetime, aware),
    "datetime-naive": (pydantic.NaiveDatetime, st.datetimes()),
    "datetime-strict": (Annotated[dt.datetime, Strict()], aware),
    "datetime-after": (Annotated[dt.datetime, Field(gt=dt.datetime(2020, 1, 1))], NO_VALUES),
    "date-from": (Annotated[dt.date, Field(ge=dt.date(2020, 1, 1))], st.dates(dt.date(2020, 1, 1))),
    "future-date": (pydantic.FutureDate, NO_VALUES),
    "past-datetime": (pydantic.PastDatetime, NO_VALUES),
    "timedelta": (dt.timedelta, deltas),
    "timedelta-short": (Annotated[dt.timedelta, Field(lt=dt.timedelta(hours=1))], NO_VALUES),
    "zone-info": (ZoneInfo, st.sampled_from([ZoneInfo("UTC")])),
    # addresses
    "any-url": urls(pydantic.AnyUrl, "http", "foo+bar", "ftp"),
    "http-url": urls(pydantic.HttpUrl, "http", "https"),
    "any-http-url": urls(pydantic.AnyHttpUrl, "http", "https"),
    "websocket-url": urls(pydantic.WebsocketUrl, "ws", "wss"),
    "ftp-url": urls(pydantic.FtpUrl, "ftp"),
    "file-url": (
        pydantic.FileUrl,
        st.sampled_from(["/a/b", "/"]).map(lambda p: pydantic.FileUrl(f"file://{p}")),
    ),  # fmt: skip
    "postgres": urls(pydantic.PostgresDsn, "postgres", "postgresql+asyncpg"),
    "mongo": urls(pydantic.MongoDsn, "mongodb", "mongodb+srv"),
    "redis": urls(pydantic.RedisDsn, "redis"),
    "amqp": urls(pydantic.AmqpDsn, "amqp"),
    "kafka": urls(pydantic.KafkaDsn, "kafka"),
    "nats": urls(pydantic.NatsDsn, "nats", "wss"),
    "mysql": urls(pydantic.MySQLDsn, "mysql", "mysql+pymysql"),
    "ipv4": (IPv4Address, st.ip_addresses(v=4)),
    "ipv6": (IPv6Address, st.ip_addresses(v=6)),
    "ipv4-network": (IPv4Network, networks_4),
    "ipv6-network": (IPv6Network, networks_6),
    "ipv4-interface": (IPv4Interface, interfaces(4)),
    "ipv6-interface": (IPv6Interface, interfaces(6)),
    "ip-any": (pydantic.IPvAnyAddress, st.ip_addresses()),
    "ip-any-interface": (pydantic.IPvAnyInterface, interfaces(4) | interfaces(6)),
    "ip-any-network": (pydantic.IPvAnyNetwork, networks_4 | networks_6),
    # encoded, secret, on disk
    "uuid": (UUID, st.uuids()),
    **{
        f"uuid{version}": (getattr(pydantic, f"UUID{version}"), st.uuids(version=version))  # type: ignore[arg-type]
        for version in (1, 3, 4, 5)
    },
    "uuid7": (pydantic.UUID7, NO_VALUES),
    "base64": (pydantic.Base64Bytes, st.binary(max_size=9)),
    "base64-str": (pydantic.Base64Str, texts),
    "base64-url": (pydantic.Base64UrlBytes, st.binary(max_size=9)),
    "json": (pydantic.Json[list[int]], NO_VALUES),
    "byte-size": (pydantic.ByteSize, st.integers(0, 10**12).map(pydantic.ByteSize)),
    "secret": (pydantic.SecretStr, NO_VALUES),
    "secret-date": (pydantic.Secret[dt.date], NO_VALUES),
    "bytes": (bytes, texts.map(str.encode)),
    "bytes-short": (
        Annotated[bytes, Field(max_length=3)],
        st.text(max_size=3).map(str.encode).filter(lambda b: len(b) < 4),
    ),  # fmt: skip
    "bytes-hex": (Coded, st.builds(Coded, data=st.binary(max_size=4).map(bytes.hex))),
    "path": (Path, texts.map(Path)),
    "file-path": (pydantic.FilePath, NO_VALUES),
    "pattern": (re.Pattern[str], st.sampled_from(["a+", "(?P<n>x)"]).map(re.compile)),
    "import": (pydantic.ImportString, NO_VALUES),
    # numbers
    "none": (type(None), st.none()),
    "bool": (bool, st.booleans()),
    "int": (int, ints),
    "int-strict": (pydantic.StrictInt, ints),
    "int-positive": (pydantic.PositiveInt, st.integers(1, 10**9)),
    "float": (float, finite),
    "float-positive": (pydantic.PositiveFloat, st.floats(1e-323, 1e300)),
    "float-above": (
        Annotated[float, Field(gt=1.5, lt=2)],
        st.floats(1.5, 2, exclude_min=True, exclude_max=True),
    ),  # fmt: skip
    "float-tenths": (Annotated[float, Field(multiple_of=0.1)], st.sampled_from([0.5, 1.5])),
    "float-fives": (Annotated[float, Field(multiple_of=5)], NO_VALUES),
    "complex": (complex, st.complex_numbers(allow_nan=False, allow_infinity=False)),
    "fraction": (Fraction, st.fractions()),
    "decimal": (Decimal, NO_VALUES),  # a number to be written, text when dumped
    "decimal-5-2": decimals(5, 2),
    "decimal-2-2": decimals(2, 2),
    "decimal-4": decimals(4, None),
    "decimal-places": decimals(None, 2),
    "decimal-in-bounds": (Annotated[Decimal, Field(max_digits=3, ge=0)], NO_VALUES),
    # text
    "str": (str, texts),
    "str-pattern": (
        Annotated[str, Field(pattern=r"^\d{2}[a-c]$")],
        st.from_regex(r"[0-9]{2}[a-c]", fullmatch=True),
    ),  # fmt: skip
    **{
        f"str-rust-{name}": (Annotated[str, Field(pattern=pattern)], st.sampled_from(values))
        for name, pattern, values in (
            ("set-in-set", "^[[a]]$", ["a"]),
            ("and", "^[a-z&&[^aeiou]]+$", ["b", "xyz"]),
            ("less", r"^[\w--a]$", ["b", "Z"]),
            ("either", "^[ab~~bc]$", ["a", "c"]),
            ("bracket", "^[]a]$", ["a", "]"]),
            ("no-bracket", "^[^]a]$", ["b", "["]),
            ("posix", "^[[:digit:]]$", ["7"]),
            ("edges", r"\Aa\z", ["a"]),
            ("code-point", r"^\x{41}$", ["A"]),
        )
    },
    "str-not-digits": (Annotated[str, Field(pattern=r"^\D$")], st.just("x")),
    "str-stripped": (
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=2)],
        st.text("ab ", min_size=4).map(str.strip).filter(lambda t: len(t) > 1),
    ),  # fmt: skip
    "str-configured": (Short, st.builds(Short, text=st.text("ab", min_size=2, max_size=3))),
    # lists of values
    "enum": (Color, st.sampled_from(Color)),
    "int-enum": (Level, st.sampled_from(Level)),
    "float-enum": (Weight, st.just(Weight.LIGHT)),
    "str-enum": (Size, st.sampled_from(Size)),
    "int-flag": (Access, st.sampled_from([Access.READ, Access.WRITE])),
    "odd-enum": (Odd, st.sampled_from([Odd.NOTHING, Odd.WORD])),
    "literal": (Literal["a", 1, None, True], st.sampled_from(["a", 1, None, True])),
    "literal-enum": (Literal[Size.S, Level.LOW], st.sampled_from([Size.S, Level.LOW])),
    "literal-bytes": (Literal["a", b"b"], st.just("a")),
    # collections
    "set": (set[int], st.sets(ints, max_size=3)),
    "set-of-two": (Annotated[set[bool], Field(min_length=2)], st.just({True, False})),
    "set-of-lower-case": (Annotated[set[LOWER], Field(min_length=2)], st.just({"a", "b"})),
    "frozenset-of-stripped": (
        Annotated[frozenset[STRIPPED], Field(min_length=2)],
        st.just(frozenset("ab")),
    ),
    "set-of-one-and-true": (Annotated[set[Literal[0, False, 2]], Field(min_length=2)], NO_VALUES),
    "set-of-decimals": (
        Annotated[set[Annotated[Decimal, Field(max_digits=1)]], Field(min_length=2)],
        st.just({Decimal(1), Decimal(2)}),
    ),
    "set-of-enum": (Annotated[set[Level | None], Field(min_length=2)], st.just(set(Level))),
    "dict-of-two": (Annotated[dict[str, int], Field(min_length=2)], st.just({"a": 1, "A": 2})),
    "dict-of-two-lower-case": (
        Annotated[dict[LOWER, int], Field(min_length=2)],
        st.just({"a": 1, "b": 2}),
    ),
    "frozenset": (frozenset[Color], st.frozensets(st.sampled_from(Color))),
    "deque": (Annotated[deque[int], Field(max_length=2)], st.lists(ints, max_size=2).map(deque)),
    "tuple": (tuple[int, dt.date], st.tuples(ints, st.dates())),
    "tuple-any": (tuple[int, ...], st.lists(ints, max_size=3).map(tuple)),
    "tuple-empty": (tuple[()], st.just(())),
    "sequence": (Sequence[Level], st.lists(st.sampled_from(Level), max_size=3)),
    "named-tuple": (Pair, st.builds(Pair)),
    "dict": (dict[str, int], st.dictionaries(texts, ints, max_size=3)),
    "mapping": (Mapping[str, int], st.dictionaries(texts, ints, max_size=3)),
    "ordered-dict": (
        OrderedDict[int, int],
        st.dictionaries(ints, ints, max_size=3).map(OrderedDict),
    ),  # fmt: skip
    "counter": (
        collections.Counter[dt.date],
        st.dictionaries(st.dates(), ints, max_size=3).map(collections.Counter),
    ),  # fmt: skip
    "dict-int": (dict[int, int], st.dictionaries(ints, ints, max_size=3)),
    "dict-positive": (dict[pydantic.PositiveInt, int], st.dictionaries(st.integers(1, 999), ints)),
    "dict-small": (
        dict[Annotated[int, Field(lt=10)], int],
        st.dictionaries(st.integers(0, 9), ints),
    ),  # fmt: skip
    "dict-float": (dict[float, int], st.dictionaries(st.sampled_from([1e30, 0.5, 2.0]), ints)),
    "dict-bool": (dict[bool, int], st.dictionaries(st.booleans(), ints)),
    "dict-uuid": (dict[UUID, int], st.dictionaries(st.uuids(), ints, max_size=2)),
    "dict-datetime": (dict[dt.datetime, int], st.dictionaries(aware, ints, max_size=2)),
    "dict-timedelta": (dict[dt.timedelta, int], st.dictionaries(deltas, ints, max_size=2)),
    "dict-enum": (dict[Color, int], st.dictionaries(st.sampled_from(Color), ints)),
    "dict-int-enum": (dict[Level, int], st.dictionaries(st.sampled_from(Level), ints)),
    "dict-mixed-literal": (dict[Literal["a", 1], int], st.dictionaries(st.just("a"), ints)),
    "dict-optional": (dict[Optional[int], int], st.dictionaries(ints, ints)),  # noqa: UP045
    "dict-pattern": (dict[Annotated[str, Field(pattern="^a")], int], st.just({"ab": 1})),
    # classes
    "typed-dict": (Movie, st.just({"title": "t", "year": 3})),
    "dataclass": (Book, st.builds(Book)),
    "model-generic": (
        Page[dt.date],
        st.builds(
            Page[dt.date],
            items=st.lists(st.dates(), max_size=2),
            by=st.dictionaries(st.sampled_from(Level), st.dates()),
        ),
    ),  # fmt: skip
    "model-recursive": (Tree, st.builds(Tree, value=deltas, below=st.just([]))),
    "model-strict": (Strictly, NO_VALUES),
    "union-discriminated": (PETS, st.builds(Cat, born=aware)),
    "union": (int | dt.date | None, st.none() | st.dates() | ints),
    "any": (Any, st.sampled_from([None, [1], {"a": "b"}])),
    # checked in Python
    "after": (Annotated[int, pydantic.AfterValidator(lambda n: n // (n % 2))], NO_VALUES),
    "with-schema": (Annotated[int, pydantic.WithJsonSchema({"type": "string"})], NO_VALUES),
}
