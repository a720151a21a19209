"""From a URI to a file on this machine, kept for the next time."""

import hashlib
from pathlib import Path

import keras

from keras_vit.config import UserError

GCS = "https://storage.googleapis.com/"  # serves every public bucket
CACHE = Path.home() / ".cache" / "keras_vit"


def fetch(source: str) -> Path:
    """The local path of a path, `https://`, `gs://bucket/file` or `hf://owner/name[/file]`.

    Raises: UserError: not to be had; the line says why.
    """
    kind, separator, rest = source.partition("://")
    if not separator:
        return Path(source).expanduser()
    if kind == "hf":
        return fetch_hugging_face(source, rest)
    if kind == "gs":
        return fetch_url(source, GCS + rest)
    if kind in ("https", "http"):
        return fetch_url(source, source)
    raise UserError(f"weights {source!r} must be a path, https://, gs:// or hf://owner/name")


def fetch_url(source: str, url: str) -> Path:
    # The whole address names the copy: two servers may have a model.safetensors each.
    folder = CACHE / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)  # Keras would turn to a folder of all users
    name = url.split("?")[0].rstrip("/").rsplit("/", 1)[-1]
    try:
        return Path(keras.utils.get_file(name, url, cache_dir=folder, cache_subdir="."))
    except Exception as error:  # urllib has many ways to fail; get_file wraps them in its own
        first = str(error).strip().split("\n")[0]
        raise UserError(f"weights {source!r} cannot be had: {first}") from error


def fetch_hugging_face(source: str, rest: str) -> Path:
    """A file of a hub repository with the two JSON files beside it that say what it is."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    owner, _, rest = rest.partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name:
        raise UserError(f"weights {source!r} must be like hf://owner/name")
    repository = f"{owner}/{name}"
    failures = (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        HFValidationError,
        OfflineModeIsEnabled,
        OSError,
    )
    try:
        path = Path(hf_hub_download(repository, file or "model.safetensors"))
        for extra in ("config.json", "preprocessor_config.json"):
            try:
                hf_hub_download(repository, extra)
            except LocalEntryNotFoundError:  # offline: what was cached is all there is
                continue
            except EntryNotFoundError:  # the repository has none
                continue
    except failures as error:
        first = str(error).strip().split("\n")[0]
        raise UserError(f"weights {source!r} cannot be had: {first}") from error
    return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
