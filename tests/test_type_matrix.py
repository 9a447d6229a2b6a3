"""Every type that TypeAdapter takes, through a model to a value: here, and over a server."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Optional

import httpx2
import pytest
from pydantic import AliasChoices, BaseModel, Field, RootModel, computed_field, v1
from pydantic.dataclasses import dataclass
from typing_extensions import TypeAliasType

from structspec import (
    LLM,
    Client,
    EngineConfig,
    Generation,
    GrammarError,
    InvalidRequest,
    JsonSchema,
    OutputInvalid,
)
from structspec.options import resolve_options
from structspec.partial_values import PartialItems
from structspec.schema import resolve_schema
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.python_types import TYPES, Color
from tests.server.toy import save_toy

Word = Annotated[str, Field(max_length=5)]


class Aliased(BaseModel):
    city: Word = Field(alias="town")
    number: int = Field(validation_alias=AliasChoices("the number", "n"))


class Square(BaseModel):
    side: Annotated[int, Field(ge=0, le=99)]

    @computed_field
    def area(self) -> int:
        return self.side**2


class Words(RootModel[Annotated[list[Word], Field(max_length=2)]]):
    pass


@dataclass
class Slot:
    start: Annotated[dt.date, Field(ge=dt.date(2020, 1, 1), le=dt.date(2029, 12, 31))]
    color: Color | None = None


Nested = TypeAliasType("Nested", "Annotated[list[Nested], Field(max_length=2)] | bool")


class Part(v1.BaseModel):
    pair: tuple[int, Color]
    when: dt.date | None


class Older(v1.BaseModel):
    """As pydantic 1 had them."""

    name: v1.constr(max_length=4)  # type: ignore[valid-type]
    size: v1.conint(gt=3, le=99) = v1.Field(5, alias="how big")  # type: ignore[valid-type]
    parts: v1.conlist(Part, max_items=2)  # type: ignore[valid-type]


def greet(name: Word, times: Annotated[int, Field(ge=1, le=3)] = 1) -> str:
    return f"Hello {name}" * times


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "b"]}}, "required": ["a"]}
MORE: dict[str, Any] = {
    "aliases": Aliased,
    "computed-field": Square,
    "root-model": Words,
    "pydantic-dataclass": Slot,
    "optional": Optional[Square],  # noqa: UP045
    "optional-list": list[Word | None],
    "alias-type": Nested,
    "callable": greet,
    "schema": SCHEMA,
    "schema-text": json.dumps(SCHEMA),
    "schema-true": True,
    "json-schema": JsonSchema(SCHEMA),
    "pydantic-v1": Older,
}
KINDS = {name: kind for name, (kind, _) in TYPES.items()} | MORE
OPTIONS: dict[str, Any] = {"temperature": 1.0, "max_tokens": 200, "max_attempts": 2}
ENDS = '"]}'  # made likely: random weights would hardly ever come to an end


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = save_toy(tmp_path_factory.mktemp("toy"))
    with LLM(folder, config=EngineConfig(block_size=16)) as llm:
        yield llm


@pytest.fixture(scope="module")
def client(toy: LLM) -> Iterator[Client]:
    app = make_app(toy._service, ServerSettings("toy"))
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    with Client("http://toy", http_client=http) as client:
        yield client


def results_of(asked: LLM | Client, toy: LLM) -> dict[str, Any]:
    """What each type gives, all of them asked for side by side."""
    ends = [toy._service.tokenizer.encode(end)[0] for end in ENDS]
    bias = dict.fromkeys((*ends, *toy._service.vocabulary.stop_token_ids), 6.0)

    def generate(job: tuple[int, str]) -> Any:
        seed, name = job
        try:
            return asked.generate_raw(
                "Hi", schema=KINDS[name], seed=seed, logit_bias=bias, **OPTIONS
            )
        except Exception as error:
            return error

    with ThreadPoolExecutor(64) as threads:
        return dict(zip(KINDS, threads.map(generate, enumerate(KINDS)), strict=True))


def wrong(results: dict[str, Any], toy: LLM) -> dict[str, Any]:
    """What is neither a value of its type nor refused by what no mask can hold."""
    found = {}
    for name, result in results.items():
        task = resolve_options({"schema": KINDS[name]})
        assert task.constraint is not None and task.target is not None
        if isinstance(result, Generation):
            if repr(task.target.validate(result.text)) != repr(result.value):
                found[name] = result
        else:
            report = toy._service.compiler.submit(task.constraint).result().report
            is_held = report.exact and not task.unheld
            if is_held or not isinstance(result, OutputInvalid | ZeroDivisionError):
                found[name] = result
    return found


def test_every_type_comes_out_of_a_model_as_itself(toy: LLM) -> None:
    results = results_of(toy, toy)
    assert wrong(results, toy) == {}
    assert isinstance(results["computed-field"].value, Square)
    assert isinstance(results["callable"].value, str)


def test_every_type_comes_over_a_server_as_itself(toy: LLM, client: Client) -> None:
    results = results_of(client, toy)
    assert wrong(results, toy) == {}
    assert isinstance(results["aliases"].value, Aliased)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    assert (
        resolve_options({"schema": path}).constraint
        == resolve_options({"schema": SCHEMA}).constraint
    )
    assert list(
        PartialItems(Path(_saved(tmp_path, {"type": "array", "items": SCHEMA}))).take('[{"a": 1}')
    )
    for name, words in (("missing.json", "cannot be read"), ("folder", "cannot be read")):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(InvalidRequest, match=words):
            resolve_options({"schema": tmp_path / name})
    path.write_text("{")
    with pytest.raises(GrammarError):
        resolve_options({"schema": path})


def _saved(folder: Path, schema: Any) -> Path:
    path = folder / "other.json"
    path.write_text(json.dumps(schema))
    return path


def test_a_model_of_pydantic_1_is_held_to_its_own_checks() -> None:
    class Even(v1.BaseModel):
        number: int

        @v1.validator("number")
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("odd")
            return number

    target = resolve_schema(Even)
    assert target.validate('{"number": 2}') == Even(number=2)
    with pytest.raises(OutputInvalid) as caught:
        target.validate('{"number": 3}')
    assert caught.value.errors == ("#/number: odd",)
    assert target.unheld and target.name == "Even"
