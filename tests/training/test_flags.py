"""The list of all flags, so that the surface grows on purpose: change it with a reason."""

from dataclasses import fields

from training.config import COMMANDS

FLAGS = {
    "train": """
        data data_dir validation_fraction max_skipped cache
        model image_size dropout drop_path patch_dropout freeze
        epochs batch_size optimizer learning_rate scale_learning_rate warmup_epochs weight_decay
        layer_decay clip_norm label_smoothing balance ema early_stopping precision seed
        resize crop_fraction interpolation augment flip crop_scale randaugment color_jitter erasing
        mixup cutmix
        output overwrite
    """,
    "evaluate": "run data data_dir split batch_size real_labels",
    "predict": "run images top json batch_size",
    "tfrecord": "data data_dir output shards validation_fraction max_skipped seed overwrite",
    "models": "",
}


def test_every_flag_is_listed():
    there = {name: [field.name for field in fields(config)] for name, config in COMMANDS.items()}
    assert there == {name: words.split() for name, words in FLAGS.items()}


def test_every_flag_has_a_help_text():
    for config in COMMANDS.values():
        assert config.__doc__
        for field in fields(config):
            assert field.metadata["help"], field.name
