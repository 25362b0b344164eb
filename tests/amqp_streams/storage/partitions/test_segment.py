"""A segment knows its files."""

from pathlib import Path

from amqp_streams.storage.partitions.segment import Segment, segment_path


def test_a_segment_has_the_bytes_of_the_file_that_is_read() -> None:
    folder = Path("/data/logs/log/0")
    segment = Segment(segment_path(folder, 7), 7, 9, 1000)
    assert segment.path.name == "0000000000000007.log"
    assert (segment.file_bytes, segment.files) == (1000, [segment.path])
    index_path = segment.index_path
    segment.path, segment.other, segment.stored = segment.path.with_suffix(".logz"), segment.path, 100
    assert segment.file_bytes == 100
    assert [path.suffix for path in segment.files] == [".logz", ".log"]
    assert segment.index_path == index_path
    assert segment.coverage().bytes == 1000
