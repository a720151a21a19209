"""URIs: the real download code, on this machine."""

import hashlib
import http.server
import threading
from functools import partial

import pytest

import keras_vit
from keras_vit import UserError, create_model, open_weights
from keras_vit.weights import fetch as module
from tests.keras_vit.models import CONFIGS, VIT


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder that is served, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_file_is_downloaded_once(server, monkeypatch):
    folder, address = server
    keras_vit.save_weights(create_model(VIT), folder / "a.npz", "google")
    weights = open_weights(f"{address}/a.npz", image_size=(8, 12))
    assert weights.layout == "google"
    assert weights.digest == hashlib.sha256((folder / "a.npz").read_bytes()).hexdigest()
    (folder / "a.npz").unlink()
    assert open_weights(f"{address}/a.npz").path == weights.path
    with pytest.raises(UserError, match=r"weights 'http.*/b.npz' cannot be had: .*404"):
        open_weights(f"{address}/b.npz")


def test_two_servers_may_have_the_same_name(server):
    folder, address = server
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "model.safetensors").write_text(name)
    paths = [module.fetch(f"{address}/{name}/model.safetensors") for name in ("one", "two")]
    assert [path.read_text() for path in paths] == ["one", "two"]


def test_a_public_bucket_is_read_over_https(server, monkeypatch):
    folder, address = server
    monkeypatch.setattr(module, "GCS", f"{address}/")
    (folder / "bucket").mkdir()
    (folder / "bucket/a.npz").write_text("content")
    assert module.fetch("gs://bucket/a.npz").read_text() == "content"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository in the cache of huggingface_hub, as a download leaves it; no network."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    snapshot = cache / "models--owner--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    (cache / "models--owner--name/refs").mkdir()
    (cache / "models--owner--name/refs/main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_a_repository_of_the_hub(hub):
    model = create_model(CONFIGS["erf"])
    keras_vit.save_weights(model, hub, "huggingface")
    weights = open_weights("hf://owner/name")
    assert weights.layout == "huggingface"
    assert weights.config == CONFIGS["erf"]  # epsilon is in config.json
    assert open_weights("hf://owner/name/model.safetensors").config == weights.config


def test_a_repository_that_is_not_there(hub):
    with pytest.raises(UserError, match="weights 'hf://owner/other' cannot be had") as error:
        open_weights("hf://owner/other")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source, message",
    [
        ("hf://owner", "must be like hf://owner/name"),
        ("s3://bucket/a.npz", "must be a path, https://, gs:// or hf://owner/name"),
    ],
)
def test_mistakes_are_named(source, message):
    with pytest.raises(UserError, match=message):
        open_weights(source)
