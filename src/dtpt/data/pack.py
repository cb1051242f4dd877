"""Feature packs: the view features of a data set in a folder, read and evaluated without images.

    pack.json             the manifest: classes, what made the features, and the hash of every file
    samples.json          ids, labels, clusters, groups and content keys, one list for each
    views-0-*.safetensors   "features" (images, views, D) of some images, for each kind of views
    text_features.safetensors   optional: with it the folder is also a model (`features:FOLDER`)

The manifest is written last. Until then its finished part is `pack.partial.json`: a writer that was
killed continues, after the hashes of what it finished were checked. A reader maps a shard into
memory once its hash is right, and returns features of length 1 only. No file can run code.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from dtpt.data.catalog import ProtocolName
from dtpt.data.dataset import Dataset, Sample, repetitions
from dtpt.errors import DatasetError, ImageError, explain, os_error
from dtpt.files import is_utf8, open_regular, parse_json, printable, read_limited, write_atomically
from dtpt.views.recipe import ViewRecipe

if TYPE_CHECKING:
    from PIL import Image

MANIFEST, PARTIAL, SAMPLES = "pack.json", "pack.partial.json", "samples.json"
SUFFIX = ".safetensors"
SHARD_BYTES = 1 << 24  # about; one image at least
MOST_MANIFEST_BYTES, MOST_SAMPLE_BYTES = 1 << 24, 1 << 29
MOST_VALUES = 1 << 24  # in samples.json
SHARDS_OPEN = 8
UNIT = 1e-2  # by which the length of a feature may differ from 1

Array = npt.NDArray[np.float32]
DType = Literal["float16", "float32"]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1 << 40)]
Views = Annotated[int, Field(ge=1, le=4096)]
Model = TypeVar("Model", bound=BaseModel)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PackFile(_Frozen):
    """A file of the pack."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*\.(json|safetensors)$")]
    sha256: Hash
    size: Count  # bytes
    images: Count = 0  # in a shard


class ViewGroup(_Frozen):
    """Views of one kind, of all images."""

    recipe: ViewRecipe | None = None  # None: not made here; then they serve every recipe and seed
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    views: Views
    prefixes: tuple[Views, ...] | None = None  # first views with the same bits; None: any count
    shards: tuple[PackFile, ...] = ()

    def serves(self, recipe: ViewRecipe, seed: int) -> bool:
        """Check that the views are those of a recipe and seed, whatever their number."""
        if self.recipe is None:
            return True
        return (self.recipe.model_copy(update={"count": recipe.count}), self.seed) == (recipe, seed)

    @property
    def title(self) -> str:
        if self.recipe is None:
            return f"{self.views} views of unknown origin"
        made = self.recipe.model_dump(exclude={"count", "version"})
        changed = {name for name in made if made[name] != ViewRecipe.model_fields[name].default}
        details = [f"{name} {made[name]}" for name in made if name in {"augmix", *changed}]
        return ", ".join([f"{self.views} views", f"seed {self.seed}", *details])


class Manifest(_Frozen):
    """What a pack holds and what made it."""

    format: Literal[1] = 1
    dtpt: str = ""  # version
    dataset: str  # whose images they are, for people
    classes: Annotated[tuple[str, ...], Field(min_length=1, max_length=1 << 20)]
    protocol: ProtocolName = "fine-grained"
    whole: Annotated[int, Field(ge=1)] | None = None  # images of the complete set
    cluster_noun: str = "clusters"
    images: Annotated[int, Field(ge=1, le=1 << 32)]
    dimensions: Annotated[int, Field(ge=1, le=1 << 16)]
    dtype: DType = "float16"
    model: str = ""  # name
    fingerprint: str = ""  # of the image tower; "": unknown
    precision: str = "float32"  # in which the image tower computed
    preprocessing: dict[str, JsonValue] | None = None
    template: str | None = None
    licence: str = ""
    source: str = ""  # where images and model come from, in words
    samples: PackFile = PackFile(name=SAMPLES, sha256="0" * 64, size=0)  # set by the writer
    text: PackFile | None = None
    views: Annotated[tuple[ViewGroup, ...], Field(min_length=1, max_length=256)]

    def without_shards(self) -> "Manifest":
        """Return what a writer must agree on to continue another's work."""
        groups = tuple(group.model_copy(update={"shards": ()}) for group in self.views)
        return self.model_copy(update={"views": groups, "text": None, "dtpt": ""})

    @property
    def files(self) -> tuple[PackFile, ...]:
        shards = tuple(shard for group in self.views for shard in group.shards)
        return (self.samples, *([self.text] if self.text else []), *shards)

    def shard_images(self, group: ViewGroup) -> int:
        """Return how many images a shard gets."""
        size = group.views * self.dimensions * np.dtype(self.dtype).itemsize
        return max(1, SHARD_BYTES // size)


class PackSamples(_Frozen):
    """One value per image and column."""

    ids: tuple[str, ...]
    labels: tuple[Annotated[int, Field(ge=0)], ...]
    clusters: tuple[str, ...]
    groups: tuple[str, ...]
    keys: tuple[str, ...]  # content keys of the images: equal keys, equal pixels

    @classmethod
    def of(cls, samples: Sequence[Sample], keys: Sequence[str]) -> Self:
        return cls(
            ids=tuple(sample.id for sample in samples),
            labels=tuple(sample.label for sample in samples),
            clusters=tuple(sample.cluster for sample in samples),
            groups=tuple(sample.group for sample in samples),
            keys=tuple(keys),
        )


@dataclass(frozen=True)
class Pack:
    """An opened pack; shards are opened when they are needed.

    Raises:
        DatasetError: From every method: a file is missing, or not what the manifest says.
    """

    folder: Path
    manifest: Manifest
    digest: str  # sha256 of the manifest, and so of everything
    _open: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _verified: set[str] = field(default_factory=set, repr=False, compare=False)

    def group(self, recipe: ViewRecipe, seed: int) -> int:
        """Return which group has the views of a recipe and seed."""
        for number, group in enumerate(self.manifest.views):
            if not group.serves(recipe, seed):
                continue
            if recipe.count > group.views:
                raise self._refusal(f"it has {group.views} views, and {recipe.count} are wanted")
            if group.prefixes is not None and recipe.count not in group.prefixes:
                counts = ", ".join(map(str, group.prefixes))
                raise self._refusal(
                    f"with {recipe.count} views their features would be other numbers than those "
                    f"that are stored, because the batches would differ; use {counts}"
                )
            return number
        wanted = ViewGroup(recipe=recipe, seed=seed, views=recipe.count).title
        there = "; ".join(group.title for group in self.manifest.views)
        raise self._refusal(f"it has no such views ({wanted}); it has {there}")

    def features(self, index: int, *, recipe: ViewRecipe, seed: int) -> Array:
        """Return the view features (k, D) of an image."""
        number = self.group(recipe, seed)
        shards = self.manifest.views[number].shards
        ends = list(accumulate(shard.images for shard in shards))
        which = int(np.searchsorted(ends, index, side="right"))
        position = index - ends[which] + shards[which].images
        stored = self._shard(number, shards[which])[position : position + 1, : recipe.count]
        (values,) = self._checked(stored, shards[which])
        return np.asarray(values)

    def _checked(self, stored: npt.NDArray[Any], shard: PackFile) -> Array:
        """Return features (n, k, D) as float32 of length 1; float32 ones are not changed."""
        values = np.asarray(stored, dtype=np.float32)
        with np.errstate(all="ignore"):  # what is not finite is refused below
            lengths = np.linalg.norm(values, axis=-1, keepdims=True)
        if not (np.abs(lengths - 1) < UNIT).all():  # also if some are not finite
            raise self._refusal(
                f"{shard.name} has features that are not finite, or not of length 1"
            )
        return values if self.manifest.dtype == "float32" else np.asarray(values / lengths)

    def _shard(self, number: int, shard: PackFile) -> Any:
        """Return the tensor of a shard, mapped into memory."""
        if shard.name not in self._open:
            self._verify(shard)
            shape = (shard.images, self.manifest.views[number].views, self.manifest.dimensions)
            dtype = {"float16": "F16", "float32": "F32"}[self.manifest.dtype]
            try:
                stored: Any = safe_open(self.folder / shard.name, framework="numpy")
                tensor = stored.get_slice("features")
                found = (list(stored.keys()), tuple(tensor.get_shape()), tensor.get_dtype())
            except (OSError, SafetensorError) as error:
                raise self._refusal(f"{shard.name}: {os_error(error)}") from error
            if found != (["features"], shape, dtype):
                raise self._refusal(f"{shard.name} holds other features than the manifest says")
            while len(self._open) >= SHARDS_OPEN:
                self._open.pop(next(iter(self._open)))
            self._open[shard.name] = (stored, tensor)  # the file must stay open
        return self._open[shard.name][1]

    def _verify(self, file: PackFile) -> None:
        """Refuse a file with another hash, once."""
        if file.name in self._verified:
            return
        try:
            with open_regular(self.folder / file.name) as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise self._refusal(f"{file.name}: {os_error(error)}") from error
        if found != file.sha256:
            raise self._refusal(f"{file.name} is damaged: its hash is not the one in {MANIFEST}")
        self._verified.add(file.name)

    def _refusal(self, reason: str) -> DatasetError:
        return DatasetError(f"The pack {printable(self.folder)}: {reason}.")

    def samples(self) -> PackSamples:
        """Return ids, labels, clusters and content keys."""
        self._verify(self.manifest.samples)
        path, most = self.folder / SAMPLES, min(self.manifest.samples.size, MOST_SAMPLE_BYTES)
        samples = _parsed(PackSamples, path, most_bytes=most, most_values=MOST_VALUES)
        if {len(column) for _, column in samples} != {self.manifest.images}:
            raise self._refusal(f"{SAMPLES} has not {self.manifest.images:,} values in every list")
        if not is_utf8("".join((*samples.groups, *samples.keys))):  # a data set checks the others
            raise self._refusal(f"{SAMPLES} has text that is not UTF-8")
        return samples

    def check_text(self) -> None:
        """Refuse text features with another hash."""
        if self.manifest.text is not None:
            self._verify(self.manifest.text)

    def check(self) -> None:
        """Refuse a manifest that contradicts itself or the sizes of the files."""
        for group in self.manifest.views:
            if sum(shard.images for shard in group.shards) != self.manifest.images:
                raise self._refusal(f"{group.title}: the shards have not all images")
            if group.recipe is not None and group.recipe.count != group.views:
                raise self._refusal(f"{group.title}: the recipe makes {group.recipe.count} views")
            if group.prefixes is not None and max(group.prefixes, default=0) != group.views:
                raise self._refusal(f"{group.title}: prefixes do not end with all views")
        names = [file.name for file in self.manifest.files]
        if repetitions(names) or self.manifest.samples.name != SAMPLES:
            raise self._refusal("the manifest names a file twice, or other samples")
        for file in self.manifest.files:
            try:
                size = (self.folder / file.name).stat().st_size
            except OSError as error:
                raise self._refusal(f"{file.name}: {os_error(error)}") from error
            if size != file.size:
                raise self._refusal(f"{file.name} has {size:,} bytes instead of {file.size:,}")

    def verify(self) -> Iterator[str]:
        """Check every file and every feature; yield what is wrong."""
        checks: list[tuple[Any, ...]] = [(self.check,), (pack_dataset, self), (self.check_text,)]
        for number, group in enumerate(self.manifest.views):
            checks += [(self._verify_shard, number, shard) for shard in group.shards]
        for call, *arguments in checks:
            try:
                call(*arguments)
            except DatasetError as error:
                yield str(error)

    def _verify_shard(self, number: int, shard: PackFile) -> None:
        self._checked(self._shard(number, shard)[:], shard)


def _parsed(
    kind: type[Model], path: Path, *, most_bytes: int, most_values: int = 1_000_000
) -> Model:
    """Parse a JSON file that somebody else may have written."""
    try:
        content = parse_json(read_limited(path, most_bytes), most_values=most_values)
        return kind.model_validate(content)
    except ValidationError as error:
        raise DatasetError(f"{printable(path)} is damaged: {explain(error)}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{printable(path)} cannot be read: {os_error(error)}.") from error


def open_pack(folder: Path) -> Pack:
    """Open a finished pack and compare its manifest with the sizes of its files.

    Raises:
        DatasetError: There is none, it is unfinished, or it is damaged.
    """
    path = folder / MANIFEST
    if not path.exists() and (folder / PARTIAL).exists():
        raise DatasetError(
            f"The pack {printable(folder)} is unfinished: run the command that writes it again."
        )
    manifest = _parsed(Manifest, path, most_bytes=MOST_MANIFEST_BYTES)
    try:
        digest = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()
    except ValueError as error:  # lone surrogates
        raise DatasetError(f"{printable(path)} has text that is not UTF-8.") from error
    pack = Pack(folder, manifest, digest)
    pack.check()
    return pack


@lru_cache(maxsize=8)
def _opened(folder: Path, digest: str) -> Pack:
    """Open a pack once in a process; an ImageError if it is another one here, or none."""
    try:
        pack = open_pack(folder)
    except DatasetError as error:
        raise ImageError(str(error)) from error
    if pack.digest != digest:
        raise ImageError(f"{printable(folder)} is another pack than where the run was started.")
    return pack


class FeatureRef(ABC):
    """A sample whose view features are known and whose image is not."""

    @abstractmethod
    def features(self, recipe: ViewRecipe, seed: int) -> Array:
        """Return the (k, D) features of the views of a recipe and seed."""

    def open(self) -> "Image.Image":
        raise ImageError("A feature pack has no images.")


@dataclass(frozen=True)
class PackRef(FeatureRef):
    """A sample of a pack, which every process opens for itself."""

    folder: Path
    digest: str  # of the pack
    index: int
    content_key: str

    def key(self) -> str:
        _opened(self.folder, self.digest)  # a node of a cluster shows that it has the pack
        return self.content_key

    def stamp(self) -> str:
        return self.digest

    def features(self, recipe: ViewRecipe, seed: int) -> Array:
        return _opened(self.folder, self.digest).features(self.index, recipe=recipe, seed=seed)

    def carried(self, recipe: ViewRecipe, seed: int) -> "CarriedFeatures":
        """Return the sample with its features, for a process that cannot open the pack."""
        return CarriedFeatures(self.features(recipe, seed), self.content_key, self.digest)


@dataclass(frozen=True, eq=False)
class CarriedFeatures(FeatureRef):
    """A sample that travels with its features."""

    values: Array  # (k, D)
    content_key: str
    digest: str

    def key(self) -> str:
        return self.content_key

    def stamp(self) -> str:
        return self.digest

    def features(self, recipe: ViewRecipe, seed: int) -> Array:  # noqa: ARG002 - of its task
        return self.values[: recipe.count]


def pack_dataset(pack: Pack, *, name: str = "") -> Dataset:
    """Return the data set of a pack."""
    manifest, rows, folder = pack.manifest, pack.samples(), pack.folder.absolute()
    columns = zip(rows.ids, rows.labels, rows.clusters, rows.groups, rows.keys, strict=True)
    samples = tuple(
        Sample(id, label, PackRef(folder, pack.digest, index, key), group=group, cluster=cluster)
        for index, (id, label, cluster, group, key) in enumerate(columns)
    )
    recipe = manifest.views[0].recipe
    return Dataset(
        name or f"pack:{pack.folder}",
        manifest.classes,
        samples,
        protocol=manifest.protocol,
        augmix=recipe is not None and recipe.augmix,
        whole=manifest.whole,
        cluster_noun=manifest.cluster_noun,
        source=str(pack.folder),
        pack=pack,
    )


class PackWriter:
    """Writes a pack shard by shard, or continues one; `finish` makes it readable.

    Raises:
        DatasetError: The folder holds another pack, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        samples: PackSamples,
    ) -> None:
        self.folder = folder
        data = samples.model_dump_json().encode()
        self._manifest = manifest.model_copy(update={"samples": _entry(SAMPLES, data)})
        self._shards: dict[str, PackFile] = {}
        for path in (folder / PARTIAL, folder / MANIFEST):
            if path.exists():
                self._continue(_parsed(Manifest, path, most_bytes=MOST_MANIFEST_BYTES))
                break
        self._write(SAMPLES, data)

    def _continue(self, stored: Manifest) -> None:
        """Keep the shards of another writer whose hashes are right."""
        if stored.without_shards() != self._manifest.without_shards():
            raise DatasetError(
                f"{printable(self.folder)} holds another pack: give another folder, or remove it."
            )
        self._manifest = self._manifest.model_copy(update={"text": stored.text})
        there = Pack(self.folder, stored, digest="")
        for number, group in enumerate(stored.views):
            for shard in group.shards:
                with suppress(DatasetError):
                    there._verify_shard(number, shard)
                    self._shards[shard.name] = shard

    @property
    def missing(self) -> list[tuple[int, range]]:
        """The shards that lack: group, and the images of the shard."""
        manifest, lacking = self._manifest, []
        for number, group in enumerate(manifest.views):
            size = manifest.shard_images(group)
            for first in range(0, manifest.images, size):
                images = range(first, min(first + size, manifest.images))
                known = self._shards.get(_shard_name(number, first))
                if known is None or known.images != len(images):
                    lacking.append((number, images))
        return lacking

    def write(self, group: int, *, images: range, features: Array) -> None:
        """Write the features (n, N, D) of the images of one shard."""
        values = np.ascontiguousarray(features, dtype=self._manifest.dtype)
        name = _shard_name(group, images.start)
        data = save_tensors({"features": values})
        self._write(name, data)
        self._shards[name] = _entry(name, data, images=len(images))
        (self.folder / MANIFEST).unlink(missing_ok=True)  # until all is there again
        self._write(PARTIAL, self._current().model_dump_json().encode())

    def add_text(self, name: str) -> None:
        """Make a file with text features that is in the folder a part of the pack."""
        entry = _entry(name, (self.folder / name).read_bytes())
        self._manifest = self._manifest.model_copy(update={"text": entry})

    def _current(self) -> Manifest:
        groups = tuple(
            group.model_copy(
                update={
                    "shards": tuple(
                        self._shards[name]
                        for name in sorted(self._shards)
                        if name.startswith(_shard_name(number, None))
                    )
                }
            )
            for number, group in enumerate(self._manifest.views)
        )
        return self._manifest.model_copy(update={"views": groups})

    def finish(self) -> Pack:
        """Write the manifest and return the pack, with every shard there."""
        self._write(MANIFEST, self._current().model_dump_json(indent=1).encode())
        (self.folder / PARTIAL).unlink(missing_ok=True)
        return open_pack(self.folder)

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, data)
        except OSError as error:
            reason = os_error(error)
            raise DatasetError(f"{printable(self.folder)} cannot be written: {reason}.") from error


def _entry(name: str, data: bytes, *, images: int = 0) -> PackFile:
    sha256 = hashlib.sha256(data).hexdigest()
    return PackFile(name=name, sha256=sha256, size=len(data), images=images)


def _shard_name(group: int, first: int | None) -> str:
    stem = f"views-{group}-"
    return stem if first is None else f"{stem}{first:010d}{SUFFIX}"
