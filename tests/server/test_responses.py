"""/v1/responses: items, the order of events, and going on from what was said before."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tests.server.conftest import ASK, MODEL, PERSON, Server, schema_of

FORM = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": schema_of(city={"type": "string", "maxLength": 12}),
}
CALL = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}


def text_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    (part,) = item["content"]
    return part["text"]


def test_a_whole_response_has_every_field_that_clients_look_for(server: Server) -> None:
    response = server.respond(text=FORM)
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["id"].startswith("resp_") and response["model"] == MODEL
    assert response["error"] is None and response["incomplete_details"] is None
    assert response["text"] == FORM and response["parallel_tool_calls"] is True
    (item,) = response["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"][0]["annotations"] == [] and item["id"].startswith("msg_")
    jsonschema.validate(json.loads(text_of(response)), PERSON)
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"]["cache_write_tokens"] == 0


def test_events_come_in_the_order_that_clients_insist_on(server: Server) -> None:
    whole = server.respond(text=FORM)
    events = server.stream("/v1/responses", input=ASK, text=FORM, temperature=0)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
    ]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ids = {event["item_id"] for event in events if "item_id" in event}
    assert ids == {events[2]["item"]["id"]} == {events[-1]["response"]["output"][0]["id"]}
    assert len({e["response"]["id"] for e in events if "response" in e}) == 1
    told = "".join(event["delta"] for event in events if "delta" in event)
    assert told == text_of(whole) == text_of(events[-1]["response"])


def test_a_call_is_an_item_of_its_own(server: Server) -> None:
    (item,) = server.respond(**CALL)["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    jsonschema.validate(json.loads(item["arguments"]), WEATHER["parameters"])
    events = server.stream("/v1/responses", input=ASK, temperature=0, **CALL)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2] == "output_item.added" and events[2]["item"]["arguments"] == ""
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert events[-3]["arguments"] == item["arguments"]


def test_a_forced_call_beats_the_format(server: Server) -> None:
    (item,) = server.respond(**CALL, text=FORM)["output"]
    assert item["type"] == "function_call"


def test_what_is_cut_short_is_incomplete(server: Server) -> None:
    response = server.respond(max_output_tokens=3)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    events = server.stream("/v1/responses", input=ASK, max_output_tokens=3, temperature=0)
    assert events[-1]["type"] == "response.incomplete"
    assert text_of(events[-1]["response"]) == text_of(response)


def test_a_conversation_goes_on_from_a_response(server: Server) -> None:
    first = server.respond(**CALL, instructions="Be brief.")
    (call,) = first["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    second = server.respond(input=[output], previous_response_id=first["id"], max_output_tokens=4)
    again = server.respond(input=[*ASK, call, output], max_output_tokens=4, store=False)
    assert second["previous_response_id"] == first["id"]
    assert text_of(second) == text_of(again)
    assert second["usage"]["input_tokens"] == again["usage"]["input_tokens"]
    assert server.client.get(f"/v1/responses/{first['id']}").json() == first
    assert server.client.get(f"/v1/responses/{again['id']}").status_code == 404
    assert server.client.delete(f"/v1/responses/{first['id']}").json()["deleted"]
    told = server.respond(404, previous_response_id=first["id"])["error"]
    assert told["param"] == "previous_response_id"


def test_an_item_may_be_sent_by_its_id(server: Server) -> None:
    first = server.respond(max_output_tokens=4)
    (item,) = first["output"]
    given = {"max_output_tokens": 4, "input": [*ASK, item, *ASK]}
    reference = {"type": "item_reference", "id": item["id"]}
    again = server.respond(**{**given, "input": [*ASK, reference, *ASK]})
    assert text_of(again) == text_of(server.respond(**given))
    told = server.respond(404, input=[*ASK, {**reference, "id": "msg_none"}])["error"]
    assert (told["param"], told["code"]) == ("input[1].id", "item_not_found")


def test_faults_of_new_items_are_counted_from_the_first_of_them(server: Server) -> None:
    first = server.respond(max_output_tokens=2)
    given = {"previous_response_id": first["id"], "input": [*ASK, {"role": "robot"}]}
    assert server.refused("/v1/responses", **given)["param"] == "input[1]"


def test_what_cannot_be_done_is_refused(server: Server) -> None:
    for body, place in (
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": FORM, "structured_outputs": {"regex": "a"}}, "text.format"),
        ({"n": 2}, "n"),
    ):
        for is_streamed in (False, True):
            given = {"input": "Hello", "stream": is_streamed, **body}
            assert server.refused("/v1/responses", **given)["param"] == place


def test_logprobs_come_with_the_text(server: Server) -> None:
    given = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = server.respond(text=FORM, **given)
    entries = response["output"][0]["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in entries) == text_of(response)
