import io
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit import UserError
from training.data.sources import open_source


def photo(seed: int, size=(12, 9), format="JPEG") -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def put(path, contents=None, seed=None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photo(seed if seed is not None else abs(hash(str(path))) % 10**6)
                     if contents is None else contents)  # fmt: skip


def make(root, classes=("ant", "bee"), count=10, start=0):
    for number, name in enumerate(classes):
        for i in range(count):
            put(root / name / f"{i}.jpg", seed=start + 1000 * number + i)
    return root


def open_folder(root, **settings):
    return open_source(f"folder:{root}", **{"seed": 0, **settings})


def contents(split) -> list[bytes]:
    return [split.read(i).numpy() for i in range(split.num_examples)]


def labelled(source, name) -> set:
    split = source.splits[name]
    names = [source.class_names[label] for label in split.labels]
    return set(zip(contents(split), names, strict=True))


def test_every_image_is_once_on_one_side_with_its_class(tmp_path):
    source = open_folder(make(tmp_path))
    assert source.class_names == ("ant", "bee")
    train, validation = labelled(source, "train"), labelled(source, "validation")
    assert len(train) == 16 and len(validation) == 4 and not train & validation
    for contents, name in train | validation:
        assert any(p.read_bytes() == contents for p in (tmp_path / name).iterdir())
    assert list(np.bincount(source.splits["validation"].labels)) == [2, 2]
    assert source.image_size == (9, 12)
    assert source.name == tmp_path.name


def test_names_depths_and_extensions_do_not_matter(tmp_path):
    make(tmp_path)
    put(tmp_path / "ant" / "a b (1) #é.JPEG", seed=1)
    put(tmp_path / "ant" / "deep" / "er" / "no_extension", seed=2)
    put(tmp_path / "bee" / "wrong.png", seed=3)  # a JPEG all the same
    put(tmp_path / "größe 日本" / "x.JPG", seed=4)
    put(tmp_path / "größe 日本" / "y.Webp", photo(5, format="WEBP"))
    source = open_folder(tmp_path)
    assert source.class_names == ("ant", "bee", "größe 日本")
    assert sum(split.num_examples for split in source.splits.values()) == 25


@pytest.mark.skipif(os.name != "posix", reason="needs names that are no UTF-8")
def test_a_name_that_is_no_text_is_read(tmp_path):
    make(tmp_path)
    path = os.fsencode(tmp_path / "ant") + b"/\xff\xfe.jpg"
    with open(path, "wb") as file:
        file.write(photo(77))
    assert len(labelled(open_folder(tmp_path), "train")) + 4 == 21


def test_hidden_files_and_companions_are_passed_over(tmp_path):
    make(tmp_path)
    for name in (".hidden.jpg", ".DS_Store", "notes.txt", "labels.csv", "Thumbs.db"):
        put(tmp_path / "ant" / name, b"no image")
    put(tmp_path / ".git" / "x.jpg", seed=1)
    put(tmp_path / "README.md", b"about")
    source = open_folder(tmp_path, max_skipped=0)
    assert source.num_files == 20
    assert source.class_names == ("ant", "bee")


def test_a_companion_that_is_an_image_counts(tmp_path):
    put(make(tmp_path) / "ant" / "photo.txt", seed=5)
    assert open_folder(tmp_path).num_files == 21


def test_links_are_followed_once(tmp_path):
    make(tmp_path / "data")
    outside = make(tmp_path / "elsewhere", ("more",), count=3, start=50_000)
    (tmp_path / "data" / "ant" / "linked").symlink_to(outside / "more")
    (tmp_path / "data" / "ant" / "again").symlink_to(outside / "more")
    (tmp_path / "data" / "ant" / "circle").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "bee" / "same.jpg").symlink_to(tmp_path / "data" / "bee" / "0.jpg")
    assert open_folder(tmp_path / "data").num_files == 23


@pytest.mark.parametrize("names", [("train", "val", "test"), ("Training", "VALID", "Testing")])
def test_split_folders_are_used_as_they_are(tmp_path, names):
    for start, name in enumerate(names):
        make(tmp_path / name, count=3, start=10_000 * start)
    source = open_folder(tmp_path)
    assert {name: split.num_examples for name, split in source.splits.items()} == {
        "train": 6, "validation": 6, "test": 6
    }  # fmt: skip
    assert labelled(source, "validation") == {
        (p.read_bytes(), p.parent.name) for p in (tmp_path / names[1]).rglob("*.jpg")
    }


def test_a_train_folder_without_val_is_split(tmp_path):
    make(tmp_path / "train")
    make(tmp_path / "test", count=2, start=90_000)
    source = open_folder(tmp_path)
    assert {name: split.num_examples for name, split in source.splits.items()} == {
        "train": 16, "validation": 4, "test": 4
    }  # fmt: skip


def test_unlabelled_test_images_are_not_used_and_it_is_said(tmp_path, capsys):
    make(tmp_path / "train")
    put(tmp_path / "test" / "1.jpg", seed=1)
    assert set(open_folder(tmp_path).splits) == {"train", "validation"}
    assert "has no class folders: its images are not used" in capsys.readouterr().err


def test_identical_files_never_part(tmp_path):
    make(tmp_path, count=6)
    for i in range(6):  # each photo once more, by another name
        shutil.copy(tmp_path / "ant" / f"{i}.jpg", tmp_path / "ant" / f"copy{i}.jpg")
    for seed in range(5):
        source = open_folder(tmp_path, seed=seed, validation_fraction=0.4)
        train, validation = (set(contents(source.splits[s])) for s in ("train", "validation"))
        assert not train & validation


def test_files_in_both_of_the_users_own_splits_are_said(tmp_path, capsys):
    make(tmp_path / "train")
    make(tmp_path / "val", count=2)  # the same seeds: the same photos
    open_folder(tmp_path)
    assert "Warning: 4 validation files are also in train" in capsys.readouterr().err


def test_the_split_depends_on_the_seed_alone(tmp_path):
    make(tmp_path / "a" / "x")
    shutil.copytree(tmp_path / "a" / "x", tmp_path / "b" / "x")
    first, second = open_folder(tmp_path / "a" / "x"), open_folder(tmp_path / "b" / "x")
    assert contents(first.splits["validation"]) == contents(second.splits["validation"])
    assert first.fingerprint == second.fingerprint
    other = open_folder(tmp_path / "a" / "x", seed=1)
    assert contents(other.splits["validation"]) != contents(first.splits["validation"])
    put(tmp_path / "b" / "x" / "ant" / "new.jpg", seed=123)
    assert open_folder(tmp_path / "b" / "x").fingerprint != first.fingerprint


def test_unreadable_files_are_named_with_their_reason(tmp_path):
    make(tmp_path, count=30)
    put(tmp_path / "ant" / "text.jpg", b"hello")
    put(tmp_path / "bee" / "cut.jpg", photo(1)[:-200])
    put(tmp_path / "stray.jpg", seed=2)
    source = open_folder(tmp_path, max_skipped=0.1)
    reasons = {item.path: item.reason for item in source.skipped}
    assert reasons.pop("ant/text.jpg") == "not an image"
    assert "JPEG" in reasons.pop("bee/cut.jpg")
    assert reasons.pop("stray.jpg") == "lies in no class folder"
    assert not reasons
    assert source.num_files == 63
    assert sum(split.num_examples for split in source.splits.values()) == 60


def test_too_many_unreadable_files_are_an_error_that_names_them(tmp_path):
    make(tmp_path)
    put(tmp_path / "ant" / "bad.jpg", b"hello")
    with pytest.raises(UserError) as error:
        open_folder(tmp_path, max_skipped=0.01)
    assert str(error.value) == (
        "1 of 21 files are no readable images, more than max_skipped=0.01 allows:"
        " ant/bad.jpg: not an image"
    )


def test_all_hostile_files_go_through(shared, tmp_path):
    for name in ("made", "pillow"):
        shutil.copytree(shared / "data/nasty" / name, tmp_path / name)
    source = open_folder(tmp_path, max_skipped=0.3)
    assert len(source.skipped) == 15
    assert all(item.reason and "\n" not in item.reason for item in source.skipped)
    with pytest.raises(UserError, match="15 of 56 files are no readable images"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda root: None, "does not exist"),
        (lambda root: put(root, b"x"), "is a file; give a folder of class folders"),
        (lambda root: root.mkdir(), "has no class folders"),
        (lambda root: make(root, ("only",)), "has only the class 'only'; two are needed"),
        (lambda root: (make(root), (root / "empty").mkdir()), "'empty' .* no readable image"),
        (
            lambda root: (make(root), put(root / "bad" / "x.jpg", b"text")),
            "'bad' .* holds no readable image",
        ),
        (
            lambda root: (make(root / "train"), make(root / "val", ("ant", "cat"), 2)),
            "class 'cat' is in validation but not in train",
        ),
        (lambda root: make(root / "val"), "has 'val' but no train folder"),
        (
            lambda root: (make(root / "train"), make(root / "extra")),
            "has a train folder and also 'extra', which is neither val nor test",
        ),
        (lambda root: make(root, count=1), "leaves no image for validation"),
    ],
)
def test_a_folder_that_cannot_work_is_refused_in_one_line(tmp_path, build, message):
    build(tmp_path / "data")
    with pytest.raises(UserError, match=message) as error:
        open_folder(tmp_path / "data", max_skipped=0.5)
    assert "\n" not in str(error.value)
