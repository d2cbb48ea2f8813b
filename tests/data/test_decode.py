from __future__ import annotations

import io
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labeltrace.data.decode import ORIENTATION, BadImage, decode, image_size, square


def noise(width: int, height: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(width: int, height: int) -> Image.Image:
    """A picture without fine detail, of which a JPEG keeps all."""
    return Image.fromarray(noise(4, 4)).resize((width, height), Image.Resampling.BICUBIC)


def packed(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(data: bytes, side: int) -> torch.Tensor:
    return decode(io.BytesIO(data), side, "x")


def pixels(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def resized_and_cropped(image: Image.Image, side: int) -> torch.Tensor:
    """Resize(side), then CenterCrop(side), in two steps with whole pixels between them."""
    scale = side / min(image.size)
    image = image.convert("RGB").resize((round(image.width * scale), round(image.height * scale)), 2)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return pixels(image.crop((left, top, left + side, top + side)))


def weighted(image: Image.Image, side: int) -> torch.Tensor:
    """The central square by the definition of the filter: a triangle as wide as an output pixel, at least one wide."""

    def weights(length: int) -> np.ndarray:
        edge = min(image.size)
        scale, start = edge / side, (length - edge) / 2
        table = np.zeros((side, length))
        for out in range(side):
            for place in range(length):
                distance = abs(place + 0.5 - (start + (out + 0.5) * scale)) / max(1.0, scale)
                table[out, place] = max(0.0, 1 - distance)
        return table / table.sum(1, keepdims=True)

    levels = np.asarray(image.convert("RGB"), np.float64)
    found = np.einsum("ih,hwc,jw->cij", weights(image.height), levels, weights(image.width))
    return torch.from_numpy(found)


def png16(channels: int, colour_type: int, width: int = 5, height: int = 4) -> bytes:
    """A PNG with 16 bits per channel, which Pillow cannot write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(2 * channels * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# Pixels


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
@pytest.mark.parametrize("side", [5, 16, 54])  # rows of a BMP of these widths take 16, 48 and 164 bytes
def test_an_image_of_the_right_size_is_left_alone(kind: str, side: int) -> None:
    image = Image.fromarray(noise(side, side))
    options = {"lossless": True} if kind == "WEBP" else {}
    got = read(packed(image, kind, **options), side)
    assert got.dtype == torch.uint8 and got.equal(pixels(image))


@pytest.mark.parametrize("size", [(33, 32), (32, 33), (45, 32), (32, 77)])
def test_a_crop_alone_moves_no_pixel(size: tuple[int, int]) -> None:
    image = Image.fromarray(noise(*size))
    left, top = (size[0] - 32) // 2, (size[1] - 32) // 2
    assert read(packed(image, "PNG"), 32).equal(pixels(image)[:, top : top + 32, left : left + 32])


@pytest.mark.parametrize("size", [(100, 80), (37, 50), (64, 64), (131, 97), (20, 31), (7, 3), (200, 33)])
def test_pixels_are_those_of_the_filter(size: tuple[int, int]) -> None:
    image = Image.fromarray(noise(*size))
    difference = (read(packed(image, "PNG"), 32) - weighted(image, 32)).abs()
    assert difference.max() < 1.5  # two roundings to whole levels


@pytest.mark.parametrize("size", [(100, 80), (80, 100), (64, 64), (96, 64), (16, 48)])
def test_pixels_are_those_of_resize_and_crop(size: tuple[int, int]) -> None:
    image = smooth(*size)
    difference = (read(packed(image, "PNG"), 32).int() - resized_and_cropped(image, 32).int()).abs()
    assert difference.max() <= 1


@pytest.mark.parametrize("size", [(640, 480), (300, 900), (256, 256)])
def test_a_reduced_jpeg_looks_like_the_whole_one(size: tuple[int, int]) -> None:
    data = packed(smooth(*size), "JPEG", quality=95)
    whole = Image.open(io.BytesIO(data))
    edge, left, top = min(size), (size[0] - min(size)) // 2, (size[1] - min(size)) // 2
    expected = pixels(whole.crop((left, top, left + edge, top + edge)).resize((32, 32), 2))
    difference = (read(data, 32).int() - expected.int()).abs().float()
    assert difference.mean() < 1.5 and difference.max() <= 12


def test_one_pixel_and_a_thin_line_fill_the_square() -> None:
    dot = read(packed(Image.new("RGB", (1, 1), (9, 8, 7)), "PNG"), 8)
    assert dot.equal(torch.tensor([9, 8, 7], dtype=torch.uint8)[:, None, None].expand(3, 8, 8))
    wide = np.zeros((2, 3000, 3), np.uint8)
    wide[:, 1498:1502] = 200
    assert read(packed(Image.fromarray(wide), "PNG"), 8).unique().tolist() == [200]


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_photo_stands_upright(turn: int, tmp_path: Path) -> None:
    upright = noise(12, 8)
    # How the camera held the picture of each tag: rows and columns of the file → of the scene.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[turn]
    exif = Image.Exif()
    exif[ORIENTATION] = turn
    path = tmp_path / "a.png"
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif)
    assert decode(path, 8).equal(pixels(Image.fromarray(upright))[:, :, 2:10])
    assert image_size(path) == (12, 8)


@pytest.mark.parametrize("mode", ["L", "1", "LA", "RGBA", "P"])
def test_other_modes_become_colour(mode: str) -> None:
    image = Image.fromarray(noise(9, 9)).convert(mode)
    assert read(packed(image, "PNG"), 9).equal(pixels(image.convert("RGBA") if mode == "P" else image))


def test_a_palette_with_a_transparent_colour_keeps_its_colours() -> None:
    image = Image.fromarray(noise(6, 6, 1) % 3).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for kind in ("PNG", "GIF"):
        data = packed(image, kind, transparency=1)
        expected = pixels(Image.open(io.BytesIO(data)).convert("RGBA"))
        assert read(data, 6).equal(expected)
        colours = {tuple(colour) for colour in expected.flatten(1).T.tolist()}
        assert colours == {(10, 20, 30), (40, 50, 60), (70, 80, 90)}


def test_a_phones_photo_with_a_preview_behind_it_is_one_image() -> None:
    image, preview = smooth(64, 64), smooth(16, 16)
    data = packed(image, "MPO", save_all=True, append_images=[preview])
    assert Image.open(io.BytesIO(data)).format == "MPO"
    assert (read(data, 64).int() - pixels(image).int()).abs().float().mean() < 3


def test_a_gif_of_one_frame_is_an_image() -> None:
    assert read(packed(Image.fromarray(noise(6, 6)), "GIF"), 6).shape == (3, 6, 6)


# Refusals


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_refused(kind: str) -> None:
    frames = [Image.fromarray(noise(8, 8, seed=i)) for i in range(3)]
    with pytest.raises(BadImage, match="x: animated, 3 frames; save one of them; repair or remove it, or pass --bad"):
        read(packed(frames[0], kind, save_all=True, append_images=frames[1:]), 8)


@pytest.mark.parametrize(
    "data",
    [
        png16(1, 0),
        png16(3, 2),
        png16(2, 4),
        png16(4, 6),
        packed(Image.fromarray(noise(4, 4, 1).astype(np.int32)), "TIFF"),
        packed(Image.fromarray(noise(4, 4, 1).astype(np.float32)), "TIFF"),
        b"P5 2 1 65535\n" + bytes(4),
        b"P6 2 1 65535\n" + bytes(12),
        b"P6 2 1 1023\n" + bytes(12),
    ],
)
def test_more_than_8_bits_are_refused(data: bytes) -> None:
    with pytest.raises(BadImage, match="more than 8 bits per channel; save it with 8"):
        read(data, 8)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_is_refused(kind: str) -> None:
    with pytest.raises(BadImage, match="CMYK colours"):
        read(packed(Image.fromarray(noise(8, 8)).convert("CMYK"), kind), 8)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.jpg", b"", "empty file"),
        ("text.jpg", b"This is a text.\n", "not an image (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"),
        ("page.png", b"<html>404</html>", "not an image (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"),
        ("head.jpg", b"\xff\xd8\xff\xe0", "not an image (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"),
        ("missing.jpg", None, "no such file"),
    ],
)
def test_what_is_no_image_is_named(name: str, data: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadImage) as caught:
        decode(path, 8)
    assert caught.value.name == str(path) and caught.value.reason == reason
    assert image_size(path) is None
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.reason == reason


def test_a_folder_and_a_name_with_a_nul_are_bad_images(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="cannot be decoded"):
        decode(tmp_path, 8)
    with pytest.raises(BadImage, match="cannot be decoded"):
        decode(tmp_path / "a\0b.png", 8)


def test_a_name_in_another_encoding_can_be_written_down(tmp_path: Path) -> None:
    path = tmp_path / b"caf\xe9.png".decode("utf-8", "surrogateescape")
    path.write_bytes(b"")
    with pytest.raises(BadImage) as caught:
        decode(path, 8)
    assert str(caught.value).encode("utf-8").count(rb"caf\xe9.png: empty file")


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize(("kind", "side"), [("JPEG", 64), ("JPEG", 16), ("PNG", 64), ("WEBP", 64), ("BMP", 64)])
def test_a_truncated_file_is_refused_or_whole(kind: str, side: int, share: float) -> None:
    data = packed(Image.fromarray(noise(128, 128)), kind, **({"progressive": side == 16} if kind == "JPEG" else {}))
    cut = data[: int(len(data) * share)]
    try:
        got = read(cut, side)
    except BadImage:
        return
    assert share > 0.9 and got.equal(read(data, side))  # the end of the file held no pixels


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_most_cuts_are_noticed(kind: str) -> None:
    data = packed(Image.fromarray(noise(128, 128)), kind)
    for share in (0.2, 0.5, 0.8, 0.97):
        with pytest.raises(BadImage):
            read(data[: int(len(data) * share)], 64)


def test_a_size_that_cannot_be_true_is_refused_unread() -> None:
    head = b"IHDR" + struct.pack(">II", 60000, 60000)
    data = bytearray(packed(Image.fromarray(noise(4, 4)), "PNG"))
    data[12:24] = head
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    with pytest.raises(BadImage, match=r"cannot be decoded .*exceeds limit"):
        read(bytes(data), 8)


def test_warnings_stay_inside(recwarn: pytest.WarningsRecorder) -> None:
    image = Image.fromarray(noise(6, 6, 1) % 3).convert("P")
    read(packed(image, "PNG", transparency=bytes([0, 128, 255])), 6)
    assert not recwarn.list


def test_a_pillow_image_is_squared_alike() -> None:
    image = Image.fromarray(noise(40, 30))
    assert square(image, 16, "x").equal(read(packed(image, "PNG"), 16))
    with pytest.raises(BadImage, match="CMYK"):
        square(image.convert("CMYK"), 16, "x")
