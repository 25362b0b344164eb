"""[io] The settings of librdkafka for a cluster, from the section `kafka`. Secrets come from files."""

from pathlib import Path
from typing import Final

from amqp_streams.errors import ConfigError
from amqp_streams.kafka_settings import KafkaSettings

PASSWORD_BYTES_MAX: Final = 4096


def connection_settings(settings: KafkaSettings) -> dict[str, object]:
    """The settings of each client of the cluster. They contain the password: never log them.

    Raises:
        ConfigError: a file cannot be read.
    """
    found: dict[str, object] = {
        "bootstrap.servers": ",".join(settings.servers),
        "client.id": "amqp-streams",
        # A broker that is away must not fill the log.
        "log_level": 4,
        "reconnect.backoff.max.ms": 2000,
        # A broker that is stopped answers nothing and keeps its connections. Kafka replaces it after 9 s.
        "socket.timeout.ms": 10_000,
        "allow.auto.create.topics": False,
    }
    if settings.tls:
        for setting, option, file in (
            ("kafka.ca", "ssl.ca.location", settings.ca),
            ("kafka.certificate", "ssl.certificate.location", settings.certificate),
            ("kafka.key", "ssl.key.location", settings.key),
        ):
            if file is not None:
                _read(setting, file)
                found[option] = str(file)
    if settings.login is not None:
        assert settings.password_file is not None, "the settings were validated"
        found["sasl.mechanism"] = str(settings.login)
        found["sasl.username"] = settings.user
        found["sasl.password"] = _password(settings.password_file)
    found["security.protocol"] = _PROTOCOLS[settings.login is not None, settings.tls]
    return found


_PROTOCOLS: Final = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


def _password(file: Path) -> str:
    text = _read("kafka.password_file", file)
    try:
        password = text.decode().removesuffix("\n")
    except UnicodeDecodeError:
        password = ""
    if not password or len(text) > PASSWORD_BYTES_MAX or "\n" in password:
        message = f"kafka.password_file: {file} must have one line: the password"
        raise ConfigError(message)
    return password


def _read(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        message = f"{setting}: {file} cannot be read: {error.strerror}"
        raise ConfigError(message) from error
