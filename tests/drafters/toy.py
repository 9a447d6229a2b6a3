"""A byte-level grammar of a few whole texts, kept by the laws of Matcher and nothing else."""

import os

from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary


class TextsMatcher:
    """Accepts exactly the given byte strings, then stop tokens."""

    def __init__(self, vocabulary, texts):
        self.vocabulary = vocabulary
        self.texts = texts
        self.token_ids = []

    @property
    def written(self):
        return self.vocabulary.decode_bytes(self.token_ids)

    @property
    def is_stopped(self):
        return bool(self.token_ids) and self.token_ids[-1] in self.vocabulary.stop_token_ids

    def is_allowed(self, token_id):
        if token_id in self.vocabulary.stop_token_ids:
            return self.is_stopped or self.written in self.texts
        data = self.vocabulary.token_bytes[token_id]
        return not self.is_stopped and data is not None and self.is_prefix(self.written + data)

    def is_prefix(self, data):
        return any(text.startswith(data) for text in self.texts)

    def fill(self, bitmask, row, budget=None):
        bitmask[row] = 0
        words = bitmask[row].view("uint32")
        for token_id in range(self.vocabulary.vocab_size):
            if self.is_allowed(token_id):
                words[token_id // 32] |= 1 << token_id % 32

    def accept(self, token_id):
        is_allowed = self.is_allowed(token_id)
        if is_allowed:
            self.token_ids.append(token_id)
        return is_allowed

    def rollback(self, num_tokens):
        assert num_tokens <= len(self.token_ids)
        del self.token_ids[len(self.token_ids) - num_tokens :]

    def forced(self, limit):
        if self.is_stopped:
            return b""
        left = [text[len(self.written) :] for text in self.texts if text.startswith(self.written)]
        return os.path.commonprefix(left)[:limit]

    def forced_tokens(self, limit: int) -> list[int]:
        return []

    def tokens_to_end(self):
        return None


def words_vocabulary(*words):
    """Bytes are tokens 0 to 255, then come these words and a stop token; the longest wins."""
    tokens = [*(bytes([i]) for i in range(256)), *(word.encode() for word in words), None]
    by_length = sorted(words, key=len, reverse=True)

    def encode_text(text):
        token_ids = []
        while text:
            word = next((w for w in by_length if text.startswith(w)), None)
            if word is None:
                token_ids += text[0].encode()
                text = text[1:]
            else:
                token_ids.append(256 + words.index(word))
                text = text[len(word) :]
        return token_ids

    return Vocabulary(tuple(tokens), (len(tokens) - 1,), encode_text)


def start(vocabulary, texts=None, *, prompt="", written=(), request_id=0, **params):
    """A request in the middle of its output; `texts` None is unconstrained."""
    prompt_token_ids = vocabulary.encode_text(prompt) or [0]
    request = Request(request_id, prompt_token_ids, SamplingParams(**params), 1000)
    if texts is not None:
        request.matcher = TextsMatcher(vocabulary, [text.encode() for text in texts])
    write(request, written)
    return request


def write(request, token_ids):
    """Append output tokens, as an engine step would."""
    for token_id in token_ids:
        assert request.matcher is None or request.matcher.accept(token_id)
        request.token_ids.append(token_id)


def batch_of(*requests, num_draft_slots=15, is_sampled=True):
    """All of them in one step."""
    return Batch([ScheduledRequest(r, 1, num_draft_slots, is_sampled) for r in requests])
