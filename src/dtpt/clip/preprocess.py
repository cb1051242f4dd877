"""From an image to the numbers that CLIP's image tower takes, with Pillow and NumPy only.

The path is torchvision's for Pillow images, bit for bit: resize (antialiased), centre crop, to
float32 in [0, 1], subtract the mean, divide by the standard deviation. The settings come from the
checkpoint's own preprocessing config; an unknown setting is refused rather than ignored.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from dtpt.errors import CheckpointError, explain

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)

_STRIP_PIXELS = 64_000_000
_PILLOW_FILTERS = {"2": "bilinear", "3": "bicubic"}  # numbers that transformers stores
_RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}

# Steps of torchvision's and open_clip's transforms that only convert; the function, to RGB.
_CONVERSIONS = ("ToTensor", "MaybeToTensor", "MaybeConvertMode", "function")

Std = Annotated[FiniteFloat, Field(gt=0)]


class Preprocess(BaseModel):
    """Preprocessing of one checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=1, le=4096)] = 224  # side of the square input in pixels
    mean: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = OPENAI_MEAN  # of RGB, where white is 1
    std: tuple[Std, Std, Std] = OPENAI_STD
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"  # both are antialiased
    # "shortest" brings the short side to `short_side` (None: `size`) and crops the centre; "squash"
    # resizes both sides to `size` and changes the aspect ratio.
    resize_mode: Literal["shortest", "squash"] = "shortest"
    short_side: Annotated[int, Field(ge=1, le=8192)] | None = None

    @model_validator(mode="after")
    def _crop_fits(self) -> Self:
        if self.short_side is not None and self.short_side < self.size:
            raise ValueError(f"short_side {self.short_side} is smaller than the crop {self.size}")
        return self

    @classmethod
    def openai(cls, size: int = 224) -> Self:
        """Return the preprocessing of OpenAI's checkpoints for inputs of `size` pixels."""
        return cls(size=size)

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Self:
        """Read transformers' `preprocessor_config.json`; missing entries have CLIP's defaults.

        Centre crops of an odd difference follow torchvision (as OpenAI does), which is one pixel
        off transformers' own.
        """
        for step in ("do_resize", "do_rescale"):
            if config.get(step, True) is not True:
                raise CheckpointError(f"Preprocessing with {step}={config[step]!r} is unknown.")
        factor = config.get("rescale_factor", 1 / 255)
        if not isinstance(factor, int | float) or not abs(factor - 1 / 255) <= 1e-6:
            raise CheckpointError(f"Preprocessing rescale_factor {factor!r} is not 1/255.")
        resample = config.get("resample", 3)
        normalise = config.get("do_normalize", True)
        fields = {
            "mean": config.get("image_mean", OPENAI_MEAN) if normalise else (0, 0, 0),
            "std": config.get("image_std", OPENAI_STD) if normalise else (1, 1, 1),
            "interpolation": _PILLOW_FILTERS.get(str(resample), f"filter {resample!r}"),
        }
        return cls.build(fields | _hf_sizes(config))

    @classmethod
    def from_open_clip(cls, config: Mapping[str, Any], *, size: int | None = None) -> Self:
        """Read the `preprocess_cfg` of an `open_clip_config.json`; the model's `size` counts."""
        if config.get("mode", "RGB") != "RGB":
            raise CheckpointError(f"Preprocessing mode {config['mode']!r} is not RGB.")
        names = ("mean", "std", "interpolation", "resize_mode")
        fields = {name: config[name] for name in names if name in config}
        side = size if size is not None else _square(config.get("size", 224), "size")
        return cls.build({"size": side, **fields})

    @classmethod
    def from_transforms(cls, steps: Iterable[object]) -> Self:
        """Read the steps of a torchvision `Compose`, such as open_clip's validation transform.

        Only settings are read, by the steps' class names; torchvision is not imported.
        """
        fields: dict[str, Any] = {}
        for step in steps:
            stated = _transform_fields(step)
            if "size" in stated and stated["size"] != fields.get("size", stated["size"]):
                raise CheckpointError("Preprocessing squashes to one size and then crops: unknown.")
            fields |= stated
        if "size" not in fields or "mean" not in fields:
            raise CheckpointError("Preprocessing: the transform has no resize or normalisation.")
        short = fields.get("short_side")
        return cls.build({**fields, "short_side": None if short == fields["size"] else short})

    @classmethod
    def build(cls, fields: object) -> Self:
        """Validate fields that a checkpoint states."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise CheckpointError(f"Preprocessing is not supported: {explain(error)}.") from error

    def pixels(self, image: Image.Image) -> npt.NDArray[np.float32]:
        """Return the (3, size, size) float32 input for one RGB image."""
        return self.normalise(np.asarray(self.cropped(image)))

    def cropped(self, image: Image.Image) -> Image.Image:
        """Return the resized and cropped image, still 8-bit RGB, `size` pixels square."""
        image = image if image.mode == "RGB" else image.convert("RGB")
        resample = _RESAMPLING[self.interpolation]
        if self.resize_mode == "squash":
            return image.resize((self.size, self.size), resample)
        side = self.short_side or self.size
        width, height = image.size
        if width <= height:  # the long side is rounded down
            width, height = side, int(side * height / width)
        else:
            width, height = int(side * width / height), side
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        window = (left, top, left + self.size, top + self.size)
        if width * height <= _STRIP_PIXELS:
            return image.resize((width, height), resample).crop(window)
        # A strip so long that resizing it whole would fill the memory: compute the window only. Not
        # bit-equal to torchvision, though close, as Pillow may filter rows and columns in the other
        # order. At 224 pixels it concerns ratios beyond 1275 to 1.
        across, down = image.width / width, image.height / height
        left, top, right, bottom = window
        box = (left * across, top * down, right * across, bottom * down)
        return image.resize((self.size, self.size), resample, box=box)

    def normalise(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return (3, H, W) normalised float32 for (H, W, 3) uint8."""
        table = _normalisation_table(self.mean, self.std)
        result = np.empty((3, *pixels.shape[:2]), dtype=np.float32)
        for channel in range(3):
            np.take(table[channel], pixels[:, :, channel], out=result[channel], mode="clip")
        return result


@lru_cache(maxsize=16)
def _normalisation_table(
    mean: tuple[float, float, float], std: tuple[float, float, float]
) -> npt.NDArray[np.float32]:
    """Return (3, 256): what each 8-bit value becomes, by the float32 operations of torchvision."""
    values = np.arange(256, dtype=np.float32) / np.float32(255)
    offset = np.array(mean, dtype=np.float32)[:, None]
    divisor = np.array(std, dtype=np.float32)[:, None]
    table: npt.NDArray[np.float32] = (values[None, :] - offset) / divisor  # (3, 256)
    table.setflags(write=False)
    return table


def _transform_fields(step: Any) -> dict[str, Any]:
    """Return the settings of one step of a torchvision transform."""
    kind = type(step).__name__
    if kind == "Resize":
        interpolation = getattr(step.interpolation, "value", step.interpolation)
        if isinstance(step.size, int):
            return {"short_side": step.size, "interpolation": interpolation}
        side = _square(step.size, "size")
        return {"size": side, "resize_mode": "squash", "interpolation": interpolation}
    if kind == "CenterCrop":
        return {"size": _square(step.size, "crop")}
    if kind == "Normalize":
        return {"mean": tuple(step.mean), "std": tuple(step.std)}
    if kind in _CONVERSIONS and getattr(step, "mode", "RGB") == "RGB":
        return {}
    raise CheckpointError(f"Preprocessing step {kind!r} of the transform is unknown.")


def _hf_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return size, short_side and resize_mode from transformers' `size` and `crop_size`."""
    crops = config.get("do_center_crop", True)
    size = config.get("size", {"shortest_edge": 224})
    if isinstance(size, Mapping) and "shortest_edge" not in size:
        side = _square(size, "size")
        if crops and _square(config.get("crop_size", side), "crop_size") != side:
            raise CheckpointError(f"Preprocessing squashes to {side} and then crops: unknown.")
        return {"size": side, "resize_mode": "squash"}
    short = size["shortest_edge"] if isinstance(size, Mapping) else size
    if not crops:
        raise CheckpointError("Preprocessing without centre crop leaves images of any shape.")
    side = _square(config.get("crop_size", 224), "crop_size")
    return {"size": side, "short_side": None if short == side else short}


def _square(size: Any, field: str) -> int:
    """Return the side of a size given as a number, a pair, or height and width."""
    if isinstance(size, Mapping):
        size = [size.get("height"), size.get("width")]
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int:
        raise CheckpointError(f"Preprocessing {field} {size!r} is not a square.")
    return sides[0]
