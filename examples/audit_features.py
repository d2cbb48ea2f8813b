"""Which labels are wrong, in three lines: digits as features with 20 % wrong labels.

Run: python examples/audit_features.py
"""

import numpy as np
from sklearn.datasets import load_digits

import labeltrace


def main(epochs: int | None = None) -> tuple[float, float]:
    X, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(truth)) < 0.2, (truth + rng.integers(1, 10, len(truth))) % 10, truth)

    report = labeltrace.audit(X, y, epochs=epochs)  # the line; `import labeltrace` above, and your X and y
    wrong = np.asarray(report["decision"]) != "keep"  # relabel and review
    print(f"{wrong.sum()} of {len(y)} labels are doubtful; {(y != truth)[wrong].mean():.0%} of these are wrong")

    suggested = np.asarray(report["suggested"])
    found, right = float(wrong[y != truth].mean()), float((suggested == truth).mean())
    print(f"of the wrong labels {found:.0%} were found; suggested labels right {right:.1%}")
    return found, right


if __name__ == "__main__":
    main()
