"""The pictures of docs/snr.md: when more weight on the pseudo target raises the signal-to-noise ratio of a target.

Run: python benchmarks/snr_pictures.py [--out docs/images]   (a few seconds; nothing is drawn at random)
Writes snr_weight.png, snr_map.png and snr_gate.png.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from shared import parser_of

from labeltrace.diagnostics.figures.style import BLACK, BLUE, COLOURS, LINES, ORANGE, new_figure, styled
from labeltrace.diagnostics.snr import snr, snr_slope
from labeltrace.files import write_atomically

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
OBSERVED = 0.3  # r_o of the curves: a label that is more likely wrong than right
DPI = 150


def main() -> None:
    """Draw the three pictures."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures")
    out = parser.parse_args().out
    with styled():
        for name, figure in (("snr_weight", by_weight()), ("snr_map", by_reliability()), ("snr_gate", by_gate())):
            path = out / f"{name}.png"
            write_atomically(path, lambda temporary, figure=figure: figure.savefig(temporary, format="png", dpi=DPI))
            print(path)


def by_weight() -> Any:
    """SNR against b for pseudo targets worse than, as good as and better than the label; a large and small a."""
    figure = new_figure(7.6, 3.3)
    b, r_o = torch.linspace(0, 1, 201, dtype=torch.float64), torch.tensor(OBSERVED, dtype=torch.float64)
    for axis, a in zip(figure.subplots(1, 2, sharey=True), (0.5, 0.1), strict=True):
        for number, r_p in enumerate((0.1, 0.3, 0.5, 0.7)):
            values = snr(torch.tensor(a, dtype=torch.float64), b, r_o, torch.tensor(r_p, dtype=torch.float64))
            line = LINES[number % len(LINES)]
            axis.plot(b, values, line, color=COLOURS[number], label=f"pseudo target right at {100 * r_p:.0f} %")
        axis.set(
            title=f"a = {a}, label right at {100 * OBSERVED:.0f} %",
            xlabel="b, weight of the pseudo target",
            xlim=(0, 1),
        )
        axis.axhline(OBSERVED / (1 - OBSERVED), color=BLACK, linewidth=0.6)
    figure.axes[0].set_ylabel("SNR (right to wrong supervision)")
    figure.axes[0].legend()
    return figure


def by_reliability() -> Any:
    """∂SNR/∂b over both reliabilities: its sign is that of r_p − r_o, whatever the label is worth."""
    figure = new_figure(4.6, 3.9)
    axis = figure.subplots()
    r = torch.linspace(0.005, 0.995, 100, dtype=torch.float64)
    half = torch.tensor(0.5, dtype=torch.float64)
    slope = snr_slope(half, half, r[None, :], r[:, None])
    shade = slope.sign() * slope.abs().log1p()
    most = float(shade.abs().max())
    image = axis.imshow(shade.numpy(), origin="lower", extent=(0, 1, 0, 1), cmap="PuOr_r", vmin=-most, vmax=most)
    axis.plot((0, 1), (0, 1), color=BLACK)
    axis.grid(visible=False)
    axis.set(title="∂SNR/∂b at a = b = 0.5", xlabel="r_o, label is right", ylabel="r_p, pseudo target is right")
    for x, y, words in ((0.3, 0.8, "more b helps"), (0.7, 0.2, "more b hurts")):
        axis.text(x, y, words, ha="center", fontsize=8)
    ticks = [sign * value for sign in (-1, 1) for value in (30, 10, 3, 1)] + [0]
    bar = figure.colorbar(image, label="∂SNR/∂b (logarithmic)")
    bar.set_ticks([float(torch.tensor(t).sign() * torch.tensor(t).abs().log1p()) for t in sorted(ticks)])
    bar.set_ticklabels([f"{t:+d}" if t else "0" for t in sorted(ticks)])
    return figure


def by_gate() -> Any:
    """One score for both branches beside two: SNR of the target, and the weight that the sample gets."""
    figure = new_figure(7.6, 3.3)
    ratio, weight = figure.subplots(1, 2)
    r_p, r_o = torch.linspace(0.01, 0.99, 197, dtype=torch.float64), torch.tensor(OBSERVED, dtype=torch.float64)
    for name, b, colour, line in (
        ("one score: b = 1 − s", (1 - r_o).expand_as(r_p), ORANGE, "--"),
        ("two scores: b = (1 − s)·s_pseudo", (1 - r_o) * r_p, BLUE, "-"),
    ):
        ratio.plot(r_p, snr(r_o, b, r_o, r_p), line, color=colour, label=name)
        weight.plot(r_p, r_o + b, line, color=colour, label=name)
    ratio.set(title="SNR of the target", ylabel="SNR (right to wrong, logarithmic)", yscale="log")
    ratio.set_yticks((0.1, 0.3, 1, 3), ("0.1", "0.3", "1", "3"))
    ratio.minorticks_off()
    weight.set(title="a + b, what the sample counts", ylabel="a + b (1 = full weight)", ylim=(0, 1.08))
    for axis in (ratio, weight):
        axis.axvline(OBSERVED, color=BLACK, linewidth=0.8, linestyle=":")
        axis.set(xlabel="r_p, pseudo target is right (dotted: r_o)", xlim=(0, 1))
    ratio.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()
