"""The JSON of the service: requests and responses. Numbers are fractions, entropies in nats."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dtpt.calibration import Provenance, Targets
from dtpt.errors import short_repr
from dtpt.methods import parse_label
from dtpt.methods.table import DEFAULT_METHOD
from dtpt.options import ImageOptions

MAX_CLASSES, MAX_METHODS, MAX_VIEWS, MAX_STEPS, MAX_BINS = 1000, 12, 64, 10, 100
MAX_TEXT, MAX_METHOD_TEXT, MAX_MODIFIERS = 200, 120, 8
MAX_SAMPLES = 500_000  # of a CSV file
MAX_RATE = 1e3  # of the optimiser
MAX_NUMBER = 1e12  # in the name of a method; its inverse is the least
MAX_SETTINGS_BYTES, MAX_DEPTH = 1_000_000, 8  # of JSON


def _bounded_method(name: str) -> str:
    """Refuse a name with many modifiers, or with numbers beyond every use."""
    parsed = parse_label(name)
    if (count := len(parsed.modifiers)) > MAX_MODIFIERS:
        raise ValueError(f"has {count} modifiers, at most {MAX_MODIFIERS}: {short_repr(name)}")
    for part in (*parsed.modifiers, parsed.rule):
        value = _number(part.rpartition("=")[2])
        if value and not 1 / MAX_NUMBER <= abs(value) <= MAX_NUMBER:
            bounds = f"between {1 / MAX_NUMBER:g} and {MAX_NUMBER:g}"
            raise ValueError(f"the number in {short_repr(part)} must lie {bounds}")
    return name


def _number(text: str) -> float:
    """Return the number in a method name; 0 for what is none, which the parser explains."""
    try:
        return float(text)
    except ValueError:
        return 0.0


_WITHOUT_CONTROLS = r"^[^\x00-\x1f]*$"
Text = Annotated[str, Field(max_length=MAX_TEXT, pattern=_WITHOUT_CONTROLS)]
MethodName = Annotated[
    str,
    Field(max_length=MAX_METHOD_TEXT, pattern=_WITHOUT_CONTROLS),
    AfterValidator(_bounded_method),
]
Part = Literal["views", "words", "evidence", "commands"]


class PredictSettings(ImageOptions):
    """The settings of a prediction; prompt, views and tuning as in `dtpt predict`."""

    classes: Annotated[
        tuple[Text, ...],
        Field(min_length=2, max_length=MAX_CLASSES, fail_fast=True, description="Class names."),
    ]
    methods: Annotated[
        tuple[MethodName, ...],
        Field(min_length=1, max_length=MAX_METHODS, description="Of /v1/methods, or d-tpt@1e5."),
    ] = ("zero-shot", DEFAULT_METHOD)
    template: Annotated[Text, Field(description="Prompt with {} for the class name.")] = (
        "a photo of a {}."
    )
    views: Annotated[
        int, Field(ge=1, le=MAX_VIEWS, description="Views, the original included.")
    ] = MAX_VIEWS
    steps: Annotated[int, Field(ge=0, le=MAX_STEPS, description="AdamW steps; 0 is zero-shot.")] = 1
    learning_rate: Annotated[float, Field(gt=0, le=MAX_RATE, description="Of AdamW.")] = 5e-3
    weight_decay: Annotated[float, Field(ge=0, le=MAX_RATE, description="Of AdamW.")] = 0.01
    dropped: Annotated[
        tuple[Annotated[int, Field(ge=1, lt=MAX_VIEWS)], ...],
        Field(max_length=MAX_VIEWS, description="Views to leave out; never the original, view 0."),
    ] = ()
    show: Annotated[
        tuple[Part, ...], Field(max_length=4, description="Further parts of the response.")
    ] = ()
    image_id: Annotated[
        str | None,
        Field(pattern=r"^[0-9a-f]{64}$", description="Of an image that was sent before."),
    ] = None

    @model_validator(mode="after")
    def _views_exist(self) -> Self:
        if any(view >= self.views for view in self.dropped):
            raise ValueError(f"dropped: must be views from 1 to {self.views - 1}")
        return self


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Evidence(_Response):
    """How often predictions of similar confidence were correct, in a run of the same setup."""

    dataset: str
    correct: int
    count: Annotated[int, Field(description="Predictions: those nearest in confidence.")]
    lowest_confidence: Annotated[float | None, Field(description="None: all are counted.")] = None
    highest_confidence: float | None = None
    mean_confidence: float
    low: Annotated[float, Field(description="Exact 95 % interval of the accuracy.")]
    high: float
    bins: Annotated[
        dict[str, list[float]] | None, Field(description="Reliability diagram of all predictions.")
    ] = None


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


class MethodPrediction(_Response):
    method: Annotated[str, Field(description="As in the request.")]
    title: str
    lambda_: Annotated[float | None, Field(serialization_alias="lambda")]
    label: str
    index: int
    confidence: float
    entropy: float
    probabilities: list[float]
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
    zero_shot: MethodPrediction
    predictions: list[MethodPrediction]
    views: list[View] | None = None
    commands: Annotated[
        dict[str, str] | None,
        Field(description="Lines that give the same numbers, for shell and python."),
    ] = None
    cached: Annotated[bool, Field(description="Whether the image's features were in memory.")]
    seconds: float


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
    bins: Annotated[
        dict[str, list[float]],
        Field(description="Those that are not empty; chance: 90 % range of a calibrated model."),
    ]


class ServerInfo(_Response):
    version: str
    model: str
    fingerprint: str
    embedded: bool
    device: str
    parameters: int
    limits: dict[str, int]
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
    id: str
    name: str
    classes: Annotated[str, Field(description="Name of a class list that contains it.")]


class Error(_Response):
    """Every response that is not 2xx."""

    error: dict[Literal["code", "message", "remedy"], str]
