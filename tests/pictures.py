"""Small image files that tests share."""

import numpy as np
import torch
from PIL import Image

from labeltrace.data import Dataset, ImageFiles, ImageViews, Split


def write(folder, count=12, classes=2, side=12, suffix=".png", seed=0):
    """Write `count` pictures, class k in folder k with its k-th quarter bright; return their paths in sorted order."""
    rng = np.random.default_rng(seed)
    paths = []
    for i in range(count):
        label = i % classes
        pixels = rng.integers(0, 80, (side, side, 3), dtype=np.uint8)
        pixels[:, label * side // classes : (label + 1) * side // classes] += 120
        path = folder / f"class{label}" / f"{i:04}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return sorted(paths)


def dataset(paths, side=12, test=None):
    """A dataset of image files that are still to be read; the class is the name of the folder."""
    classes = sorted({path.parent.name for path in paths})

    def split(files):
        labels = torch.tensor([classes.index(path.parent.name) for path in files])
        return Split(ImageFiles([str(path) for path in files], side), labels, None, [path.name for path in files])

    views = ImageViews((0.5,) * 3, (0.25,) * 3, padding=1)
    return Dataset("pictures", split(paths), None if test is None else split(test), tuple(classes), views)


def spoil(path, how="truncated"):
    """Make an image file unusable."""
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:60])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "missing":
        path.unlink()
    elif how == "text":
        path.write_text("no picture")
    elif how == "cmyk":
        Image.new("CMYK", (12, 12)).save(path, format="JPEG")
    elif how == "16-bit":
        Image.fromarray(np.full((12, 12), 40_000, np.uint16)).save(path, format="PNG")
    elif how == "animated":
        frames = [Image.new("RGB", (12, 12), colour) for colour in ("red", "green")]
        frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:])
    else:
        raise ValueError(how)
    return path


WAYS = ("truncated", "empty", "missing", "text", "cmyk", "16-bit", "animated")
