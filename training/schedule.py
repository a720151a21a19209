"""The learning rate over the steps of a run."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit.training")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear from 0 to the peak over the warm-up, then half a cosine to 0 after the last step.

    vit_jax `utils.create_learning_rate_schedule`, but the first step already learns: step s (from
    0) of the warm-up has peak * (s + 1) / warmup_steps, so the peak is truly reached.

    Args:
        peak: highest learning rate.
        warmup_steps: steps of the warm-up, 0 for none.
        total_steps: steps of the whole run.
    """

    def __init__(self, peak, warmup_steps, total_steps):
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warmup = (step + 1.0) / max(1, self.warmup_steps)
        progress = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        cosine = 0.5 * (1.0 + ops.cos(3.141592653589793 * ops.clip(progress, 0.0, 1.0)))
        return self.peak * ops.where(step < self.warmup_steps, warmup, cosine)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }
