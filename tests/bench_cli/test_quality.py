"""`structspec bench quality`: its tasks, grades, resampling, and a small run from end to end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structspec.bench import quality
from structspec.bench.quality_configurations import (
    CONFIGURATIONS,
    DEFAULT,
    choose_configurations,
)
from structspec.bench.quality_domains import DOMAINS
from structspec.bench.quality_grade import grade, read_leniently
from structspec.bench.quality_outputs import Output, OutputFile, output_key
from structspec.bench.quality_scorer import Scorer
from structspec.bench.quality_summary import compare, summarize
from structspec.bench.quality_tasks import MAX_FIELDS, MIN_FIELDS, make_tasks
from structspec.cli import main
from structspec.errors import InvalidRequest
from structspec.json_value import compile_validator
from structspec.options import resolve_options
from structspec.prompting import show_schema

MODEL = "smollm2-135m"
TASKS = make_tasks(200)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "price": {"type": "number"},
        "is_new": {"type": "boolean"},
        "colors": {"type": "array", "items": {"type": "string"}},
        "day": {"type": "string", "format": "date"},
        "maker": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ANSWER = {
    "name": "mug",
    "price": 4.5,
    "is_new": True,
    "colors": ["red", "blue"],
    "day": "2024-03-01",
    "maker": {"city": "Oslo"},
}


def output(name: str, text: str = "{}", **changes: object) -> Output:
    return replace(Output("k", "t", name, text, (1, 2), 1, 0.5, log_prob=-1.0), **changes)


# Tasks


def test_tasks_are_the_same_each_time_and_whatever_their_number():
    assert make_tasks(200) == TASKS
    assert make_tasks(7) == TASKS[:7]
    assert make_tasks(7, seed=1) != TASKS[:7]
    assert len({task.prompt for task in TASKS}) == 200


def test_every_answer_conforms_to_its_schema_and_has_its_keys_in_order():
    for task in TASKS:
        assert compile_validator(dict(task.schema))(task.answer) == ()
        assert list(task.answer) == list(task.schema["properties"])
        assert MIN_FIELDS <= len(task.answer) <= MAX_FIELDS


def test_every_string_of_an_answer_stands_in_its_text():
    for task in TASKS:
        for name, value in task.answer.items():
            part = task.schema["properties"][name]
            if part["type"] == "string" and "format" not in part:
                assert value in task.prompt


def test_all_kinds_of_fields_occur_often():
    kinds = Counter(
        "date" if "format" in part else "enum" if "enum" in part else part["type"]
        for task in TASKS
        for part in task.schema["properties"].values()
    )
    assert set(kinds) == {
        *("string", "integer", "number", "boolean", "enum", "array", "date", "object")
    }
    assert min(kinds.values()) >= 20
    assert {task.id.split("-")[0] for task in TASKS} == {domain.name for domain in DOMAINS}


# Grades


def test_right_answer_in_any_spacing_is_all_right():
    for task in TASKS[:30]:
        for indent in (None, 2):
            graded = grade(json.dumps(task.answer, indent=indent), task.schema, task.answer)
            assert (graded.accuracy, graded.is_valid) == (1.0, True)


@pytest.mark.parametrize(
    "text",
    [
        "Here it is:\n```json\n" + json.dumps(ANSWER) + "\n```\nAnything else?",
        str(ANSWER),
        json.dumps(ANSWER).replace("}}", "},}"),
        json.dumps({"product": ANSWER}),
        json.dumps({key.upper().replace("_", " "): value for key, value in ANSWER.items()}),
        json.dumps({**ANSWER, "price": "$4.50", "is_new": "yes", "colors": "red and blue"}),
        json.dumps({**ANSWER, "day": "March 1, 2024", "name": " mug ", "more": [1]}),
    ],
    ids=["fenced", "python", "trailing comma", "wrapped", "other keys", "strings", "date"],
)
def test_what_people_repair_by_hand_is_read_as_meant(text):
    assert grade(text, SCHEMA, ANSWER).wrong == ()


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"name": "Mug"}, "name"),
        ({"price": 4.51}, "price"),
        ({"price": True}, "price"),
        ({"is_new": 0}, "is_new"),
        ({"colors": ["blue", "red"]}, "colors"),
        ({"day": "soon"}, "day"),
        ({"maker": "Oslo"}, "maker.city"),
        ({"maker": {}}, "maker.city"),
    ],
)
def test_other_value_is_wrong_in_its_field_alone(change, wrong):
    graded = grade(json.dumps({**ANSWER, **change}), SCHEMA, ANSWER)
    assert graded.wrong == (wrong,)
    assert graded.accuracy == pytest.approx(5 / 6)


def test_members_before_the_break_are_read_of_a_broken_object():
    whole = json.dumps(ANSWER)
    cut = whole[: whole.index("2024")]  # within a date: name, price, is_new and colors are before
    graded = grade(cut, SCHEMA, ANSWER)
    assert graded.wrong == ("day", "maker.city")
    assert read_leniently('{"a": [1, 2, 3') == {"a": [1, 2]}
    assert read_leniently('{"a": {"b": ", }", "c": 2, "d') == {"a": {"b": ", }", "c": 2}}
    assert read_leniently('{"a": 1, "b": 2}}, 3') == {"a": 1, "b": 2}
    assert read_leniently('{"a": 1, "b": 2], "c": 3}') == {"a": 1}


@pytest.mark.parametrize("text", ["", "none", "{", '{"name": "mug"', "{" * 5000])
def test_what_holds_no_object_is_all_wrong_and_invalid(text):
    assert read_leniently(text) is None
    graded = grade(text, SCHEMA, ANSWER)
    assert (graded.accuracy, graded.is_valid) == (0.0, False)


@given(st.text())
def test_no_text_breaks_the_grader(text):
    assert 0 <= grade("{" + text + "}", SCHEMA, ANSWER).accuracy <= 1


# Configurations


def test_default_prompt_is_what_the_library_says_by_itself():
    for task in TASKS[:20]:
        resolved = resolve_options({"schema": task.schema})
        shown = show_schema([{"role": "user", "content": task.prompt}], resolved.target, "auto")
        assert shown[-1]["content"] == DEFAULT.prompt(task)


def test_configurations_ask_for_different_things():
    keys = {output_key(MODEL, TASKS[0], configuration) for configuration in CONFIGURATIONS}
    assert len(keys) == len(CONFIGURATIONS)
    for configuration in CONFIGURATIONS:
        resolve_options(configuration.arguments(TASKS[0]))


def test_default_is_always_among_the_chosen():
    assert [one.name for one in choose_configurations(["pretty"])] == ["default", "pretty"]
    assert choose_configurations(None) == CONFIGURATIONS
    with pytest.raises(InvalidRequest, match="'ugly'"):
        choose_configurations(["ugly"])


# Outputs in a file


def test_file_gives_back_the_last_output_of_a_key_and_ignores_a_cut_line(tmp_path):
    path = tmp_path / "outputs.jsonl"
    file = OutputFile(path)
    file.add(output("default", log_prob=None))
    file.add(output("default", log_prob=-3.0))
    with path.open("a") as handle:
        handle.write('{"key": "cut')
    assert OutputFile(path).get("k") == output("default", log_prob=-3.0)
    assert OutputFile(path).get("other") is None


def test_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(InvalidRequest, match="line 1"):
        OutputFile(path)


# Summaries


def test_difference_is_taken_pair_by_pair():
    default = [float(value) for value in range(50)]
    found = compare([value + 1 for value in default], default)
    assert (found.difference, found.low, found.high) == (1.0, 1.0, 1.0)
    assert not found.is_within_noise


def test_interval_of_a_coin_is_that_of_its_mean():
    found = compare([1.0, -1.0] * 50, [0.0] * 100)
    # the mean of 100 throws of ±1 has standard deviation 1/10
    assert found.is_within_noise
    assert found.low == pytest.approx(-0.196, abs=0.03)
    assert found.high == pytest.approx(0.196, abs=0.03)


def test_unfinished_outputs_count_as_wrong_but_not_in_tokens_per_step():
    tasks = TASKS[:2]
    right = [output("default", json.dumps(task.answer)) for task in tasks]
    cut = output("compact", '{"a', num_steps=None, error="cut")
    found = summarize(tasks, {"default": right, "compact": [right[0], cut]})
    assert found["default"].means["right_fields"].mean == 1
    assert found["compact"].means["right_fields"].difference == -0.5
    assert (found["compact"].num_unfinished, found["compact"].tokens_per_step) == (1, 2.0)


# A real model


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer(MODEL)


def test_kept_prompt_changes_no_log_probability(scorer):
    first, other = scorer.encode('{"a": 1}'), scorer.encode("Hello there")
    alone = scorer.log_prob("Say something.", first)
    scorer.log_prob("Say something.", other)
    assert scorer.log_prob("Say something.", first) == pytest.approx(alone, abs=1e-4)
    scorer.log_prob("Something else.", other)
    assert scorer.log_prob("Say something.", first) == pytest.approx(alone, abs=1e-4)


def test_log_probability_of_a_text_is_that_of_its_tokens_one_after_the_other(scorer):
    first, second = scorer.encode("a b")
    pair = scorer.log_prob("Hi", (first, second))
    assert pair < scorer.log_prob("Hi", (first,)) < 0
    # what may follow the first token shares its probability
    followers = {second, *scorer.encode(" c. , or")}
    together = [scorer.log_prob("Hi", (first, follower)) for follower in followers]
    assert torch.tensor(together).logsumexp(0) < scorer.log_prob("Hi", (first,))


def test_command_resumes_from_its_file_and_prints_the_same(tmp_path, capsys, monkeypatch):
    path, wrong = tmp_path / "outputs.jsonl", tmp_path / "wrong.jsonl"
    arguments = ["bench", "quality", "--tasks", "1", "--only", "free text", "--json"]
    arguments += ["--resume", str(path), "--wrong", str(wrong)]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    found = json.loads(first)
    assert list(found["configurations"]) == ["default", "free text"]
    assert found["configurations"]["default"]["valid"]["mean"] == 1.0
    assert {json.loads(line)["task"] for line in wrong.read_text().splitlines()} <= {
        task.id for task in TASKS[:1]
    }
    monkeypatch.setattr(quality, "LLM", None)
    monkeypatch.setattr(quality, "Scorer", None)
    assert main(arguments) == 0
    assert capsys.readouterr().out == first


def test_mistakes_in_the_call_are_named_before_a_model_is_loaded(capsys):
    assert main(["bench", "quality", "--only", "ugly"]) == 2
    assert "'ugly'" in capsys.readouterr().err
    assert main(["bench", "quality", "--tasks", "0"]) == 2
    assert "--tasks" in capsys.readouterr().err
