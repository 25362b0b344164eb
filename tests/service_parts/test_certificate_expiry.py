"""The time at which a certificate expires, as its file has it."""

import time
from pathlib import Path

import pytest

from service_parts.certificate_expiry import expires_at
from tests.amqp_streams.server.peers import Authority, openssl

DAY_S = 24 * 3600


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_the_first_certificate_of_a_chain_that_expires_counts(authority: Authority, tmp_path: Path) -> None:
    node = authority.issue("node").certificate
    longer = tmp_path / "longer.pem"
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", tmp_path / "k")
    openssl("req", "-x509", *key, "-subj", "/CN=longer", "-days", "90", "-out", longer)
    found = expires_at(longer)
    assert found is not None
    assert 89 * DAY_S < found - time.time() <= 90 * DAY_S
    chain = tmp_path / "chain.pem"
    chain.write_text(longer.read_text() + node.read_text())
    first = expires_at(node)
    assert first is not None
    assert first < found
    assert expires_at(chain) == first


@pytest.mark.parametrize("content", [None, b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_file_without_a_certificate_has_no_time(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    if content is not None:
        file.write_bytes(content)
    assert expires_at(file) is None
