"""Keep, relabel or review: the answer for each sample, from how far its label and its replacement can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

KEEP, RELABEL, REVIEW = "keep", "relabel", "review"
DECISIONS = (KEEP, RELABEL, REVIEW)

TRUST_LABEL = 0.5  # reliability from which the label stands: more likely right than wrong
TRUST_SUGGESTION = 0.9  # confidence from which a replacement is taken: the high-confidence mark of the diagnostics


def decide(
    observed: Tensor,
    suggested: Tensor,
    label_trust: Tensor,
    suggestion_trust: Tensor,
    *,
    trust_label: float = TRUST_LABEL,
    trust_suggestion: float = TRUST_SUGGESTION,
) -> Sequence[str]:
    """Return the decision for each sample; the rule and its reasons stand in docs/decisions.md.

    - the model suggests the observed class: `keep`;
    - otherwise, the label is trusted (≥ 0.5) and the suggestion is not (< 0.9): `keep`;
    - the label is not trusted and the suggestion is: `relabel`;
    - neither or both are trusted, and they differ: `review`.

    Args:
        observed: [N] observed classes.
        suggested: [N] classes the model proposes.
        label_trust: [N] observed-label reliability.
        suggestion_trust: [N] confidence of the suggestion.
        trust_label: from where a label counts as trusted.
        trust_suggestion: from where a suggestion counts as trusted.

    >>> import torch
    >>> decide(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 1, 1, 1]), torch.tensor([0.1, 0.9, 0.1, 0.1]),
    ...        torch.tensor([0.6, 0.6, 0.99, 0.6]))
    ['keep', 'keep', 'relabel', 'review']
    """
    same = (observed == suggested).tolist()
    label = (label_trust >= trust_label).tolist()
    suggestion = (suggestion_trust >= trust_suggestion).tolist()
    answers = []
    for agrees, holds, replaces in zip(same, label, suggestion, strict=True):
        if agrees or (holds and not replaces):
            answers.append(KEEP)
        elif replaces and not holds:
            answers.append(RELABEL)
        else:
            answers.append(REVIEW)
    return answers
