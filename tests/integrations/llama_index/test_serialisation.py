"""Copies of an object: as a dict, pickled, copied; none of them loads a model twice."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.loading import load_llm

from structspec import LLM, InvalidRequest
from structspec.chat.shared_llm import shared_llm
from structspec.integrations.llama_index import StructSpec
from tests.server.toy import save_toy

ASK = [ChatMessage(content="Hi")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return str(save_toy(tmp_path_factory.mktemp("shared")))


@pytest.fixture(scope="module")
def named(folder: str) -> StructSpec:
    return StructSpec(folder, temperature=0, max_tokens=4, system_prompt="Be kind.")


def fields_of(llm: StructSpec) -> dict[str, Any]:
    return llm.to_dict()


def test_a_dict_says_all_that_is_needed_to_make_it_again(named: StructSpec) -> None:
    data = named.to_dict()
    assert data["class_name"] == "structspec_llm" == StructSpec.class_name()
    json.dumps(data)
    for again in (StructSpec.from_dict(data), load_llm(data)):
        assert again.to_dict() == data
        assert again.chat(ASK).message.content == named.chat(ASK).message.content


def test_objects_of_one_model_share_it(named: StructSpec, folder: str) -> None:
    again = StructSpec(model=folder, temperature=1)
    assert again._engine is named._engine is shared_llm(folder)


def test_pickling_and_copying_keep_the_fields_and_find_the_engine(
    named: StructSpec, caplog: pytest.LogCaptureFixture
) -> None:
    for again in (
        pickle.loads(pickle.dumps(named)),
        copy.deepcopy(named),
        copy.copy(named),
        named.model_copy(deep=True),
    ):
        assert again.to_dict() == named.to_dict()
        assert again._engine is named._engine
        assert again.chat(ASK).message.content == named.chat(ASK).message.content
    assert caplog.messages == []


def test_a_copys_options_are_its_own(named: StructSpec) -> None:
    again = copy.deepcopy(named)
    again.additional_kwargs["seed"] = 1
    assert named.additional_kwargs == {}


def test_keys_are_in_no_dict() -> None:
    llm = StructSpec(base_url="http://localhost:1", api_key="secret")
    assert "secret" not in llm.to_json() and "secret" not in repr(llm)
    assert StructSpec.from_dict(llm.to_dict(), api_key="other").api_key == "other"


def test_an_engine_of_ones_own_has_to_be_given_again(toy_engine: LLM) -> None:
    llm = StructSpec(engine=toy_engine)
    again = pickle.loads(pickle.dumps(llm))
    with pytest.raises(InvalidRequest, match="engine="):
        again.chat(ASK)
    assert StructSpec.from_dict(llm.to_dict(), engine=toy_engine).chat(ASK, max_tokens=1)
