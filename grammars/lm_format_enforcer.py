"""lm-format-enforcer behind the laws of `Matcher`: slow and far from exact, only on request.

It walks characters, so tokens that hold a part of a character are never allowed. Of a JSON schema
nothing is called enforced: it ignores keywords and JSON's own rules here and there, and leaves
white space free. Its parsers share state between each other, so every matcher has its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import numpy as np
from interegular import InvalidSyntax, Unsupported
from interegular.fsm import anything_else
from lmformatenforcer import (
    CharacterLevelParser,
    CharacterLevelParserConfig,
    JsonSchemaParser,
    RegexParser,
    StringParser,
    TokenEnforcer,
    TokenEnforcerTokenizerData,
    UnionParser,
)
from lmformatenforcer.tokenlist import TokenList

from structspec.constraint import Choice, Constraint, JsonSchema, Regex
from structspec.errors import UnsupportedConstraint
from structspec.grammars.base import (
    Bitmask,
    FillJob,
    Finding,
    Look,
    MatcherFailed,
    Move,
    Packed,
    Report,
    Row,
    Seen,
    check_refused,
)
from structspec.grammars.choice import check_choices
from structspec.grammars.closed import close_objects
from structspec.grammars.drafts import (
    fill_job,
    fill_stop_row,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from structspec.grammars.json_schema import parse
from structspec.grammars.keywords import findings
from structspec.grammars.lm_format_enforcer_json import check_readable, make_readable
from structspec.grammars.probe import probe
from structspec.grammars.regex import translate
from structspec.vocabulary import Vocabulary

_NAME = "lm-format-enforcer"
_MAX_BLANKS = 8
_UNESCAPED = re.compile(r'[^"]*[\0-\x1f]')  # a control character inside of the string
_NOT_EXACT = "lm-format-enforcer was not seen to hold it; the finished text is validated"


class LMFormatEnforcerBackend:
    """Compiles regexes, choices and, approximately, JSON schemas; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokens = TokenEnforcerTokenizerData(
            [(token_id, text, True) for token_id, text in _texts(vocabulary)],
            vocabulary.decode_bytes,
            vocabulary.stop_token_ids[0],
            use_bitmask=False,
            vocab_size=vocabulary.vocab_size,
        )
        self.config = CharacterLevelParserConfig(
            alphabet=self.tokens.tokenizer_alphabet, max_consecutive_whitespaces=_MAX_BLANKS
        )
        # in a JSON string control characters are escaped
        self.json_config = CharacterLevelParserConfig(
            alphabet="".join(c for c in self.tokens.tokenizer_alphabet if c >= " "),
            max_consecutive_whitespaces=_MAX_BLANKS,
        )

    def report(self, constraint: Constraint) -> Report:
        """What lm-format-enforcer would do with each part of `constraint`."""
        match constraint:
            case JsonSchema():
                return _json_report(constraint)
            case Regex() | Choice():
                return Report(_NAME, enforced=(Finding("", type(constraint).__name__.lower()),))
            case _:
                reason = "lm-format-enforcer reads JSON schemas, regexes and choices only"
                return Report(_NAME, refused=(Finding("", type(constraint).__name__, reason),))

    def compile(self, constraint: Constraint) -> LMFormatEnforcerGrammar:
        """Compile; raises GrammarError with the place."""
        start = time.perf_counter()
        report = self.report(constraint)
        check_refused(report)
        grammar = LMFormatEnforcerGrammar(self, self._parser_maker(constraint), report)
        probe(grammar, self.vocabulary)
        grammar.compile_ms = (time.perf_counter() - start) * 1e3
        return grammar

    def unpack(self, packed: Packed) -> LMFormatEnforcerGrammar:
        """There is nothing to unpack."""
        raise ValueError("lm-format-enforcer's grammars cannot be packed")

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill many requests' rows, one by one: all of it is Python."""
        return [fill_job(job, bitmask) for job in jobs]

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """Move matchers one by one."""
        return take_each(moves)

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers one by one."""
        return take_allowed(moves)

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move matchers one by one."""
        return take_first_allowed(moves)

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """Look ahead of matchers one by one."""
        return look_each(looks)

    def _parser_maker(self, constraint: Constraint) -> Callable[[], CharacterLevelParser]:
        match constraint:
            case JsonSchema():
                document = parse(constraint)
                if constraint.closed:
                    close_objects(document)
                make_readable(document, set(self.json_config.alphabet))
                check_readable(document, self.json_config)
                root = document.root if isinstance(document.root, dict) else None
                return lambda: JsonSchemaParser(root, self.json_config)
            case Regex():
                made = self._regex_parser(constraint)
                return lambda: made
            case Choice():
                choices = check_choices(constraint)
                self._check_characters({c for choice in choices for c in choice})
                return lambda: UnionParser([StringParser(choice) for choice in choices])
        raise AssertionError("refused by the report")

    def _regex_parser(self, constraint: Regex) -> CharacterLevelParser:
        pattern = translate(constraint.pattern)
        try:
            parser = RegexParser(pattern, self.config)
        except (InvalidSyntax, Unsupported, ValueError) as error:
            raise UnsupportedConstraint(
                f"lm-format-enforcer cannot read the regex: {error}"
            ) from None
        alphabet = parser.context.pattern.alphabet
        self._check_characters({c for c in alphabet if c != anything_else})
        return parser

    def _check_characters(self, characters: set[str]) -> None:
        """Raise UnsupportedConstraint where the walk could come to what it cannot write."""
        if missing := characters.difference(self.tokens.tokenizer_alphabet):
            raise UnsupportedConstraint(
                f"lm-format-enforcer cannot write {min(missing)!r}: no token is this character"
            )


class LMFormatEnforcerGrammar:
    """One constraint; what is computed for it lives in its matchers."""

    def __init__(
        self,
        backend: LMFormatEnforcerBackend,
        make_parser: Callable[[], CharacterLevelParser],
        report: Report,
    ) -> None:
        self.backend = backend
        self.report = report
        self.wide_row: Row | None = None
        self.start_row: Row | None = None
        self.compile_ms = 0.0
        self.num_bytes = 10_000  # a parser; it keeps no tables
        self._make_parser = make_parser

    def expect(self) -> None:
        """Nothing is to be prepared."""

    def matcher(self) -> LMFormatEnforcerMatcher:
        """A matcher at the start of the text; reads a JSON schema once more."""
        try:
            parser = self._make_parser()
        except Exception as error:  # it raises whatever Python does with a schema it did not expect
            raise UnsupportedConstraint(f"lm-format-enforcer refuses the schema: {error}") from None
        return LMFormatEnforcerMatcher(_Walker(self.backend.tokens, parser), self.backend)

    def pack(self) -> None:
        """Its parsers do not cross processes."""


class LMFormatEnforcerMatcher:
    """One request's position: a parser and a row for each token. Stop tokens are counted here."""

    __slots__ = ("_num_stops", "_parsers", "_rows", "_vocabulary", "_walker")

    def __init__(self, walker: _Walker, backend: LMFormatEnforcerBackend) -> None:
        self._walker = walker
        self._vocabulary = backend.vocabulary
        self._parsers: list[CharacterLevelParser] = [walker.root_parser]
        self._rows: list[Bitmask | None] = [None]
        self._num_stops = 0

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`; the budget is ignored."""
        if self._num_stops:
            fill_stop_row(bitmask, row, self._vocabulary.stop_token_ids)
        else:
            bitmask[row] = self._row()

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        stops = self._vocabulary.stop_token_ids
        if self._num_stops:
            self._num_stops += token_id in stops
            return token_id in stops
        if not 0 <= token_id < self._vocabulary.vocab_size:
            return False
        if not (int(self._row()[token_id // 32]) >> (token_id % 32)) & 1:
            return False
        if token_id in stops:
            self._num_stops = 1
            return True
        self._parsers.append(self._walker.after(self._parsers[-1], token_id))
        self._rows.append(None)
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens, stop tokens included."""
        num_stops = min(num_tokens, self._num_stops)
        self._num_stops -= num_stops
        num_left = len(self._parsers) - (num_tokens - num_stops)
        del self._parsers[num_left:], self._rows[num_left:]

    def forced(self, limit: int) -> bytes:
        """Nothing: a parser knows one character at a time."""
        return b""

    def forced_tokens(self, limit: int) -> list[int]:
        """None: where text is forced the masks show all that spell it."""
        return []

    def tokens_to_end(self) -> int | None:
        """lm-format-enforcer cannot know."""
        return None

    def _row(self) -> Bitmask:
        """What is allowed here, computed once."""
        row = self._rows[-1]
        if row is None:
            row = self._rows[-1] = self._make_row(self._parsers[-1])
        return row

    def _make_row(self, parser: CharacterLevelParser) -> Bitmask:
        vocabulary = self._vocabulary
        row = np.zeros((1, vocabulary.num_words), np.int32)
        if parser.can_end():
            fill_stop_row(row, 0, vocabulary.stop_token_ids)
        allowed = np.zeros(32 * vocabulary.num_words, np.uint8)
        allowed[self._walker.allowed(parser)] = 1
        row[0] |= np.packbits(allowed, bitorder="little").view(np.int32)
        if not row.any():
            raise MatcherFailed("lm-format-enforcer came to where nothing is allowed")
        filled: Bitmask = row[0]
        return filled


class _Walker(TokenEnforcer):  # type: ignore[misc]
    """The library's walk over all tokens, without what it does when that fails: allow the end."""

    def allowed(self, parser: CharacterLevelParser) -> list[int]:
        """The text tokens allowed in this state."""
        tokens = TokenList(False, self.vocab_size)
        shortcut = parser.shortcut_key()
        try:
            self._collect_allowed_tokens(parser, self.tokenizer_tree.root, tokens, shortcut)
        except Exception as error:
            raise MatcherFailed(f"lm-format-enforcer failed: {error!r}") from error
        ids: list[int] = tokens.allowed_tokens
        if shortcut is None:
            return ids
        # in the text of a string it takes all tokens, without asking for their characters
        texts = self.tokenizer_tree.tokens_to_strs
        return [i for i in ids if _UNESCAPED.match(texts[i]) is None]

    def after(self, parser: CharacterLevelParser, token_id: int) -> CharacterLevelParser:
        """The state behind an allowed token."""
        for character in self.tokenizer_tree.tokens_to_strs[token_id]:
            parser = parser.add_character(character)
        return parser


def _texts(vocabulary: Vocabulary) -> list[tuple[int, str]]:
    """The tokens that are whole characters."""
    texts: list[tuple[int, str]] = []
    for token_id, data in enumerate(vocabulary.token_bytes):
        try:
            texts.append((token_id, (data or b"").decode()))
        except UnicodeDecodeError:
            continue  # a part of a character
    return [(token_id, text) for token_id, text in texts if text]


def _json_report(constraint: JsonSchema) -> Report:
    document = parse(constraint)
    changes = close_objects(document) if constraint.closed else ()
    style = Finding("#", "style", f"white space is free, up to {_MAX_BLANKS} blanks in a row")
    lost = tuple(
        Finding(finding.pointer, finding.keyword, _NOT_EXACT)
        for finding in findings(document.nodes())
    )
    return Report(_NAME, approximated=(style, *lost), changes=changes)
