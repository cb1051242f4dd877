"""Opening images: every mode becomes RGB, everything else an ImageError that names the file."""

import io
import os
import struct
import subprocess
import sys
import threading
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from dtpt.errors import ImageError
from dtpt.images import open_image, pixel_digest


def noise(width=13, height=9, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image, format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(source, **options):
    image = open_image(source, **options)
    assert image.mode == "RGB"
    return np.asarray(image)


def png_header(width, height):
    """A PNG that declares a size but holds almost no data."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_rgb_is_unchanged_from_file_bytes_array_and_image(tmp_path):
    pixels = noise()
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.fromarray(pixels)))
    for source in (path, str(path), path.read_bytes(), pixels, Image.fromarray(pixels)):
        assert np.array_equal(rgb(source), pixels)


def test_greyscale_is_repeated_over_the_channels():
    grey = noise(channels=1)
    for source in (encoded(Image.fromarray(grey)), grey, grey[:, :, None]):
        assert np.array_equal(rgb(source), np.repeat(grey[:, :, None], 3, axis=2))


def test_alpha_is_dropped_not_composited():
    rgba = noise(channels=4)
    assert np.array_equal(rgb(encoded(Image.fromarray(rgba))), rgba[:, :, :3])
    assert np.array_equal(rgb(rgba), rgba[:, :, :3])


@pytest.mark.parametrize("transparency", [None, 3, bytes(range(0, 250, 10))])
def test_palette_with_and_without_transparency_keeps_its_colours(transparency):
    image = Image.fromarray(noise(channels=1) % 25).convert("P")
    colours = noise(25, 1, seed=1)
    image.putpalette(colours.tobytes())
    image = image.copy()
    indices = np.asarray(image)
    options = {} if transparency is None else {"transparency": transparency}
    assert np.array_equal(rgb(encoded(image, **options)), colours[0][indices])


def test_cmyk_jpeg_equals_pillows_conversion():
    data = encoded(Image.fromarray(noise(32, 32)).convert("CMYK"), "JPEG")
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "CMYK"
        assert np.array_equal(rgb(data), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "PA", "HSV", "YCbCr", "RGBa", "La", "RGBX"])
def test_other_pillow_modes_become_rgb(mode):
    base = Image.fromarray(noise(channels=4))
    via = {"RGBa": "RGBA", "La": "LA", "PA": "LA"}.get(mode, "RGB")
    assert rgb(base.convert(via).convert(mode)).shape == (9, 13, 3)


@pytest.mark.parametrize("big_endian", [False, True])
def test_sixteen_bits_are_scaled_not_clipped(big_endian):
    values = np.linspace(0, 65535, 300).astype(np.uint16).reshape(15, 20)
    expected = np.round(values / 257).astype(np.uint8)
    image = Image.fromarray(values)
    if big_endian:
        image = Image.frombytes("I;16B", (20, 15), values.astype(">u2").tobytes())
    assert np.array_equal(rgb(image)[:, :, 1], expected)
    if not big_endian:
        assert np.array_equal(rgb(encoded(image))[:, :, 0], expected)
        assert np.array_equal(rgb(Image.fromarray(values.astype(np.int32)))[:, :, 2], expected)


def test_values_beyond_sixteen_bits_and_floats_are_refused():
    with pytest.raises(ImageError, match="16 bits"):
        open_image(Image.fromarray(np.array([[0, 70000]], dtype=np.int32)))
    with pytest.raises(ImageError, match="floating-point"):
        open_image(Image.fromarray(np.zeros((2, 2), dtype=np.float32)))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied_once(orientation, format):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format == "WEBP" else {}
    data = encoded(Image.fromarray(noise(16, 8)), format, exif=exif, **options)
    with Image.open(io.BytesIO(data)) as raw:
        expected = np.asarray(ImageOps.exif_transpose(raw).convert("RGB"))
    once = open_image(data)
    assert np.array_equal(np.asarray(once), expected)
    assert once.size == ((8, 16) if orientation > 4 else (16, 8))
    assert np.array_equal(rgb(once), expected)


def test_the_callers_image_is_left_as_it_is():
    image = Image.fromarray(noise(channels=4))
    image.info["note"] = 1
    result = open_image(image)
    result.putpixel((0, 0), (1, 2, 3))
    assert image.mode == "RGBA"
    assert image.info == {"note": 1}
    assert np.array_equal(np.asarray(image), noise(channels=4))


def test_a_decompression_bomb_is_refused_before_decoding_and_without_a_warning(tmp_path):
    path = tmp_path / "bomb.png"
    limit = Image.MAX_IMAGE_PIXELS
    for side in (9000, 11000, 13000, 60000):
        path.write_bytes(png_header(side, side))
        with pytest.raises(ImageError, match=r"bomb\.png.*(limit|large)"):
            open_image(path, max_pixels=80_000_000)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_the_pixel_limit_is_exact():
    data = encoded(Image.fromarray(noise(10, 10)))
    assert rgb(data, max_pixels=100).shape == (10, 10, 3)
    with pytest.raises(ImageError, match="10×10"):
        open_image(data, max_pixels=99)


def broken_files():
    jpeg = encoded(Image.fromarray(noise(64, 64)), "JPEG")
    png = encoded(Image.fromarray(noise(64, 64)))
    return {
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "truncated.png": png[: len(png) // 2],
        "headeronly.png": png_header(20, 20),
        "empty.jpg": b"",
        "text.jpg": b"this is no image\n" * 50,
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n",
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_broken_file_gives_an_image_error_that_names_it(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(broken_files()[name])
    with pytest.raises(ImageError, match=name.replace(".", r"\.")):
        open_image(path)


def test_missing_files_folders_and_impossible_paths_are_named(tmp_path):
    with pytest.raises(ImageError, match=r"gone\.png"):
        open_image(tmp_path / "gone.png")
    with pytest.raises(ImageError, match="folder"):
        open_image(tmp_path)
    with pytest.raises(ImageError, match="opened"):
        open_image("a\0b.png")


def test_a_named_pipe_or_device_as_image_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match=r"pipe\.jpg.*pipe"):
        open_image(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="device"):
        open_image("/dev/zero")


def test_a_file_name_that_is_not_utf8_is_opened_and_can_be_printed_in_errors(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    path.write_bytes(encoded(Image.fromarray(noise())))
    assert np.array_equal(rgb(path), noise())
    path.write_bytes(b"nonsense")
    for name in (None, str(path)):
        with pytest.raises(ImageError, match=r"caf\\xe9\.png") as caught:
            open_image(path, name=name)
        assert str(caught.value).encode("utf-8")


def test_a_given_name_is_used_in_errors():
    with pytest.raises(ImageError, match="sample 17"):
        open_image(b"nonsense", name="sample 17")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(4, np.uint8),
        np.zeros((4, 4), np.uint16),
    ],
)
def test_arrays_of_other_kinds_are_refused(array):
    with pytest.raises(ImageError, match="uint8"):
        open_image(array)


def test_flipped_array_views_are_read_as_they_look():
    pixels = noise()
    assert np.array_equal(rgb(pixels[::-1, ::-1]), pixels[::-1, ::-1])


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"])
def test_damaged_bytes_give_an_image_or_an_image_error_and_nothing_else(format):
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif} if format in ("JPEG", "PNG", "WEBP", "TIFF") else {}
    original = encoded(Image.fromarray(noise(24, 16)), format, **options)
    random = np.random.default_rng(7)
    for _ in range(150):
        data = bytearray(original)
        for position in random.integers(0, min(len(data), 200), random.integers(1, 6)):
            data[position] = random.integers(0, 256)
        try:
            assert open_image(bytes(data), max_pixels=1_000_000).mode == "RGB"
        except ImageError:
            continue


def test_warning_filters_survive_many_threads():
    before = list(warnings.filters)
    data = encoded(Image.fromarray(noise()))

    def work():
        for _ in range(50):
            open_image(data)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


def test_digest_tells_images_and_shapes_apart():
    pixels = noise(12, 6)
    first = pixel_digest(open_image(pixels))
    assert first == pixel_digest(open_image(encoded(Image.fromarray(pixels))))
    assert first != pixel_digest(open_image(pixels.reshape(12, 6, 3)))
    changed = pixels.copy()
    changed[5, 11, 2] ^= 1
    assert first != pixel_digest(open_image(changed))
    with pytest.raises(ImageError, match="'L'"):
        pixel_digest(Image.new("L", (2, 2)))


def test_opening_images_needs_no_torch():
    code = "import sys, dtpt.images, dtpt.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
