"""`fit`, `evaluate` and `predict` on several machines, which Keras 3.15 cannot do (keras#20585).

Two places of Keras's TensorFlow trainer are wrong under `MultiWorkerMirroredStrategy`:
`_maybe_symbolic_build` reduces a batch over the replicas outside of any of them, and
`reduce_per_replica` reduces the scalar logs of a step along an axis that they do not have.
`ReplicatedModel` builds from the part of one replica instead, and takes the logs of one: the
figures of an epoch come from the metrics' own variables, which TensorFlow sums over all replicas.
"""

import keras
import tensorflow as tf


class ReplicatedModel(keras.Model):
    """A functional model, `ReplicatedModel(inputs, outputs)`, right under every strategy.

    Create and compile it in `strategy.scope()`. Every worker calls the same methods with a dataset
    of its own part, and gets the same results: `predict` those of all replicas, in their order.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        parts = (self._compile_metrics, self._compile_loss, self.optimizer)
        if all(part is None or part.built for part in parts):
            return
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(self._local, next(batches))
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=data_batch)
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = self._steps(self.train_step)

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            self.test_function = self._steps(self.test_step)

    def make_predict_function(self, force=False):
        if self.predict_function is not None and not force:
            return
        strategy = self.distribute_strategy

        @tf.function(reduce_retracing=True)
        def predict(batch):
            return tf.nest.map_structure(
                lambda part: strategy.gather(part, axis=0),
                strategy.run(self.predict_step, args=(batch,)),
            )

        self.predict_function = lambda batches: tf.nest.map_structure(
            lambda *parts: tf.concat(parts, axis=0), *[predict(batch) for batch in batches]
        )

    def _steps(self, step):
        """`steps_per_execution` steps as one function of an iterator; returns the last logs."""

        @tf.function(reduce_retracing=True, jit_compile=self.jit_compile)
        def one(batch):
            logs = self.distribute_strategy.run(step, args=(batch,))
            return tf.nest.map_structure(self._local, logs)

        @tf.function(reduce_retracing=True)
        def several(iterator):
            logs = one(self.fetch(iterator.get_next))
            for _ in tf.range(self.steps_per_execution - 1):
                batch = self.fetch(iterator.get_next_as_optional)
                if not batch.has_value():
                    break
                logs = one(batch.get_value())
            return logs

        @tf.function(reduce_retracing=True)
        def single(iterator):
            return one(self.fetch(iterator.get_next))

        def run(iterator):
            if not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
                return one(next(iterator))  # train_on_batch, test_on_batch
            return single(iterator) if self.steps_per_execution == 1 else several(iterator)

        return run

    def fetch(self, get):
        """The next batch of an iterator, `get()`, in the graph that takes a step with it."""
        return get()

    def _local(self, value):
        """The part of this machine's first replica."""
        return self.distribute_strategy.experimental_local_results(value)[0]
