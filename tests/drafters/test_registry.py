"""Each method's drafter, and classes of one's own."""

import pytest

from structspec import InvalidRequest, SpeculativeConfig
from structspec.drafters.registry import make_drafter
from structspec.engine.batch import guessed
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

BYTES = Vocabulary.bytes()


class Alphabet:
    """Drafts the letter behind the last one."""

    settings = None

    def __init__(self, vocabulary, config):
        Alphabet.settings = vocabulary, config

    def propose(self, batch):
        return guessed([[scheduled.request.token_ids[-1] + 1] for scheduled in batch.requests])


class Mute:
    pass


class Settled(Alphabet):
    def __init__(self):
        pass


def drafted(request, **settings):
    drafter = make_drafter(BYTES, SpeculativeConfig(**settings))
    return bytes(drafter.propose(batch_of(request)).token_ids[0][:5])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("none", b""),
        ("forced", b""),  # nothing constrains
        ("ngram", b"X"),  # the last time
        ("ngram_gpu", b"X"),
        ("suffix", b"c"),  # most often
        ("prediction", b"e"),
        ("hybrid", b"e"),
    ],
)
def test_each_method_drafts_in_its_own_way(method, expected):
    request = start(BYTES, prompt="abcabcabX", written=b"ab")
    request.prediction_token_ids = list(b"abe")
    assert drafted(request, method=method).startswith(expected)


def test_a_class_of_ones_own_is_found_by_its_path_and_told_the_settings():
    config = SpeculativeConfig(model=f"{__name__}.Alphabet")
    drafter = make_drafter(BYTES, config)
    assert Alphabet.settings == (BYTES, config)
    assert bytes(drafter.propose(batch_of(start(BYTES, prompt="m"))).token_ids[0]) == b"n"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module.Drafter", "No module named 'no_such_module'"),
        (f"{__name__}.Missing", "no attribute 'Missing'"),
        (f"{__name__}.Mute", r"no method propose\(batch\)"),
        (f"{__name__}.Settled", r"could not be made of \(vocabulary, config\)"),
    ],
)
def test_a_class_that_is_none_is_refused_by_its_path(path, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        make_drafter(BYTES, SpeculativeConfig(model=path))
    assert path in str(caught.value)
