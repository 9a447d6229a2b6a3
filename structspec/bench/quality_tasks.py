"""Extraction tasks with known answers: text from templates, a schema, and the object it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from structspec.bench.quality_domains import DOMAINS
from structspec.bench.quality_fields import object_schema

MIN_FIELDS, MAX_FIELDS = 3, 6


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """One text, what to extract from it, and the right answer."""

    id: str
    prompt: str
    schema: Mapping[str, Any]
    answer: Mapping[str, Any]


def make_tasks(count: int, seed: int = 0) -> list[ExtractionTask]:
    """The first `count` tasks of a seed; task i is the same whatever the count."""
    return [_make_task(index, seed) for index in range(count)]


def _make_task(index: int, seed: int) -> ExtractionTask:
    rng = Random(f"{seed}:{index}")
    domain = DOMAINS[index % len(DOMAINS)]
    num_others = rng.randint(MIN_FIELDS, MAX_FIELDS) - 1
    others = sorted(rng.sample(range(len(domain.others)), num_others))
    fields = [domain.subject, *(domain.others[i] for i in others)]
    answer, sentences = {}, []
    for field in fields:
        answer[field.name], sentence = field.draw(rng)
        sentences.append(sentence)
    subject, *rest = sentences
    if rng.random() < 0.5:  # else the text says things in the schema's order
        rng.shuffle(rest)
    prompt = f"Extract the {domain.name} from this text: {' '.join([subject, *rest])}"
    return ExtractionTask(f"{domain.name}-{seed}-{index}", prompt, object_schema(fields), answer)
