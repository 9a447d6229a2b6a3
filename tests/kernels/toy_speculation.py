"""Speculative sampling on a toy vocabulary, enumerated: every draft, every uniform of a grid.

With N equally spaced uniforms an event of probability m/N happens for exactly m of them, so the
emitted distribution comes out as exact fractions and is compared with `==`.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm

import torch

from structspec.kernels.rejection_sample import rejection_sample_reference


@dataclass(frozen=True)
class Toy:
    """Two models over few tokens: a row of weights for each position.

    To make rows depend on what was written before, a row is rotated by the sum of the prefix.
    """

    target: tuple  # one row more than drafts, not masked yet
    drafter: tuple | None = None  # None: a one-hot drafter that proposes `one_hot`
    one_hot: tuple = ()
    forbidden: frozenset = frozenset()  # (position, token) pairs the grammar refuses

    @property
    def num_drafts(self):
        return len(self.target) - 1

    def p(self, position, prefix=()):
        """The masked target."""
        row = rotate(self.target[position], sum(prefix))
        row = [0 if (position, t) in self.forbidden else weight for t, weight in enumerate(row)]
        return normalise(row)

    def q(self, position, prefix=()):
        """What the drafter draws from; it knows nothing of the grammar."""
        if self.drafter is None:
            row = [0] * len(self.target[0])
            row[self.one_hot[position]] = 1
            return normalise(row)
        return normalise(rotate(self.drafter[position], sum(prefix)))


ONE_HOT = {
    "no-draft": Toy(((3, 4, 1, 2),)),
    "likely-draft": Toy(((1, 7, 1, 1), (3, 3, 2, 2)), one_hot=(1,)),
    "impossible-draft": Toy(((1, 7, 0, 2), (3, 3, 2, 2)), one_hot=(2,)),
    "certain-draft": Toy(((0, 10, 0, 0), (3, 3, 2, 2)), one_hot=(1,)),
    "two-drafts": Toy(((1, 7, 1, 1), (4, 3, 1, 2), (1, 2, 3, 4)), one_hot=(1, 2)),
    "three-drafts": Toy(((1, 5, 4), (2, 4, 4), (1, 3, 6), (1, 2, 7)), one_hot=(1, 1, 0)),
    "first-forbidden": Toy(
        ((1, 7, 1, 1), (4, 3, 1, 2)), one_hot=(1,), forbidden=frozenset({(0, 1)})
    ),
    "second-forbidden": Toy(
        ((1, 7, 1, 1), (4, 3, 1, 2), (1, 2, 3, 4)), one_hot=(1, 2), forbidden=frozenset({(1, 2)})
    ),
    "third-forbidden": Toy(
        ((1, 5, 4), (2, 4, 4), (1, 3, 6), (1, 2, 7)),
        one_hot=(1, 1, 0),
        forbidden=frozenset({(2, 0), (0, 2)}),
    ),
}

P3, Q3 = ((1, 2, 1), (2, 1, 1), (1, 1, 2), (1, 1, 2)), ((1, 1, 2), (2, 1, 1), (1, 2, 1))
PROBABILISTIC = {
    "one-draft": Toy(((1, 4, 3, 2), (3, 3, 2, 2)), ((4, 1, 3, 2),)),
    "drafter-is-the-target": Toy(((1, 4, 3, 2), (3, 3, 2, 2)), ((1, 4, 3, 2),)),
    "disjoint-drafter": Toy(((0, 0, 7, 3), (3, 3, 2, 2)), ((6, 4, 0, 0),)),
    "two-drafts": Toy(((1, 4, 3), (3, 3, 2), (1, 5, 4)), ((4, 1, 3), (2, 2, 4))),
    "three-drafts": Toy(P3, Q3),
    "first-forbidden": Toy(
        ((1, 4, 3, 2), (3, 3, 2, 2)), ((4, 1, 3, 2),), forbidden=frozenset({(0, 0)})
    ),
    "second-forbidden": Toy(
        ((1, 4, 3), (3, 3, 2), (1, 5, 4)),
        ((4, 1, 3), (2, 2, 4)),
        forbidden=frozenset({(1, 2), (2, 0)}),
    ),
    "third-forbidden": Toy(P3, Q3, forbidden=frozenset({(2, 1), (1, 0)})),
    "only-one-token-legal": Toy(
        ((1, 4, 3), (3, 3, 2)), ((4, 1, 3),), forbidden=frozenset({(0, 0), (0, 1)})
    ),
}

# The example of docs: the drafter does not know that the grammar forbids the last token.
FOUR_TOKENS = Toy(((4, 2, 1, 3), (1, 1, 1, 1)), ((1, 3, 1, 5),), forbidden=frozenset({(0, 3)}))


def rotate(row, by):
    by %= len(row)
    return row[by:] + row[:by]


def normalise(row):
    return [Fraction(weight, sum(row)) for weight in row]


def drafts_with_probability(toy):
    """Every draft the drafter can make, with the probability that it makes it."""
    drafts = {(): Fraction(1)}
    for position in range(toy.num_drafts):
        drafts = {
            (*draft, t): weight * q
            for draft, weight in drafts.items()
            for t, q in enumerate(toy.q(position, draft))
            if q > 0
        }
    return drafts


def num_valid(toy, draft):
    """How many tokens of the draft the grammar takes."""
    for position, token in enumerate(draft):
        if (position, token) in toy.forbidden:
            return position
    return len(draft)


def acceptance(toy, draft, position):
    """min(1, p/q) of one drafted token, as the theory has it."""
    prefix, token = draft[:position], draft[position]
    return min(Fraction(1), toy.p(position, prefix)[token] / toy.q(position, prefix)[token])


def drawn_distributions(toy, draft):
    """What the last token of a step may be drawn from: each position's residual, and the bonus."""
    for position in range(len(draft)):
        prefix = draft[:position]
        p, q = toy.p(position, prefix), toy.q(position, prefix)
        residual = [max(x - y, Fraction(0)) for x, y in zip(p, q, strict=True)]
        if any(residual):
            yield [x / sum(residual) for x in residual]
    yield toy.p(len(draft), draft)


def uniform_grid(toy, draft):
    """For each random number equally spaced values, so many that thresholds lie between two."""
    sizes = [acceptance(toy, draft, position).denominator for position in range(len(draft))]
    sizes.append(lcm(*(x.denominator for row in drawn_distributions(toy, draft) for x in row)))
    return list(product(*([(i + 0.5) / size for i in range(size)] for size in sizes)))


def run_grid(toy, draft, sample):
    """The kernel's outputs for one draft under every uniform of the grid, one request each."""
    k, grid = len(draft), uniform_grid(toy, draft)
    rows = [toy.p(position, draft[:position]) for position in range(k + 1)]
    q_rows = [toy.q(position, draft[:position]) for position in range(k)]
    uniforms = torch.tensor(grid, dtype=torch.float64)
    is_one_hot = toy.drafter is None
    token_ids, num_accepted = sample(
        as_tensor(rows).repeat(len(grid), 1),
        torch.tensor(draft * len(grid), dtype=torch.int64),
        None if is_one_hot else as_tensor(q_rows),
        None if is_one_hot else torch.arange(k).repeat(len(grid)),
        torch.arange(len(grid) + 1, dtype=torch.int32) * k,
        torch.full((len(grid),), num_valid(toy, draft), dtype=torch.int32),
        uniforms[:, :-1].flatten().contiguous(),
        uniforms[:, -1].contiguous(),
        k,
    )
    for row, n in zip(token_ids.tolist(), num_accepted.tolist(), strict=True):
        assert row[:n] == list(draft[:n])
        assert row[n + 1 :] == [-1] * (k - n)
        yield tuple(row[: n + 1])


def as_tensor(rows):
    width = len(rows[0]) if rows else 1
    return torch.tensor([[float(x) for x in row] for row in rows]).view(-1, width)


def emitted_distribution(toy, sample=rejection_sample_reference, cut=None):
    """Exact distribution of the first num_drafts + 1 tokens that the output consists of.

    Where a step emits fewer, later steps write the rest; they draw from the masked target.
    `cut` shortens a draft before it is verified.
    """
    distribution = defaultdict(Fraction)
    for draft, weight in drafts_with_probability(toy).items():
        outputs = list(run_grid(toy, cut(toy, draft) if cut else draft, sample))
        for output, count in Counter(outputs).items():
            for sequence, rest in continuations(toy, output).items():
                distribution[sequence] += weight * rest * Fraction(count, len(outputs))
    return dict(distribution)


def continuations(toy, prefix):
    """Every full-length sequence behind `prefix`, with its probability under the masked target."""
    sequences = {prefix: Fraction(1)}
    for position in range(len(prefix), toy.num_drafts + 1):
        sequences = {
            (*sequence, t): weight * p
            for sequence, weight in sequences.items()
            for t, p in enumerate(toy.p(position, sequence))
            if p > 0
        }
    return sequences


def target_distribution(toy):
    """What the masked target writes on its own."""
    return continuations(toy, ())


def random_batch(lengths, vocab_size, device):
    """Requests with these numbers of drafts, every other one with a q of its own."""
    generator = torch.Generator().manual_seed(vocab_size + sum(lengths))
    num_requests, num_drafts = len(lengths), sum(lengths)

    def probs(num_rows):
        logits = torch.randn(num_rows, vocab_size, generator=generator)
        return (logits * 3).softmax(-1).to(device)

    def integers(high, count):
        return torch.randint(high, (count,), generator=generator)

    target_probs = probs(num_drafts + num_requests)
    request_of_draft = torch.arange(num_requests).repeat_interleave(torch.tensor(lengths))
    # Drafts are mostly what the target wants, so that acceptances happen too.
    best = target_probs.argmax(-1).cpu()[torch.arange(num_drafts) + request_of_draft]
    drafts = torch.where(integers(4, num_drafts) > 0, best, integers(vocab_size, num_drafts))
    is_one_hot = request_of_draft % 2 == 0
    q_rows = torch.where(is_one_hot, -1, (~is_one_hot).cumsum(0) - 1)
    return (
        target_probs,
        drafts.to(device),
        probs(int((~is_one_hot).sum())),
        q_rows.to(device),
        torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32),
        integers(6, num_requests).to(device, torch.int32),
        torch.rand(num_drafts, dtype=torch.float64, generator=generator).to(device),
        torch.rand(num_requests, dtype=torch.float64, generator=generator).to(device),
        max(lengths),
    )


BATCHES = [
    ([0], 1),
    ([3], 5),
    ([4, 0, 2, 1, 5], 123),
    ([5, 5, 5, 5, 5, 2], 31),  # 33 rows
    ([2, 3], 4097),
    ([2, 1], 128256),
    ([1], 151936),
]
