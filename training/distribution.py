"""One device, all of a machine or several machines: the strategy, and whose part of the data."""

import json
import os
import re

import tensorflow as tf

from keras_vit.config import UserError
from training.data.pipeline import Part

REPLICATED = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
SLURM_PORT = 8888  # of the first task of a machine; the next ones follow


def make_strategy(config) -> tf.distribute.Strategy:
    """The strategy that a `TrainConfig` asks for; call it before anything else of TensorFlow.

    Raises: UserError: devices that are not there, or a cluster that nothing describes.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if config.strategy == "multi_worker":
        os.environ["TF_CONFIG"] = json.dumps(tf_config(*find_cluster(config, os.environ)))
        return tf.distribute.MultiWorkerMirroredStrategy()
    if config.strategy == "mirrored":
        count = config.devices or len(gpus) or 1
        if gpus and count > len(gpus):
            raise UserError(f"devices={count}: this machine has {len(gpus)} GPUs")
        if gpus:
            return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(count)])
        # The default's groups of CPUs would bar any other number of them from this process.
        return tf.distribute.MirroredStrategy(
            logical_cpus(count), tf.distribute.ReductionToOneDevice()
        )
    if config.strategy == "auto" and len(gpus) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()  # TensorFlow's own: one device


def logical_cpus(count: int) -> list[str]:
    """The CPU as so many devices, so that anybody can try it."""
    if len(tf.config.list_physical_devices("CPU")) == 1 and count > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
            )
        except RuntimeError as error:
            if len(tf.config.list_logical_devices("CPU")) < count:
                raise UserError(f"devices={count}: TensorFlow has already started") from error
    return [f"CPU:{index}" for index in range(count)]


def find_cluster(config, environment) -> tuple[list[str], int]:
    """(host:port of every worker, which one this is): flags, then TF_CONFIG, then SLURM.

    Raises: UserError: none of them, or one that is not whole.
    """
    if config.cluster:
        workers = [word.strip() for word in config.cluster.split(",")]
        if config.task is None or not 0 <= config.task < len(workers):
            raise UserError(
                f"task={config.task} must say which of the {len(workers)} workers of cluster this"
                f" is: 0 to {len(workers) - 1}"
            )
        return workers, config.task
    if environment.get("TF_CONFIG"):
        return read_tf_config(environment["TF_CONFIG"])
    if environment.get("SLURM_PROCID"):
        return read_slurm(environment)
    raise UserError(
        "strategy=multi_worker needs --cluster HOST:PORT,HOST:PORT --task N, or TF_CONFIG, or SLURM"
    )


def read_tf_config(text: str) -> tuple[list[str], int]:
    """Of TF_CONFIG; a chief comes before the workers."""
    try:
        value = json.loads(text)
        cluster, task = value["cluster"], value["task"]
        chiefs, workers = list(cluster.get("chief", [])), list(cluster.get("worker", []))
        kind, index = task["type"], int(task["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host:port", ...]},'
            f' "task": {{"type": "worker", "index": 0}}}}, not {text[:80]!r}'
        ) from error
    if kind not in ("chief", "worker"):
        raise UserError(f"TF_CONFIG: task type {kind!r} takes no part; only chief and worker do")
    every = chiefs + workers
    index += len(chiefs) if kind == "worker" else 0
    if not 0 <= index < len(every):
        raise UserError(f"TF_CONFIG: {kind} {task['index']} is none of the cluster's {len(every)}")
    return every, index


def read_slurm(environment) -> tuple[list[str], int]:
    """Of the step that `srun` started: a worker for each of its tasks."""
    names = ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise UserError(f"{missing[0]} is not set: start the workers with srun")
    nodes, tasks = (environment[name] for name in names)
    counts = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):  # 2(x3),1
        counts += [int(count)] * int(times or 1)
    workers = [
        f"{node}:{SLURM_PORT + task}"
        for node, count in zip(slurm_nodes(nodes), counts, strict=True)
        for task in range(count)
    ]
    return workers, int(environment["SLURM_PROCID"])


def slurm_nodes(text: str) -> list[str]:
    """The names of "n[01-03,7],m", in SLURM's order, by which it numbers the tasks.

    TensorFlow's own reader sorts them as words, n10 before n9.
    """
    names = []
    for prefix, inside in re.findall(r"([^,\[\]]+)(?:\[([^\]]+)\])?", text):
        for part in inside.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1) if first else [None]
            names += [prefix if n is None else f"{prefix}{n:0{len(first)}d}" for n in numbers]
    return names


def tf_config(workers: list[str], index: int) -> dict:
    """What TensorFlow reads from TF_CONFIG."""
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}


def part_of(strategy) -> Part:
    """This worker's part of each global batch; the chief's has the index 0."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return Part()
    resolver = strategy.cluster_resolver
    return Part(resolver.task_id, resolver.cluster_spec().num_tasks("worker"))


def distribute(strategy, dataset: tf.data.Dataset, batch_size: int):
    """A dataset of this worker's part of each global batch, dealt out to its replicas."""
    if not isinstance(strategy, REPLICATED):
        return dataset
    dataset = dataset.rebatch(batch_size // strategy.num_replicas_in_sync, drop_remainder=True)
    return strategy.distribute_datasets_from_function(lambda context: dataset)
