"""What the analyses find, as frozen records of plain numbers (no torch, no arrays).

Shares, accuracies and calibration errors are fractions; angles are radians; entropies and
divergences are nats. Dimension indices count from 0. `None` stands where a number does not exist
(a correlation of two points, the static variant of a method without regulariser).
"""

from dataclasses import dataclass

from dtpt.analysis.feature_results import ModalityAnalysis, ModalityGap, Sensitivity

FORMAT = 1


@dataclass(frozen=True)
class MethodScore:
    """Accuracy and calibration of one method on one data set.

    Attributes:
        label: Name and λ, `d-tpt@100000`.
        method: Name with modifiers, without λ.
        lambda_: Weight of the regulariser; None where there is none.
        images: Images behind the numbers.
        accuracy: Fraction.
        ece: Expected calibration error, 20 bins.
        confidence: Mean confidence.
    """

    label: str
    method: str
    lambda_: float | None
    images: int
    accuracy: float
    ece: float
    confidence: float


@dataclass(frozen=True)
class WithoutDominant:
    """One method as it is, without the TDD and without the IDD (figure 3b)."""

    dataset: str
    original: MethodScore
    without_tdd: MethodScore
    without_idd: MethodScore


@dataclass(frozen=True)
class GeometryState:
    """Where the text features lie, averaged over images.

    Attributes:
        atfd: Average text feature dispersion.
        logit_range: Largest minus smallest logit (logits are cosines times the logit scale).
        logit_mean: Mean logit over classes.
        cosine: Mean cosine of the image and all classes: logit_mean without the scale.
        top_cosine: Cosine of the image and the class that zero-shot predicts.
        label_cosine: Cosine of the image and its true class.
    """

    atfd: float
    logit_range: float
    logit_mean: float
    cosine: float
    top_cosine: float
    label_cosine: float


@dataclass(frozen=True)
class Movement:
    """The movement t → t' of text features, split as figure 5 defines; averages over images.

    Tangent: along the geodesic from the text feature toward the image feature. Normal: along the
    text feature itself (radial). Binormal: orthogonal to both. The shares add up to 1; a movement
    in a random direction of the sphere would have a tangent share of 1/(D - 1).

    Attributes:
        squared_length: Mean ‖t' - t‖².
        tangent_share: Share of the squared movement (0 when nothing moves, as the other two).
        normal_share: Share of the squared movement.
        binormal_share: Share of the squared movement.
        tangent: Mean signed length; positive is toward the image.
        normal: Mean signed length; negative is toward the centre, as on any chord.
        binormal: Mean length.
    """

    squared_length: float
    tangent_share: float
    normal_share: float
    binormal_share: float
    tangent: float
    normal: float
    binormal: float


@dataclass(frozen=True)
class MethodGeometry:
    """What tuning does to the text features (figures 1 and 5).

    Attributes:
        label: Name and λ.
        method: Name without λ.
        lambda_: Weight of the regulariser.
        images: Images behind the averages.
        angle: Mean angle between text features and the image before tuning, for the drawing.
        before: With the initial context; the same for every method.
        after: With the tuned context.
        every_class: Movement of all classes.
        top_class: Movement of the class that zero-shot predicts.
        other_classes: Movement of the others; None when there is one class only.
    """

    label: str
    method: str
    lambda_: float | None
    images: int
    angle: float
    before: GeometryState
    after: GeometryState
    every_class: Movement
    top_class: Movement
    other_classes: Movement | None


@dataclass(frozen=True)
class DispersionPoint:
    """One point of figure 1."""

    dataset: str
    template: str
    label: str
    atfd: float
    ece: float


@dataclass(frozen=True)
class DispersionScatter:
    """ATFD against ECE over methods, templates and data sets.

    Attributes:
        points: All of them.
        pearson: Linear correlation; None with fewer than three points or no spread.
        spearman: Rank correlation, ties averaged; None likewise.
        pearson_within: Linear correlation after the mean of each data set is taken off both, so
            that differences between class lists do not count; None likewise.
    """

    points: tuple[DispersionPoint, ...]
    pearson: float | None
    spearman: float | None
    pearson_within: float | None


@dataclass(frozen=True)
class ParetoPoint:
    """One setting in the plane of accuracy and ECE (figure 7).

    Attributes:
        label: Name and λ.
        method: Name without λ; points of one method form its curve.
        lambda_: Weight of the regulariser.
        accuracy: Fraction, more is better.
        ece: Fraction, less is better.
        efficient: No other point is at least as good in both and better in one.
        efficient_in_method: The same among the points of this method alone.
    """

    label: str
    method: str
    lambda_: float | None
    accuracy: float
    ece: float
    efficient: bool
    efficient_in_method: bool


@dataclass(frozen=True)
class StaticComparison:
    """A method beside its static variant, on the same images.

    Attributes:
        score: Of the static variant, which sees no view and costs nothing per image.
        same_prediction: Share of images for which both predict the same class.
        confidence_difference: Mean |difference| of their confidences.
    """

    score: MethodScore
    same_prediction: float
    confidence_difference: float


@dataclass(frozen=True)
class ImageDependence:
    """How much of a method's first step depends on the image at all.

    The first AdamW step follows the signs of g = g_entropy + λ g_regulariser alone.

    Attributes:
        label: Name and λ.
        method: Name without λ.
        lambda_: Weight of the regulariser.
        images: Images behind the shares.
        coordinates: Numbers in the context.
        same_sign_all: Share of coordinates that step in the same direction for every image.
        same_sign_most: The same for at least 95 % of the images.
        mean_majority: Mean over coordinates of the share of images in the more frequent direction
            (0.5 for coin flips).
        regulariser_agreement: Share of (image, coordinate) pairs with the regulariser's own sign;
            None without regulariser.
        entropy_agreement: Share with the sign of TPT's gradient of the same image.
        full_steps: Share of pairs whose step is over 99 % of the learning rate; the rest have a
            gradient so small that AdamW's ε shortens the step.
        score: Of the method.
        static: Its static variant; None without regulariser.
    """

    label: str
    method: str
    lambda_: float | None
    images: int
    coordinates: int
    same_sign_all: float
    same_sign_most: float
    mean_majority: float
    regulariser_agreement: float | None
    entropy_agreement: float
    full_steps: float
    score: MethodScore
    static: StaticComparison | None


@dataclass(frozen=True)
class DatasetAnalysis:
    """Everything that was found for one data set and template.

    Attributes:
        dataset: Its name.
        template: Prompt with {} for the class name.
        classes: Number of classes.
        images: Images that entered.
        failures: Images that could not be read and did not enter.
        dimensions: D of the joint space.
        text: Text features of all classes, before tuning.
        image: Image features of all images (original view).
        gap: Between the two.
        sensitivity: Three charts: "product", "text", "image".
        scores: Every method that was run, in order; static variants and modifiers included.
        without: Zero-shot and TPT without dominant dimensions.
        geometry: For methods without modifiers.
        image_dependence: For tuned methods without modifiers.
        pareto: All unmodified methods as points.
    """

    dataset: str
    template: str
    classes: int
    images: int
    failures: int
    dimensions: int
    text: ModalityAnalysis
    image: ModalityAnalysis
    gap: ModalityGap
    sensitivity: tuple[Sensitivity, ...]
    scores: tuple[MethodScore, ...]
    without: tuple[WithoutDominant, ...]
    geometry: tuple[MethodGeometry, ...]
    image_dependence: tuple[ImageDependence, ...]
    pareto: tuple[ParetoPoint, ...]


@dataclass(frozen=True)
class Analysis:
    """The content of analysis.json.

    Attributes:
        format: Version of this record.
        code_version: Of dtpt.
        model: Name of the model.
        fingerprint: Of its weights.
        seed: Of the views.
        views: Views per image.
        datasets: One entry per data set and template.
        dispersion: ATFD against ECE over all entries.
    """

    format: int
    code_version: str
    model: str
    fingerprint: str
    seed: int
    views: int
    datasets: tuple[DatasetAnalysis, ...]
    dispersion: DispersionScatter
