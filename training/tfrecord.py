"""`keras-vit tfrecord`: any data set as TFRecord shards."""

from pathlib import Path

from training.config import TFRecordConfig
from training.data.sources import open_source
from training.data.tfrecord import write_tfrecords


def main(config: TFRecordConfig) -> None:
    source = open_source(
        config.data,
        seed=config.seed,
        validation_fraction=config.validation_fraction,
        max_skipped=config.max_skipped,
        data_dir=config.data_dir,
    )
    write_tfrecords(source, Path(config.output), config.shards, config.overwrite)
    for item in source.skipped:
        print(f"Skipped {item.path}: {item.reason}")
    counts = ", ".join(f"{split.num_examples} {name}" for name, split in source.splits.items())
    print(f"Written {counts} images to {config.output}. Next:")
    print(f"  keras-vit train --data 'tfrecord:{config.output}/*.tfrecord'")
