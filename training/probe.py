"""What frozen features are worth: linear probe, nearest neighbours, few-shot least squares.

N images, D features, K classes. Features are float32 `(N, D)`, labels int `(N,)`; a method is a
function (train features, train labels, test features) -> predicted labels `(N_test,)`.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from keras_vit.config import UserError

NEIGHBOURS, TEMPERATURE = 20, 0.07  # Wu et al. 2018; DINO, Caron et al. 2021
BIAS, L2 = 100.0, 1024.0  # big_vision evaluators/fewshot_lsr.py
STRENGTHS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]  # C of the linear probe


def linear(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Multinomial logistic regression on standardised features.

    Its strength C is the best of `STRENGTHS` in a cross-validation of up to five folds within the
    training images; with one image a class there is nothing to fold, and C is 1e-2.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e-2, max_iter=2000))
    folds = min(5, np.bincount(y)[np.unique(y)].min())
    if folds > 1:
        splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
        model = GridSearchCV(model, {"logisticregression__C": STRENGTHS}, cv=splitter)
    with warnings.catch_warnings():
        # Strengths that barely regularise need many steps; cross-validation passes them over.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y).predict(x_test)


def knn(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Votes of the nearest `NEIGHBOURS` by cosine, each weighted by exp(cosine / TEMPERATURE)."""
    cosine = normalize(x_test) @ normalize(x).T  # (N_test, N)
    count = min(NEIGHBOURS, len(x))
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, :count]
    weights = np.exp(np.take_along_axis(cosine, nearest, axis=1) / TEMPERATURE)
    votes = np.zeros((len(x_test), y.max() + 1))
    np.add.at(votes, (np.arange(len(x_test))[:, None], y[nearest]), weights)
    return votes.argmax(axis=1)


def least_squares(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """The paper's few-shot evaluation: ridge regression to -1 and 1 in closed form.

    Dosovitskiy et al. 2021, section 4.1; big_vision `evaluators/fewshot_lsr.py`: features are
    standardised, a constant of `BIAS` stands for the bias, the penalty is `L2`.
    """
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-5

    def prepared(features):
        features = (features - mean) / std
        return np.concatenate([features, np.full((len(features), 1), BIAS)], axis=1)

    targets = 2.0 * np.eye(y.max() + 1)[y] - 1.0
    model = Ridge(alpha=L2, fit_intercept=False).fit(prepared(x.astype(np.float64)), targets)
    return model.predict(prepared(x_test)).reshape(len(x_test), -1).argmax(axis=1)


METHODS = {"linear": linear, "knn": knn, "least-squares": least_squares}


@dataclass(frozen=True)
class Scores:
    """Accuracies of one method, one for each seed.

    mean: of the accuracies; interval: half of the 95 % confidence interval of the mean (Student's
    t), None of a single one.
    """

    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def interval(self) -> float | None:
        return confidence(self.accuracies)

    def __str__(self) -> str:
        around = "" if self.interval is None else f" ± {self.interval:.2%}"
        return f"{self.mean:.2%}{around}"


def confidence(values) -> float | None:
    """Half of the 95 % confidence interval of a mean, None of fewer than two values."""
    if len(values) < 2:
        return None
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1) * spread)


def probe(
    method: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    shots: int | None = None,
    seeds: int = 3,
) -> Scores:
    """Accuracy on `test` of a method that learns from `train`.

    Args:
        method: a key of `METHODS`.
        train, test: (features, labels).
        shots: images of each class, drawn anew for each seed; None: all, which needs no seeds.
        seeds: how many draws.

    Raises: UserError: a class has fewer images than shots.
    """
    (x, y), (x_test, y_test) = train, test
    accuracies = []
    for seed in range(seeds if shots else 1):
        chosen = draw(y, shots, seed) if shots else slice(None)
        predicted = METHODS[method](x[chosen], y[chosen], x_test)
        accuracies.append(float((predicted == y_test).mean()))
    return Scores(tuple(accuracies))


def draw(labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Indices of `shots` images of each class (the draw of big_vision for the same seed)."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in range(labels.max() + 1):
        indices = rng.permutation(np.flatnonzero(labels == label))
        if 0 < len(indices) < shots:
            raise UserError(f"shots={shots}: class number {label} has only {len(indices)} images")
        chosen.append(indices[:shots])
    return np.concatenate(chosen)
