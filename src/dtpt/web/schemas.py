"""The JSON of the service: requests and responses. Numbers are fractions, entropies in nats."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dtpt.calibration import Provenance, Targets
from dtpt.options import ImageOptions
from dtpt.web.options import Limits

Part = Literal["views", "words", "evidence", "commands"]


class PredictSettings(ImageOptions):
    """The settings of a prediction; prompt, views and tuning as in `dtpt predict`."""

    classes: Annotated[
        tuple[str, ...], Field(min_length=2, fail_fast=True, description="Class names.")
    ]
    methods: Annotated[
        tuple[str, ...],
        Field(min_length=1, fail_fast=True, description="Names of /v1/methods, or d-tpt@1e5."),
    ] = ("zero-shot", "d-tpt")
    dropped: Annotated[
        tuple[int, ...],
        Field(max_length=4096, description="Views to leave out; never the original, view 0."),
    ] = ()
    show: Annotated[
        tuple[Part, ...], Field(max_length=4, description="Further parts of the response.")
    ] = ()
    image_id: Annotated[
        str | None, Field(max_length=64, description="Of an image that was sent before.")
    ] = None


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Distribution(_Response):
    """Probabilities of the classes, read at their maximum."""

    label: str
    index: int
    confidence: float
    entropy: float
    probabilities: list[float]


class Evidence(_Response):
    """How often predictions of similar confidence were correct, in a run of the same setup."""

    dataset: str
    correct: int
    count: Annotated[int, Field(description="Predictions: those nearest in confidence.")]
    lowest_confidence: float
    highest_confidence: float
    mean_confidence: float
    low: Annotated[float, Field(description="Exact 95 % interval of the accuracy.")]
    high: float


class Calibrated(_Response):
    """A prediction after calibration: see `dtpt calibrate`."""

    confidence: Annotated[float, Field(description="Calibrated, of the predicted class.")]
    prediction_set: Annotated[list[str], Field(description="Classes, the most probable first.")]
    abstained: Annotated[bool, Field(description="Whether the guarantee on errors excludes it.")]
    threshold: Annotated[float | None, Field(description="Least confidence to be accepted.")]
    targets: Targets
    provenance: Annotated[Provenance, Field(description="The labelled images.")]
    assumption: Annotated[str, Field(description="Under which the guarantees hold.")]


class Word(_Response):
    """A tuned token of the template, in the space of token embeddings."""

    token: str
    moved: Annotated[float, Field(description="Distance between before and after tuning.")]
    norm: Annotated[float, Field(description="Of its embedding before tuning.")]
    nearest: Annotated[list[str], Field(description="Nearest other tokens after tuning.")]
    towards: Annotated[list[str], Field(description="Tokens whose distance fell most.")]


class MethodPrediction(Distribution):
    method: Annotated[str, Field(description="As in the request.")]
    title: str
    lambda_: Annotated[float | None, Field(serialization_alias="lambda")]
    words: list[Word] | None = None
    evidence: list[Evidence] | None = None
    calibrated: Calibrated | None = None


class View(_Response):
    """One view: its zero-shot prediction, and whether methods tune on it."""

    index: int
    label: str
    confidence: float
    entropy: float
    kept: bool
    dropped: bool


class ImageInfo(_Response):
    id: str
    width: int
    height: int
    warning: Annotated[str | None, Field(description="That it is out of distribution.")]
    thumbnails: Annotated[str | None, Field(description="Address of a sheet of the views.")]


class PredictResponse(_Response):
    image: ImageInfo
    model: str
    fingerprint: str
    classes: list[str]
    duplicates: Annotated[list[list[str]], Field(description="Names with the same prompt.")]
    zero_shot: Distribution
    predictions: list[MethodPrediction]
    views: list[View] | None = None
    commands: Annotated[
        dict[str, str] | None,
        Field(description="Lines that give the same numbers, for shell and python."),
    ] = None
    cached: Annotated[bool, Field(description="Whether the image's features were in memory.")]
    seconds: float


class Bin(_Response):
    """One bin of a reliability diagram; chance: the 90 % range of a calibrated model."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float
    chance_low: float
    chance_high: float


class MetricValue(_Response):
    """One metric: its value as a fraction, and how to print it."""

    key: str
    heading: str
    value: float
    text: str
    unit: str
    meaning: str


class ScoreResponse(_Response):
    count: int
    verdict: str
    metrics: list[MetricValue]
    bins: Annotated[list[Bin], Field(description="Those that are not empty.")]


class ModelInfo(_Response):
    name: str
    fingerprint: str
    embedded: bool
    image_size: int
    device: str
    parameters: int


class ServerInfo(_Response):
    version: str
    models: list[ModelInfo]
    limits: Limits
    evidence: Annotated[list[str], Field(description="Data sets of the runs given at the start.")]
    calibrations: Annotated[list[str], Field(description="Their methods and data sets.")]


class MethodInfo(_Response):
    name: str
    title: str
    summary: str
    lambdas: dict[str, float]
    sweep: list[float]
    in_paper: bool
    colour: str


class ClassList(_Response):
    name: str
    title: str
    group: str
    count: int


class Example(_Response):
    """A drawing that the server can render."""

    id: str
    name: str
    classes: Annotated[str, Field(description="Name of a class list that contains it.")]


class Error(_Response):
    """Every response that is not 2xx."""

    error: dict[Literal["code", "message", "remedy"], str]
