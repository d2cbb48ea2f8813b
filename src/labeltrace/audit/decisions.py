"""Keep, relabel or review: the answer for each sample, from how far its label and its replacement can be trusted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

KEEP, RELABEL, REVIEW = "keep", "relabel", "review"
DECISIONS = (KEEP, RELABEL, REVIEW)

TRUST_LABEL = 0.9  # reliability from which a label is not replaced; docs/decisions.md, 13
TRUST_SUGGESTION = 0.9  # confidence from which a replacement is taken: the high-confidence mark of the diagnostics


def decide(
    observed: ArrayLike,
    suggested: ArrayLike,
    label_trust: ArrayLike,
    suggestion_trust: ArrayLike,
    *,
    trust_label: float = TRUST_LABEL,
    trust_suggestion: float = TRUST_SUGGESTION,
) -> pa.StringArray:
    """Return the decision for each sample; the rule and its reasons stand in docs/decisions.md.

    - the model suggests the observed class: `keep`;
    - otherwise, the suggestion is trusted (≥ 0.9) and the label is not (< 0.9): `relabel`;
    - otherwise a person should look: `review`.

    Args:
        observed: [N] observed classes; arrays or tensors on the CPU, as all that follow.
        suggested: [N] classes the model proposes.
        label_trust: [N] observed-label reliability.
        suggestion_trust: [N] confidence of the suggestion.
        trust_label: from where a label counts as trusted.
        trust_suggestion: from where a suggestion counts as trusted.

    >>> decide([0, 0, 0, 0], [0, 1, 1, 1], [0.1, 0.1, 0.9, 0.1], [0.6, 0.99, 0.99, 0.6]).to_pylist()
    ['keep', 'relabel', 'review', 'review']
    """
    agrees = np.asarray(observed) == np.asarray(suggested)
    holds = np.asarray(label_trust) >= trust_label
    replaces = np.asarray(suggestion_trust) >= trust_suggestion
    code = np.where(agrees, 0, np.where(replaces & ~holds, 1, 2)).astype(np.int8)  # places in DECISIONS
    return pa.DictionaryArray.from_arrays(code, list(DECISIONS)).cast(pa.string())
