from hypothesis import given
from hypothesis import strategies as st

from structspec.output_text import OutputText


def feed(text: OutputText, chunks: list[bytes]) -> list[str]:
    pieces = []
    for chunk in chunks:
        is_stopped = text.append(chunk)
        pieces.append(text.take())
        if is_stopped:
            break
    return [*pieces, text.take_rest()]


@st.composite
def chopped(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    whole = draw(st.text(alphabet="ab,é日😀", max_size=30))
    data = whole.encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return whole, [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@given(chopped())
def test_pieces_join_to_the_whole_text_and_never_split_a_character(case):
    whole, chunks = case
    pieces = feed(OutputText(), chunks)
    assert "".join(pieces) == whole
    assert all("�" not in piece for piece in pieces)


@given(chopped(), st.lists(st.text(alphabet="ab,é", min_size=1, max_size=3), max_size=3))
def test_text_ends_at_the_first_stop_string_however_it_is_chopped(case, stops):
    whole, chunks = case
    text = OutputText(stops)
    pieces = feed(text, chunks)
    byte_by_byte, data = OutputText(stops), whole.encode()
    feed(byte_by_byte, [data[i : i + 1] for i in range(len(data))])
    assert "".join(pieces) == text.text == byte_by_byte.text
    assert text.is_stopped == any(stop in whole for stop in stops)
    assert not any(stop in text.text for stop in stops)


def test_a_possible_start_of_a_stop_string_is_held_back_until_it_is_decided():
    text = OutputText(["END"])
    text.append(b"abE")
    assert text.take() == "ab"
    text.append(b"N")
    assert text.take() == ""
    text.append(b"x")
    assert text.take() == "ENx"


def test_stop_string_is_not_part_of_the_text_and_is_named():
    text = OutputText(["\n\n", "END"])
    assert text.append(b"one END two")
    assert (text.text, text.stop_string) == ("one ", "END")


def test_bytes_that_are_not_utf8_become_replacement_characters():
    text = OutputText()
    text.append(b"a\xffb")
    assert text.take() + text.take_rest() == "a�b"


def test_a_stop_string_that_comes_too_early_is_text_and_the_next_one_ends_it():
    text = OutputText(["aa", "END"])
    for chunk in (b"a", b"ab END"):
        assert not text.append(chunk, may_stop=False)
    assert text.take() + text.take_rest() == "aab END"
    assert not text.append(b" b")
    assert text.append(b"caa")
    assert (text.text, text.stop_string) == ("aab END bc", "aa")


def test_a_stop_string_that_is_complete_in_time_may_have_begun_too_early():
    text = OutputText(["END"])
    assert not text.append(b"one EN", may_stop=False)
    assert text.take() == "one "
    assert text.append(b"D")
    assert text.take_rest() == "" and text.text == "one "
