"""The page as people use it: with a mouse, a keyboard, a phone, and with mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from structspec.service import Service
from tests.playground.browser import Browser
from tests.playground.conftest import KEY, listening

# so that a model of random weights is done soon
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "is_old": {"type": "boolean"}},
    "required": ["name", "is_old"],
}
ORIGINS = ("forced", "drafted", "recovered", "sampled")


def state(page: Browser) -> str:
    return str(page.run("return document.getElementById('status').dataset.state"))


def focused(page: Browser) -> str:
    return str(page.run("return document.activeElement.id"))


def write(page: Browser, schema: Any = SCHEMA) -> None:
    """Ask for JSON of this schema, and wait for its end."""
    page.fill("#constraint", json.dumps(schema, indent=2))
    page.click("#run")
    page.wait(lambda: state(page) in ("done", "cut"), "the output is written")


def counts(page: Browser) -> dict[str, int]:
    words = page.text("#legend").split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def test_the_object_fills_in_with_its_tokens_coloured_by_origin(page: Browser) -> None:
    write(page)
    written = json.loads(page.text("#tokens"))
    assert list(written) == ["name", "is_old"]
    assert page.text("#tokens").startswith('{\n  "name": "')
    assert page.text("#status").startswith("Done, valid: ")
    drawn = {
        origin: page.run(
            "return new Set([...document.querySelectorAll('.token.' + arguments[0])]"
            ".map(token => token.dataset.index)).size",
            origin,
        )
        for origin in ORIGINS
    }
    assert drawn == counts(page)
    assert drawn["forced"] > 0 and sum(drawn.values()) == int(page.text("#status").split()[2])
    stats = page.text("#stats").split("\n")
    assert int(stats[stats.index("Tokens") + 1]) == sum(drawn.values())
    assert "Forward passes" in stats and "Drafts accepted" in stats


def test_json_is_shown_as_it_was_written_too(page: Browser) -> None:
    write(page)
    laid_out = page.text("#tokens")
    page.click("[data-layout=written]")
    assert page.text("#tokens").startswith('{"name": "')
    assert json.loads(page.text("#tokens")) == json.loads(laid_out)
    page.click("[data-layout=indented]")
    assert page.text("#tokens") == laid_out


def test_pointing_at_a_token_shows_what_else_was_allowed(page: Browser) -> None:
    write(page)
    assert not page.run("return document.getElementById('detail').checkVisibility()")
    page.hover('[data-index="0"]')
    assert page.text("#detail").startswith(tuple(ORIGINS))
    assert "to the model alone" in page.text("#detail")
    index = page.run(
        "return [...document.querySelectorAll('.token')].find("
        "token => ['true', 'false'].some(word => word.startsWith(token.textContent[0]))"
        " && !token.classList.contains('forced')).dataset.index"
    )
    page.hover(f'[data-index="{index}"]')
    shares = [share.split()[-1] for share in page.text(".alternatives").split("\n")[2::2]]
    assert 1 <= len(shares) <= 5


def test_everything_is_done_with_the_keyboard_alone(page: Browser) -> None:
    """Skip link, prompt, run, Stop keeps the focus, tokens with arrows, tabs with arrows."""
    page.press("Tab")
    assert page.run("return document.activeElement.className") == "skip"
    page.press("Enter", "Tab")
    page.fill("#constraint", json.dumps(SCHEMA))
    page.press("Control+Enter")
    page.wait(lambda: state(page) == "done", "the output is written")
    for _ in range(20):
        page.press("Tab")
        if page.run("return document.activeElement.classList.contains('token')"):
            break
    assert page.run("return document.activeElement.dataset.index") == "0"
    label = page.run("return document.activeElement.getAttribute('aria-label')")
    assert label.startswith("{") and label.endswith(tuple(ORIGINS))
    first = page.text("#detail")
    page.press("ArrowRight")
    assert page.run("return document.activeElement.dataset.index") == "1"
    page.press("End", "ArrowRight")
    last = page.run("return Number(document.activeElement.dataset.index)")
    assert last == sum(counts(page).values()) - 1
    page.press("ArrowUp")
    above = page.run("return Number(document.activeElement.dataset.index)")
    assert 0 < above < last
    page.press("Home")
    assert page.text("#detail") == first
    page.press("Escape")
    assert not page.run("return document.getElementById('detail').checkVisibility()")
    page.press("Tab")
    assert focused(page) == "tab-curl"
    page.press("ArrowRight")
    assert focused(page) == "tab-python" and page.text("#snippet").startswith("from structspec")


def test_the_focus_goes_from_run_to_stop_and_back(page: Browser, service: Service) -> None:
    ask_for_long_text(page)
    page.run("document.getElementById('run').focus()")
    page.press("Enter")
    assert focused(page) == "stop"
    page.wait(lambda: counts(page)["sampled"] > 3, "some tokens are there")
    page.press("Enter")
    page.wait(lambda: state(page) == "cut", "it has stopped")
    assert focused(page) == "run"


def ask_for_long_text(page: Browser) -> None:
    page.fill("#max-tokens", "1500")
    page.fill("#constraint", json.dumps({"type": "string", "minLength": 1500}))


def test_stop_cancels_the_request_in_the_engine(page: Browser, service: Service) -> None:
    ask_for_long_text(page)
    page.click("#run")
    page.wait(lambda: counts(page)["sampled"] > 3, "some tokens are there")
    assert service.metrics().num_requests_running == 1
    page.click("#stop")
    page.wait(lambda: state(page) == "cut", "it has stopped")
    assert page.text("#status").startswith("Stopped after ")
    page.wait(lambda: service.metrics().num_requests_running == 0, "nothing runs any more")
    assert sum(counts(page).values()) < 1500


def test_a_fault_of_the_schema_is_named_by_its_pointer_and_marked(page: Browser) -> None:
    schema = {**SCHEMA, "properties": {"a/b": {"type": "string", "minLength": "many"}}}
    page.fill("#constraint", json.dumps(schema, indent=2))
    page.click("#run")
    page.wait(lambda: state(page) == "failed", "it is refused")
    assert page.text("#error-place") == "#/properties/a~1b/minLength"
    assert "'many' is not of type" in page.text("#error-message")
    assert page.run("return document.querySelector('#marks mark').textContent") == (
        '"minLength": "many"'
    )
    page.click("#error-show")
    assert focused(page) == "constraint"
    chosen = (
        "const f = document.activeElement; return f.value.slice(f.selectionStart, f.selectionEnd)"
    )
    assert page.run(chosen) == '"minLength": "many"'
    write(page)
    assert not page.run("return document.getElementById('error').checkVisibility()")
    assert page.run("return document.getElementById('marks').textContent") == ""


def choose_kind(page: Browser, kind: str) -> None:
    page.run(
        "const kind = document.getElementById('kind'); kind.value = arguments[0];"
        "kind.dispatchEvent(new Event('change', {bubbles: true}))",
        kind,
    )


def test_a_key_with_blanks_is_found_too(page: Browser) -> None:
    schema = {"type": "object", "properties": {"full name: ": {"type": "text"}}}
    page.fill("#constraint", json.dumps(schema, indent=2))
    page.click("#run")
    page.wait(lambda: state(page) == "failed", "it is refused")
    assert page.text("#error-place").rstrip() == "#/properties/full name: /type"
    assert page.run("return document.querySelector('#marks mark').textContent") == '"type": "text"'


def test_what_was_pasted_is_there_when_one_comes_back(page: Browser) -> None:
    page.fill("#constraint", '{"const": 1}')
    choose_kind(page, "regex")
    page.fill("#constraint", "ab?")
    choose_kind(page, "schema")
    assert page.run("return document.getElementById('constraint').value") == '{"const": 1}'
    choose_kind(page, "regex")
    assert page.run("return document.getElementById('constraint').value") == "ab?"


def test_what_a_model_writes_stays_text(page: Browser) -> None:
    choose_kind(page, "choice")
    page.fill("#constraint", "<img src=x onerror=document.title='gone'><b>bold</b>")
    page.click("#run")
    page.wait(lambda: state(page) == "done", "the output is written")
    assert page.text("#tokens") == "<img src=x onerror=document.title='gone'><b>bold</b>"
    assert page.run("return document.querySelectorAll('#tokens img, #tokens b').length") == 0


def test_a_server_that_has_gone_is_told_of(page: Browser, service: Service) -> None:
    with listening(service) as address:
        page.open(address)
        page.wait(lambda: page.text("#model") == "toy", "the model's name is shown")
    page.click("#run")
    page.wait(lambda: state(page) == "failed", "nobody answers")
    assert page.text("#error-title") == "The server was not reached"
    assert any("ERR_CONNECTION_REFUSED" in problem for problem in page.problems())


@pytest.mark.parametrize(
    ("kind", "constraint", "says", "marked"),
    [
        ("schema", '{\n  "type": "string",\n}', "Line 3 is not JSON: no comma may stand", "}"),
        ("schema", '{"type" "string"}', 'Line 1 is not JSON: ":" must stand here', '"'),
        ("regex", "ab(c", "a group is not closed", None),
        ("grammar", "start: word\nword: foo", 'unknown name: "foo"', "f"),
        ("choice", " ", "The constraint is empty", None),
    ],
)
def test_other_faults_are_told_where_they_are(
    page: Browser, kind: str, constraint: str, says: str, marked: str | None
) -> None:
    choose_kind(page, kind)
    page.fill("#constraint", constraint)
    page.click("#run")
    page.wait(lambda: state(page) == "failed", "it is refused")
    assert says in page.text("#error-message")
    if marked is not None:
        assert page.run("return document.querySelector('#marks mark').textContent") == marked


def test_what_is_cut_off_says_so(page: Browser) -> None:
    ask_for_long_text(page)
    page.fill("#max-tokens", "5")
    page.click("#run")
    page.wait(lambda: state(page) == "cut", "it is cut")
    assert page.text("#status") == "Cut off after 5 tokens: raise max tokens"


def test_nothing_is_wider_than_a_phone(page: Browser) -> None:
    page.show_as(360, 740)
    width = "return document.documentElement.scrollWidth"
    assert page.run(width) <= 360
    write(page)
    assert page.run(width) <= 360
    page.run("document.querySelector('.token').click()")
    edges = page.run(
        "const r = document.getElementById('detail').getBoundingClientRect();"
        "return [r.left, r.top, innerWidth - r.right, innerHeight - r.bottom]"
    )
    assert min(edges) >= 0
    lit = "return document.querySelector('.is-lit').getBoundingClientRect().bottom"
    assert page.run(lit) < edges[1]  # and what it is about is not behind it
    write_fault = {**SCHEMA, "required": "name"}
    page.fill("#constraint", json.dumps(write_fault))
    page.click("#run")
    page.wait(lambda: state(page) == "failed", "it is refused")
    assert page.run(width) <= 360
    is_in_view = "return document.getElementById('error').getBoundingClientRect().top < innerHeight"
    assert page.run(is_in_view)


def test_stop_is_at_hand_on_a_phone(page: Browser) -> None:
    page.show_as(360, 740)
    ask_for_long_text(page)
    page.click("#run")
    page.wait(lambda: counts(page)["sampled"] > 3, "some tokens are there")
    bottom = "return innerHeight - document.getElementById('stop').getBoundingClientRect().bottom"
    assert 0 <= page.run(bottom) < 60
    page.click("#stop")
    page.wait(lambda: state(page) == "cut", "it has stopped")


def test_it_is_dark_for_who_likes_it_dark_and_still_for_who_likes_it_still(page: Browser) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.show_as(1280, 900, "dark", "reduce")
    assert page.run(colour) != light
    page.run("document.getElementById('status').dataset.state = 'writing'")
    moving = "return getComputedStyle(document.getElementById('status'), '::before').animationName"
    assert page.run(moving) == "none"


def test_screen_readers_are_told_the_object_and_how_it_ended(page: Browser) -> None:
    page.run(
        "window.told = []; new MutationObserver(() =>"
        " told.push(document.getElementById('live').textContent)"
        ").observe(document.getElementById('live'), {childList: true})"
    )
    write(page)
    told = page.run("return told")
    assert told[-1].endswith(" tokens.") and "Done, valid" in told[-1]
    assert '"name"' in "".join(told)


def test_where_a_key_is_needed_it_is_asked_for(page: Browser, url_with_key: str) -> None:
    page.open(url_with_key)
    page.wait(lambda: state(page) == "failed", "the key is missing")
    assert page.text("#error-title") == "This server asks for an API key"
    page.fill("#key", KEY)
    page.run("document.getElementById('key').dispatchEvent(new Event('change'))")
    page.wait(lambda: page.text("#model") == "toy", "the model's name is shown")
    write(page)
    assert "$STRUCTSPEC_API_KEY" in page.text("#snippet") and KEY not in page.text("#snippet")


@pytest.mark.parametrize("language", ["curl", "python"])
def test_the_code_beside_it_does_the_same(page: Browser, language: str) -> None:
    write(page)
    written = json.loads(page.text("#tokens"))
    page.click(f"#tab-{language}")
    code = page.run("return document.getElementById('snippet-code').textContent")
    if language == "curl":
        assert shutil.which("curl")
        command = ["bash", "-c", code.replace("curl ", "curl -s ", 1)]
    else:
        command = [sys.executable, "-c", code.replace("print(answer)", "print(repr(answer))")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if language == "curl":
        assert json.loads(json.loads(done.stdout)["choices"][0]["message"]["content"]) == written
    else:
        assert done.stdout.strip() == repr(written)
