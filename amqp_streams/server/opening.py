"""Opens the store of a node: its data directory, or the logs of a Kafka cluster."""

import asyncio
from functools import partial
from typing import Final

import structlog

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError, StorageError
from amqp_streams.kafka_settings import KafkaSettings
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.ports import Store

KAFKA_EXTRA: Final = "the store 'kafka' needs confluent-kafka: pip install 'amqp-event-streams[node,kafka]'"

log = structlog.get_logger("amqp_streams")


async def open_store(settings: NodeSettings, loop: asyncio.AbstractEventLoop) -> Store:
    """Open the store that the settings name.

    Raises:
        ConfigError: a setting of Kafka cannot be used.
        StorageError: the store cannot be opened. The message says why.
    """
    if settings.kafka is not None:
        return await _open_kafka(settings, settings.kafka, loop)
    return open_directory(settings, loop)


def open_directory(settings: NodeSettings, loop: asyncio.AbstractEventLoop) -> Store:
    """Open the data directory, recover it, and log the findings.

    Raises:
        StorageError: it is locked or too damaged to read, or the disk fails.
    """
    assert settings.data_dir is not None, "the settings were validated"
    store = DirectoryStore.open(settings.data_dir, settings.sync, loop_call=loop.call_soon_threadsafe)
    for finding in store.findings:
        write = {Severity.NOTE: log.info, Severity.WARNING: log.warning, Severity.DAMAGE: log.error}
        write[finding.severity](
            "recovery",
            severity=str(finding.severity),
            file=str(finding.file),
            position=finding.position,
            detail=finding.words,
        )
    return store


async def _open_kafka(settings: NodeSettings, kafka: KafkaSettings, loop: asyncio.AbstractEventLoop) -> Store:
    try:
        # Only here: a node with a data directory does not need the library.
        from amqp_streams.kafka.asking import KafkaOptions  # noqa: PLC0415
        from amqp_streams.kafka.connecting import connection_settings  # noqa: PLC0415
        from amqp_streams.kafka.store import KafkaStore  # noqa: PLC0415
        from amqp_streams.kafka.topics import TopicNames  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(KAFKA_EXTRA) from error
    try:
        names = TopicNames(kafka.prefix, frozenset(kafka.topics))
    except ValueError as error:
        message = f"kafka.prefix, kafka.topics: {error}"
        raise ConfigError(message) from error
    options = KafkaOptions(
        connection_settings(kafka),
        names,
        replicas=kafka.replicas,
        weak=kafka.weak,
        readers=kafka.readers,
        message_bytes=settings.limits.message_bytes,
        numbered=kafka.numbered,
        remembered=settings.limits.producers,
    )
    try:
        return await asyncio.to_thread(partial(KafkaStore, options, loop_call=loop.call_soon_threadsafe))
    except StorageError as error:
        message = f"cannot use Kafka at {', '.join(kafka.servers)}: {error}"
        raise StorageError(message) from error
