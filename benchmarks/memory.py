"""Peak memory and time of a training step, with and without rematerialisation.

    python -m benchmarks.memory            ViT-S/16 at 224 px, batch 32: none, attention, block
    python -m benchmarks.memory --long     ViT-Ti/16 at 1024 px (4096 patches), batch 1

Each case runs in a process of its own; the peak is that of its resident memory (`ru_maxrss`) above
what the built and compiled model had, and of the whole process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

CASES = {
    False: [("vit_s16", 224, 32, remat) for remat in ("none", "attention", "block")],
    True: [("vit_ti16", 1024, 1, remat) for remat in ("none", "block")],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--case", help="of a child, as JSON")
    config = parser.parse_args()
    if config.case:
        print(json.dumps(measure(*json.loads(config.case))))
        return
    print("model     pixels  batch  remat      above model  share  process  seconds a step")
    first = None
    for case in CASES[config.long]:
        command = [sys.executable, "-m", "benchmarks.memory", "--case", json.dumps(case)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        above, whole, seconds = json.loads(result.stdout.splitlines()[-1])
        first = first or above
        name, pixels, batch, remat = case
        print(
            f"{name:8}  {pixels:6}  {batch:5}  {remat:9}  {above:8.0f} MB  {above / first:5.2f}"
            f"  {whole:4.0f} MB  {seconds:14.2f}",
            flush=True,
        )


def measure(name: str, pixels: int, batch: int, remat: str) -> tuple[float, float, float]:
    """(peak above the built model MB, peak of the process MB, median seconds a step)."""
    import numpy as np

    trainer = make_trainer(name, image_size=pixels, remat=remat)
    images = np.zeros((batch, pixels, pixels, 3), "float32")
    labels = np.eye(10, dtype="float32")[np.zeros(batch, int)]
    before, times = peak(), []
    for _ in range(4):
        start = time.monotonic()
        trainer.train_on_batch(images, labels)
        times.append(time.monotonic() - start)
    return peak() - before, peak(), statistics.median(times[1:])


def make_trainer(name: str, **settings):
    """A built and compiled trainer of a model for ten classes."""
    import keras

    import keras_vit
    from training.optimizer import AdamW
    from training.trainer import Trainer

    model = keras_vit.create_model(name, num_classes=10, **settings)
    trainer = Trainer(model.inputs, model.outputs).prepare()
    count = len(model.trainable_variables)
    trainer.compile(
        AdamW([1.0] * count, [0.0] * count),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        auto_scale_loss=False,
    )
    trainer.optimizer.build(trainer.trainable_variables)
    return trainer


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
