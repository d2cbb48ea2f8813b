"""One image file → one square of pixels, or one sentence that says why not.

An image whose pixels would have to be guessed (CMYK without its profile, 16 bits per channel cut to 8, one frame out of
an animation) is refused like a broken one: a silent guess would be learnt.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from labeltrace.data.names import printable
from labeltrace.errors import InputError

ORIENTATION = 0x0112  # EXIF tag: how the camera was held
SIDEWAYS = (5, 6, 7, 8)
#: what is read; Pillow knows more, some of it through programs of other people (EPS). A phone's MPO is a JPEG
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_DEEP = (";16B", ";16L", ";16N")

logging.getLogger("PIL").addHandler(logging.NullHandler())  # else Python prints what Pillow logs about odd files


class BadImage(InputError):
    """An image that cannot be used: `name` is its file, `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}; repair or remove it, or pass --bad-images skip")
        self.name, self.reason = name, reason

    def __reduce__(self) -> tuple[type[BadImage], tuple[str, str]]:
        return BadImage, (self.name, self.reason)


def decode(file: Path | IO[bytes], side: int, name: str | None = None) -> Tensor:
    """Return the central square of an image as uint8 [3, side, side], upright and in colour.

    The shorter edge is brought to `side` (bilinear with antialiasing) and the longer one cut: Resize(side) and
    CenterCrop(side). A JPEG much larger than that is decoded at a half, quarter or eighth of its size, which is where
    the time goes.

    Args:
        file: a path or an open binary file.
        side: in pixels.
        name: of the image in messages (default: the path).

    Raises:
        BadImage: missing, empty, truncated, not an image, CMYK, 16-bit, animated, or too large to be true.
    """
    import PIL
    from PIL import Image

    name = printable(str(file)) if name is None else name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what cannot be used is refused below; the rest is not worth a line each
            if isinstance(file, Path) and file.exists() and not file.is_file():  # a pipe would never end
                raise BadImage(name, f"cannot be decoded ({'a folder' if file.is_dir() else 'no regular file'})")
            with Image.open(file, formats=FORMATS) as image, _silent(image.format == "TIFF"):
                return square(image, side, name)
    except BadImage:
        raise
    except PIL.UnidentifiedImageError:
        raise BadImage(name, "empty file" if _is_empty(file) else f"not an image ({', '.join(FORMATS)})") from None
    except FileNotFoundError:
        raise BadImage(name, "no such file") from None
    except (Exception, SystemError) as error:  # a damaged file can fail in any way that a decoder can
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadImage(name, f"cannot be decoded ({reason[:120]})") from None


def square(image: Any, side: int, name: str) -> Tensor:
    """Return the central square of a Pillow image as `decode` does.

    Raises:
        BadImage: its pixels would have to be guessed.
    """
    from PIL import Image, ImageOps

    reason = _refusal(image)
    if reason:
        raise BadImage(name, reason)
    reduced = image.draft("RGB", (side, side))
    # Of a JPEG decoded at an eighth of its size the last row and column may stand for less than a pixel.
    width, height = image.size if reduced is None else reduced[1][2:]
    orientation = image.getexif().get(ORIENTATION, 1)
    upright = image if orientation == 1 else ImageOps.exif_transpose(image)
    if orientation in SIDEWAYS:
        width, height = height, width
    if upright.mode in ("P", "PA"):
        upright = upright.convert("RGBA")
    colour = upright.convert("RGB")
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    if edge == side:
        left, top = int(left), int(top)  # whole pixels: a crop alone must not blur
    if colour.size != (side, side):
        colour = colour.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + edge, top + edge))
    return torch.from_numpy(np.array(colour)).permute(2, 0, 1)  # a view: whoever keeps it copies it anyway


def image_size(file: Path | IO[bytes]) -> tuple[int, int] | None:
    """Return (width, height) from the head of an image file, or None where it cannot be read."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(file, Path) and not file.is_file():
                return None
            with Image.open(file, formats=FORMATS) as image:
                width, height = image.size
                turned = image.getexif().get(ORIENTATION, 1) in SIDEWAYS
                return (height, width) if turned else (width, height)
    except Exception:
        return None


def _refusal(image: Any) -> str | None:
    """Return why the pixels of an opened image would have to be guessed, or None."""
    if image.mode == "CMYK":
        return "CMYK colours, which need a printer's profile; save it as RGB"
    if image.mode.startswith(("I", "F")) or any(_is_deep(tile[3]) for tile in getattr(image, "tile", [])):
        return "more than 8 bits per channel; save it with 8"
    # An MPO is the photo of a phone with its preview behind it.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        return f"animated, {image.n_frames} frames; save one of them"
    return None


def _is_deep(arguments: Any) -> bool:
    """Whether a decoder's arguments ask for 16 bits per channel, which Pillow would cut to 8 without a word."""
    first, *others = arguments if isinstance(arguments, tuple | list) and arguments else (arguments,)
    # "RGB;16B" in PNG and TIFF ("BGR;16" in BMP is 16 bits for all three channels); the largest level in PPM.
    levels = others[0] if len(others) == 1 and isinstance(others[0], int) else 0
    return isinstance(first, str) and (first.endswith(_DEEP) or levels > 255)


@contextlib.contextmanager
def _silent(wanted: bool) -> Iterator[None]:
    """Drop what libtiff prints past Python; what is wrong with the file is told by the exception."""
    if not wanted:
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _is_empty(file: Path | IO[bytes]) -> bool:
    if isinstance(file, Path):
        return file.stat().st_size == 0
    file.seek(0)
    return not file.read(1)
