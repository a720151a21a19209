"""open_weights: from a path or URI to weights that are understood, but not read yet."""

from dataclasses import dataclass
from pathlib import Path

from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.weights import google, huggingface, timm, torchvision
from keras_vit.weights.fetch import fetch, sha256
from keras_vit.weights.files import Tensors, open_npz, open_safetensors, zip_names
from keras_vit.weights.keras_file import KERAS, is_keras, open_keras
from keras_vit.weights.layout import Hints, Rule
from keras_vit.weights.torch_file import open_torch

LAYOUTS = {layout.NAME: layout for layout in (google, timm, huggingface, torchvision)}


@dataclass(frozen=True)
class Weights:
    """A weight file that is understood.

    source: as it was given; path: the file on this machine.
    layout: "google", "timm", "huggingface", "torchvision" or "keras".
    description: of the layout, in words.
    config: of the model in the file.
    preprocessing: what images it was trained on, in the words of `preprocess.json`; {} if unknown.
    position_resize, patch_resize: the layout's own methods of resampling.
    tensors, rules: its content under canonical names, and what each becomes.
    extras: pattern of tensors without a place in a model of ours.
    """

    source: str
    path: Path
    layout: str
    description: str
    config: ViTConfig | MixerConfig
    preprocessing: dict
    position_resize: str
    patch_resize: str
    tensors: Tensors
    rules: list[Rule]
    extras: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file, hexadecimal."""
        return sha256(self.path)


def open_weights(
    source: str | Path, *, image_size=None, num_heads: int | None = None, like=None
) -> Weights:
    """Understand a weight file; only its names and shapes are read.

    Args:
        source: path of a file or a folder, `https://`, `gs://bucket/file`, `hf://owner/name`.
        image_size: (height, width) the file was trained with, where it does not say and its
            positions are no square.
        num_heads: K, where the file does not say it and its sizes are no named ones.
        like: configuration of the model that gets them, for `.weights.h5`, which holds none.

    Raises: UserError: not found, broken, or of no known layout.
    """
    path = find_file(fetch(str(source)))
    if is_keras(path):
        config, tensors, rules, preprocessing = open_keras(path, like)
        return Weights(
            str(source), path, KERAS, "Keras model of keras_vit", config, preprocessing,
            "bicubic_antialias", "bicubic_antialias", tensors, rules, r"(?!)",
        )  # fmt: skip
    tensors = open_tensors(path)
    for layout in LAYOUTS.values():
        names = layout.recognise(tensors.shapes)
        if names is None:
            continue
        tensors = layout.prepare(tensors.renamed(names))
        config = describe(layout, tensors, Hints(image_size, num_heads))
        return Weights(
            source=str(source),
            path=path,
            layout=layout.NAME,
            description=layout.DESCRIPTION,
            config=config,
            preprocessing=fit_channels(layout.preprocessing(tensors), config.in_channels),
            position_resize=layout.position_resize(config, tensors.shapes),
            patch_resize="bilinear" if layout is google else "bicubic_antialias",
            tensors=tensors,
            rules=layout.rules(config),
            extras=layout.EXTRAS,
        )
    first = ", ".join(list(tensors.shapes)[:3]) or "nothing"
    known = ", ".join(layout.DESCRIPTION for layout in LAYOUTS.values())
    raise UserError(f"{path}: holds {first}..., the names of none of these: {known}")


def open_tensors(path: Path) -> Tensors:
    """Open a `.npz`, `.safetensors` or PyTorch file by its first bytes.

    Raises: UserError: none of these, truncated, or a content that does not fit its own header.
    """
    with path.open("rb") as file:
        start = file.read(16)
    if start[:4] == b"PK\x03\x04":
        names = zip_names(path)
        if any(name.endswith("data.pkl") for name in names):
            return open_torch(path)
        if names and all(name.endswith(".npy") for name in names):
            return open_npz(path)
        raise UserError(f"{path}: is a zip archive, but neither .npz, .keras nor PyTorch weights")
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        return open_torch(path)
    if start[8:9] == b"{":
        return open_safetensors(path)
    raise UserError(
        f"{path}: no weights are recognised in it; .npz, .safetensors, .keras and .weights.h5 are"
    )


def describe(layout, tensors: Tensors, hints: Hints) -> ViTConfig | MixerConfig:
    """The layout's description. Raises: UserError: tensors it needs are missing or misshapen."""
    try:
        return layout.describe(tensors, hints)
    except KeyError as error:
        raise UserError(
            f"{tensors.path}: looks like {layout.DESCRIPTION}, but {error.args[0]} is missing"
        ) from error
    except UserError as error:
        if str(tensors.path) in str(error):
            raise
        raise UserError(f"{tensors.path}: {error}") from error
    except (ValueError, TypeError, IndexError) as error:
        raise UserError(
            f"{tensors.path}: looks like {layout.DESCRIPTION}, but its shapes do not fit: {error}"
        ) from error


def fit_channels(preprocessing: dict, channels: int) -> dict:
    """Mean and std of RGB for other images: one number where all are alike or one is wanted."""
    if not preprocessing or len(preprocessing["mean"]) == channels:
        return preprocessing
    average = {key: [sum(preprocessing[key]) / 3] * channels for key in ("mean", "std")}
    return {**preprocessing, **average}


def find_file(path: Path) -> Path:
    """The weight file of a folder, or the file itself. Raises: UserError: there is none."""
    if path.is_file():
        return path
    if not path.exists():
        raise UserError(f"weights {str(path)!r} do not exist")
    for name in ("model.safetensors", "model.keras", "pytorch_model.bin"):
        if (path / name).is_file():
            return path / name
    if (path / "model.safetensors.index.json").is_file():
        raise UserError(f"{path}: its weights lie in several files; save them as one")
    raise UserError(f"{path}: holds none of model.safetensors, model.keras, pytorch_model.bin")
