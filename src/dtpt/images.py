"""Open images safely: any source becomes a fully decoded RGB Pillow image, or an `ImageError`.

Conventions, all of them those of CLIP's peers unless said otherwise:

* Transparency is dropped, not composited (`convert("RGB")`): the colour stored under a transparent
  pixel shows. Palette images go through RGBA first, which gives the same colours without a warning.
* CMYK, greyscale, 1-bit, YCbCr and HSV are converted by Pillow. Of an animation the first frame is
  used.
* 16-bit greyscale is *scaled* to 8 bits (v / 257, rounded); Pillow's own conversion clips at 255
  and turns most of such an image white. 16-bit colour files are reduced by Pillow (high byte).
* The rotation in EXIF (or XMP) is applied; the peers ignore it.
* Floating-point images are refused because their range is unknown.

Only raster formats on a short list are tried, so that no decoder starts another program. The number
of pixels is checked on the header, before decoding. No global state of Pillow is changed.
"""

import hashlib
import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from dtpt.errors import ImageError, os_error, short_repr
from dtpt.files import open_regular, printable

ImageSource = str | os.PathLike[str] | bytes | Image.Image | np.ndarray
MAX_PIXELS = 178_956_970  # Pillow's own hard limit, about 13,400 pixels squared
# Decoders that are tried. EPS and its like, which call other programs, are left out.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "MPO", "ICO")

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# `warnings.catch_warnings` swaps a list of the interpreter, so only one thread may be inside it. It
# is held while headers are parsed, never while pixels are decoded.
_warnings_lock = threading.Lock()


def open_image(
    source: ImageSource, *, name: str | None = None, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Return a decoded, upright RGB image without metadata.

    Args:
        source: Path, encoded bytes, Pillow image (left as it is), or uint8 array of shape (H, W),
            (H, W, 1), (H, W, 3) or (H, W, 4).
        name: What errors call the image; the path, or the kind of source, when not given.
        max_pixels: Larger images are refused before they are decoded. Above Pillow's own limit
            (the default) Pillow refuses first.

    Raises:
        ImageError: The source is missing, damaged, too large or not an image; the message names it.

    Example:
        >>> open_image(np.zeros((4, 6), np.uint8)).size
        (6, 4)
    """
    if not isinstance(source, str | os.PathLike | bytes | Image.Image | np.ndarray):
        raise ImageError(
            "An image is a path, encoded bytes, a Pillow image or an array, not "
            f"{short_repr(source)}."
        )
    label = printable(name) if name is not None else _label(source)
    if isinstance(source, np.ndarray):
        return _from_array(source, label)
    if isinstance(source, Image.Image):
        return _decode(source, label, max_pixels=max_pixels)
    if isinstance(source, bytes):
        return _from_file(io.BytesIO(source), label, max_pixels=max_pixels)
    return _from_path(source, label, max_pixels=max_pixels)


def pixel_digest(image: Image.Image) -> str:
    """Return the sha256 (hex) over size and RGB bytes: equal RGB images have equal ids.

    Example:
        >>> pixel_digest(Image.new("RGB", (2, 1), "red"))[:8]
        'd6e38e36'
    """
    if image.mode != "RGB":
        raise ImageError(f"An image of mode {image.mode!r} has no digest; open it by open_image.")
    digest = hashlib.sha256(f"{image.width}x{image.height}:".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def _label(source: ImageSource) -> str:
    if isinstance(source, bytes):
        return f"<{len(source)} bytes>"
    if isinstance(source, np.ndarray):
        return f"<array {source.dtype} {source.shape}>"
    if isinstance(source, Image.Image):
        return printable(getattr(source, "filename", "") or f"<{source.mode} image {source.size}>")
    return printable(source)


def _from_path(path: str | os.PathLike[str], label: str, *, max_pixels: int) -> Image.Image:
    try:
        stream = open_regular(path)
    except OSError as error:
        raise ImageError(f"{label}: cannot be opened ({os_error(error)}).") from error
    with stream:
        return _from_file(stream, label, max_pixels=max_pixels)


def _from_file(stream: IO[bytes], label: str, *, max_pixels: int) -> Image.Image:
    with _reading(label), _no_warnings():
        if not stream.read(1):
            raise ImageError(f"{label}: the file is empty.")
        stream.seek(0)
        image = Image.open(stream, formats=_available_formats())
    with image:
        return _decode(image, label, max_pixels=max_pixels)


def _available_formats() -> list[str]:
    Image.init()  # registers the decoders once; formats this build lacks drop out
    return [name for name in FORMATS if name in Image.OPEN]


def _decode(image: Image.Image, label: str, *, max_pixels: int) -> Image.Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{label}: has no pixels ({width}×{height}).")
    if width * height > max_pixels:
        raise ImageError(
            f"{label}: {width}×{height} pixels are more than the limit of {max_pixels}; "
            "shrink the image or raise max_pixels."
        )
    with _reading(label):
        image.load()
        with _no_warnings():
            orientation = image.getexif().get(_ORIENTATION_TAG, 1)
        rgb = _to_rgb(image, label)
        rgb.info = {}  # with the tag gone, opening the result again does not rotate it twice
        return rgb.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else rgb


def _to_rgb(image: Image.Image, label: str) -> Image.Image:
    if image.mode == "F":
        raise ImageError(f"{label}: floating-point pixels have no known range; save it as 8-bit.")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _from_sixteen_bits(np.asarray(image), label).convert("RGB")
    if image.mode in ("P", "PA", "RGBa", "La"):
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    return image.convert("RGB")


def _from_sixteen_bits(values: np.ndarray, label: str) -> Image.Image:
    wide = values.astype(np.int64)
    low, high = int(wide.min()), int(wide.max())
    if low < 0 or high > 65535:
        raise ImageError(f"{label}: values {low}..{high} exceed 16 bits; save it as 8-bit.")
    return Image.fromarray(((wide + 128) // 257).astype(np.uint8))  # to nearest


def _from_array(array: np.ndarray, label: str) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    channels_fit = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if array.dtype != np.uint8 or not channels_fit or array.size == 0:
        raise ImageError(
            f"{label}: expected a uint8 array of shape (H, W), (H, W, 3) or (H, W, 4) with values "
            f"0 to 255, got {array.dtype} {array.shape}."
        )
    return Image.fromarray(np.ascontiguousarray(array)).convert("RGB")


@contextmanager
def _reading(label: str) -> Iterator[None]:
    """Turn whatever a decoder raises on a damaged file into an `ImageError` that names it.

    Pillow's decoders raise OSError and SyntaxError by design, but also struct.error, IndexError,
    TypeError, zlib.error and others on hostile bytes; all mean that this image cannot be read.
    """
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        formats = ", ".join(FORMATS)
        raise ImageError(f"{label}: not an image in a known format ({formats}).") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{label}: too large to decode ({error})") from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ImageError(f"{label}: damaged image ({reason}).") from error


@contextmanager
def _no_warnings() -> Iterator[None]:
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
