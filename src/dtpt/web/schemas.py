"""The JSON of the service: what comes in and what goes out."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dtpt.clip.prompts import DEFAULT_TEMPLATE

Part = Literal["views", "words", "evidence", "commands"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PredictSettings(_Record):
    """What is asked about a picture."""

    classes: Annotated[list[str], Field(min_length=2, description="Names to choose from.")]
    methods: Annotated[
        list[str],
        Field(min_length=1, description="Names as in /v1/methods, such as d-tpt@1e5."),
    ] = ["zero-shot", "d-tpt"]
    template: Annotated[
        str, Field(description="Prompt with {} for the class name; its words are tuned.")
    ] = DEFAULT_TEMPLATE
    views: Annotated[int, Field(ge=1, description="Views, the original included.")] = 64
    seed: Annotated[int, Field(ge=0, lt=2**63, description="Of the random views.")] = 0
    augmix: Annotated[bool, Field(description="AugMix in the random views.")] = True
    steps: Annotated[int, Field(ge=0, description="Optimiser steps.")] = 1
    dropped: Annotated[
        list[int],
        Field(max_length=4096, description="Views that are left out; never the original, view 0."),
    ] = []
    show: Annotated[list[Part], Field(max_length=4, description="What to answer beside.")] = []
    picture_id: Annotated[
        str | None, Field(max_length=64, description="Of a picture that was sent before.")
    ] = None


class Choice(_Record):
    """A distribution over the classes, read at its maximum; fractions, entropy in nats."""

    label: str
    index: int
    confidence: float
    entropy: float
    probabilities: list[float]


class Evidence(_Record):
    """How often answers of about this confidence were right, in a run of the same set-up."""

    source: Annotated[str, Field(description="The data set of the run.")]
    right: int
    count: Annotated[int, Field(description="Answers looked at: the nearest in confidence.")]
    least_confidence: float
    most_confidence: float
    mean_confidence: Annotated[float, Field(description="To hold against the share that is right.")]
    low: Annotated[float, Field(description="Exact 95 % interval of the share that is right.")]
    high: float


class Calibrated(_Record):
    """A prediction after calibration: see `dtpt calibrate`."""

    source: Annotated[str, Field(description="Data set of the labelled images.")]
    images: Annotated[int, Field(description="Labelled images behind the calibration.")]
    confidence: Annotated[float, Field(description="Calibrated, of the predicted class.")]
    prediction_set: Annotated[list[str], Field(description="Classes, the most probable first.")]
    abstained: Annotated[bool, Field(description="Whether the guarantee on errors excludes it.")]
    coverage: Annotated[float, Field(description="Target: sets that contain the true class.")]
    error: Annotated[float, Field(description="Target: error rate of accepted predictions.")]
    level: Annotated[float, Field(description="Confidence of the guarantee on errors.")]
    threshold: Annotated[float | None, Field(description="Least confidence to be accepted.")]
    assumption: Annotated[str, Field(description="Under which the guarantees hold.")]


class Word(_Record):
    """A tuned token of the template: how far it moved, what is near now, what it moved towards."""

    token: str
    moved: Annotated[float, Field(description="Distance between before and after.")]
    length: Annotated[float, Field(description="Of its vector before tuning.")]
    nearest: Annotated[list[tuple[str, float]], Field(description="Tokens and their distances.")]
    towards: Annotated[list[str], Field(description="Tokens to which the distance fell most.")]


class MethodAnswer(Choice):
    """What one method says."""

    method: Annotated[str, Field(description="As it was asked for.")]
    title: str
    lambda_: Annotated[float | None, Field(serialization_alias="lambda")]
    words: list[Word] | None = None
    evidence: list[Evidence] | None = None
    calibrated: Calibrated | None = None


class View(_Record):
    """One view: what the untuned model says about it, and whether methods tune on it."""

    index: int
    label: str
    confidence: float
    entropy: float
    kept: bool
    dropped: bool


class Picture(_Record):
    """What the server says about a picture itself."""

    id: str
    width: int
    height: int
    remark: str | None
    thumbnails: Annotated[str | None, Field(description="Address of a sheet of the views.")]


class Commands(_Record):
    """How to get the same numbers without this page."""

    shell: str
    python: str


class PredictAnswer(_Record):
    """The answer to /v1/predict."""

    picture: Picture
    model: str
    fingerprint: str
    classes: list[str]
    duplicates: Annotated[list[list[str]], Field(description="Names with the same prompt.")]
    zero_shot: Choice
    answers: list[MethodAnswer]
    views: list[View] | None = None
    commands: Commands | None = None
    cached: Annotated[bool, Field(description="Whether the picture's features were in memory.")]
    seconds: float


class Bin(_Record):
    """One bin of a reliability diagram; fractions, null where the bin is empty."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    chance_low: float | None
    chance_high: float | None


class MetricValue(_Record):
    """One metric: its value as a fraction, and how to print it."""

    key: str
    heading: str
    value: float
    text: str
    unit: str
    meaning: str
    higher_is_better: bool | None


class ScoreAnswer(_Record):
    """The answer to /v1/score."""

    count: int
    verdict: str
    metrics: list[MetricValue]
    bins: list[Bin]


class ModelOut(_Record):
    """The model that this server holds."""

    name: str
    fingerprint: str
    embedded: bool
    dimensions: int
    image_size: int
    context_tokens: int
    device: str
    parameters: int


class ServerOut(_Record):
    """What the page must know before it asks."""

    version: str
    models: list[ModelOut]
    limits: dict[str, float]
    evidence: Annotated[list[str], Field(description="Data sets of the runs given at the start.")]
    calibrations: Annotated[list[str], Field(description="Their methods and data sets.")]


class MethodOut(_Record):
    """One method that can be asked for."""

    name: str
    title: str
    summary: str
    lambdas: dict[str, float]
    sweep: list[float]
    uses_views: bool
    in_paper: bool
    colour: str
    marker: str


class ClassList(_Record):
    """A list of class names that can be taken over."""

    name: str
    title: str
    group: str
    count: int


class Example(_Record):
    """A drawing that the server can make."""

    id: str
    name: str
    classes: Annotated[str, Field(description="Name of a class list that has it.")]


class Problem(_Record):
    """What went wrong, for programs and for people."""

    code: str
    message: str
    remedy: str


class Error(_Record):
    """Every answer that is not 2xx."""

    error: Problem
