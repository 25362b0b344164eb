"""[io] The transactions of the buckets whose home this node is: one producer and one thread for each."""

from collections.abc import Callable, Mapping
from typing import Final

from amqp_streams.kafka.sharing.producing import BucketProducer
from amqp_streams.kafka.sharing.workers import Workers

THREADS_MAX: Final = 32
"""The most threads: one for each bucket, and as many that wait for Kafka after their bucket was lost."""


class Transactions(Workers[int, Mapping[str, bytes | None]]):
    """`prefix`: of the nodes that share the topic; the ids of their producers begin with it.

    `loop_call`: see `Workers`. `boot_ms`: reads CLOCK_BOOTTIME. What is asked: see `BucketProducer.commit`.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        *,
        prefix: str,
        loop_call: Callable[..., object],
        boot_ms: Callable[[], int],
        threads_max: int = THREADS_MAX,
    ) -> None:
        def made(bucket: int) -> BucketProducer:
            return BucketProducer(
                settings,
                topic,
                bucket,
                transactional_id=f"{prefix}.bucket.{bucket}",
                boot_ms=boot_ms,
            )

        super().__init__(
            made, named=lambda bucket: f"bucket {bucket}", loop_call=loop_call, threads_max=threads_max
        )
