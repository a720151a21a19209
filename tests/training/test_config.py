import pytest

from training.config import EvaluateConfig, PredictConfig, TFRecordConfig, TrainConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be greater than 0"),
        ({"batch_size": -1}, "batch_size=-1 must be greater than 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be greater than 0"),
        ({"clip_norm": 0.0}, "clip_norm=0.0 must be greater than 0"),
        ({"early_stopping": 0}, "early_stopping=0 must be greater than 0"),
        ({"drop_path": 1.0}, "drop_path=1.0 must be at least 0 and less than 1"),
        ({"dropout": -0.1}, "dropout=-0.1 must be at least 0 and less than 1"),
        ({"patch_dropout": 1.0}, "patch_dropout=1.0 must be at least 0 and less than 1"),
        ({"ema": 1.0}, "ema=1.0 must be at least 0 and less than 1"),
        ({"label_smoothing": 1.5}, "label_smoothing=1.5 must be at least 0 and less than 1"),
        ({"max_skipped": 2.0}, "max_skipped=2.0 must be at least 0 and less than 1"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be at least 0"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"warmup_epochs": -1.0}, "warmup_epochs=-1.0 must be at least 0"),
        ({"layer_decay": 0.0}, "layer_decay=0.0 must be more than 0 and at most 1"),
        ({"freeze": "tail"}, "freeze='tail' must be none, head or a number of blocks"),
    ],
)
def test_a_training_setting_out_of_range_is_named(settings, message):
    with pytest.raises(ValueError, match="must be") as error:
        TrainConfig(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EvaluateConfig(run="x", batch_size=0), "batch_size=0 must be greater than 0"),
        (lambda: PredictConfig(run="x", images=("y",), top=0), "top=0 must be greater than 0"),
        (lambda: TFRecordConfig(shards=0), "shards=0 must be greater than 0"),
    ],
)
def test_a_setting_of_another_command_out_of_range_is_named(make, message):
    with pytest.raises(ValueError, match="must be") as error:
        make()
    assert str(error.value) == message
