"""Small files are used only if they are complete and unchanged."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.config import LogSettings
from amqp_streams.storage import catalog
from amqp_streams.storage.catalog import CHECKPOINT_FILE, Checkpoint, LogRecord, read_checkpoint, seal, unseal
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.testing import FaultyFiles
from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX

CHECKPOINT = Checkpoint(
    True,
    77,
    {"log": LogRecord("log", 5, "i", LogSettings(partitions=2, retention_ms=5000))},
    {"log": ((0, 10), (3, 1 << 50))},
)


def _read(data: bytes) -> tuple[Checkpoint | None, list[Finding]]:
    files, findings = FaultyFiles(), list[Finding]()
    files.mkdir(Path("/d"))
    fd = files.open(Path("/d") / CHECKPOINT_FILE, create=True)
    files.pwritev(fd, [data], 0)
    return read_checkpoint(files, Path("/d"), findings), findings


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    assert _read(CHECKPOINT.encode()) == (CHECKPOINT, [])


def test_settings_that_an_earlier_program_stored_without_bound_are_brought_within_it() -> None:
    """Otherwise the log could not be described, and with it no list of logs. Its name and events matter more
    than the number.
    """
    content = CHECKPOINT.logs["log"].as_json()
    content["settings"] |= {"retention_ms": 1 << 63, "retention_bytes": 1 << 70, "segment_ms": 1 << 65}
    settings = LogRecord.from_json(content).settings
    assert (settings.retention_ms, settings.segment_ms) == (MILLISECONDS_MAX, MILLISECONDS_MAX)
    assert settings.retention_bytes == BYTES_MAX


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    encoded = bytearray(CHECKPOINT.encode())
    position = data.draw(st.integers(0, len(encoded) - 2))
    encoded[position] ^= data.draw(st.integers(1, 255))
    checkpoint, findings = _read(bytes(encoded))
    assert checkpoint in (None, CHECKPOINT)
    assert (checkpoint is None) == bool(findings)


@given(st.binary(max_size=100))
def test_garbage_is_not_content_and_never_raises(data: bytes) -> None:
    assert unseal(data) is None
    checkpoint, findings = _read(data)
    assert checkpoint is None
    assert findings[0].severity is Severity.WARNING


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.booleans(), st.none())))
def test_any_content_comes_back(content: dict[str, object]) -> None:
    assert unseal(seal(content)) == content


def test_well_formed_content_of_another_kind_is_refused() -> None:
    for content in (
        {},
        {"clean": True},
        {"clean": True, "id": "x", "logs": {}},
        {"clean": True, "id": "00", "logs": []},
    ):
        assert _read(seal(content))[0] is None


def test_a_finding_names_severity_file_and_place() -> None:
    assert str(Finding(Severity.DAMAGE, "a/b", 7, "is bad")) == "damage: a/b at byte 7: is bad"
    assert str(Finding(Severity.NOTE, "a/b", None, "is odd")) == "note: a/b: is odd"


def test_of_a_symbolic_link_only_the_link_is_removed(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(elsewhere)
    (folder / "inner" / "link").symlink_to(elsewhere)
    (folder / "inner" / "file").symlink_to(elsewhere / "mine")
    catalog.remove_content(RealFiles(), folder)
    assert not [*folder.iterdir()]
    (tmp_path / "link").symlink_to(elsewhere)
    catalog.remove_tree(RealFiles(), tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (elsewhere / "mine").read_text() == "mine"
