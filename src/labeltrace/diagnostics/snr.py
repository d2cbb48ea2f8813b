"""The signal-to-noise view of a mixed target (TRACE, Appendix B): when more weight on the pseudo target helps.

a and b are the weights of the observed label and of the pseudo target, r_o and r_p the probabilities that they are
right. With ε left out, the slope in b has the sign of a·(r_p − r_o): for a > 0 more pseudo supervision helps where the
pseudo target is the better source, and nowhere else, however bad the observed label is.
"""

from __future__ import annotations

from torch import Tensor

EPS = 1e-8


def snr(a: Tensor, b: Tensor, r_o: Tensor, r_p: Tensor, eps: float = EPS) -> Tensor:
    """Return (a r_o + b r_p) / (a (1 − r_o) + b (1 − r_p) + ε), elementwise.

    >>> import torch
    >>> a, b, r_o, r_p = torch.tensor([0.2, 0.8, 0.3, 0.9], dtype=torch.float64)
    >>> round(float(snr(a, b, r_o, r_p)), 4)  # 0.78 right to 0.22 wrong
    3.5455
    """
    return (a * r_o + b * r_p) / (a * (1 - r_o) + b * (1 - r_p) + eps)


def snr_slope(a: Tensor, b: Tensor, r_o: Tensor, r_p: Tensor) -> Tensor:
    """Return ∂SNR/∂b without ε: a (r_p − r_o) / (a (1 − r_o) + b (1 − r_p))².

    >>> import torch
    >>> a, b, r = torch.tensor(0.5), torch.tensor(0.5), torch.tensor(0.7)
    >>> float(snr_slope(a, b, r, r))
    0.0
    """
    return a * (r_p - r_o) / (a * (1 - r_o) + b * (1 - r_p)).square()
