"""The methods of the format that Spark calls."""

import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from spark_connector.batch import BatchReader
from spark_connector.errors import OptionError
from spark_connector.rows.schema import chosen
from spark_connector.source import AmqpStreamsDataSource
from spark_connector.streaming import StreamReader

OPTIONS = {"Endpoint": "amqp://127.0.0.1:1", "stream": "t", "columns": "offset"}


def test_the_format_has_a_name_a_schema_and_readers() -> None:
    source = AmqpStreamsDataSource(CaseInsensitiveDict(OPTIONS))
    assert source.name() == "amqpstreams"
    assert source.schema() == chosen({"columns": "offset"})
    assert isinstance(source.reader(schema=source.schema()), BatchReader)
    assert isinstance(source.streamReader(schema=source.schema()), StreamReader)


def test_planning_does_not_import_pandas() -> None:
    """Spark plans each query in new processes, where this import took more CPU than all others together."""
    code = (
        "import sys\n"
        "import spark_connector.batch, spark_connector.streaming, spark_connector.writing.sink\n"
        "assert 'pyarrow' in sys.modules\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_options_count_for_batches_or_for_streaming() -> None:
    source = AmqpStreamsDataSource(CaseInsensitiveDict(OPTIONS | {"maxOffsetsPerTrigger": "5"}))
    source.streamReader(schema=source.schema())
    with pytest.raises(OptionError, match=r"does not apply to spark\.read"):
        source.reader(schema=source.schema())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no endpoint"),
        ({"endpoint": "h"}, "no log is given"),
        (
            {"endpoint": "h", "stream": "t", "startingOffset": "latest"},
            "unknown option 'startingoffset'.*'startingOffsets'",
        ),
        ({"endpoint": "h", "stream": "t", "minPartitions": "0"}, "option 'minPartitions' is not valid"),
    ],
)
def test_options_that_can_be_checked_early_are_refused_by_load(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        AmqpStreamsDataSource(CaseInsensitiveDict(given)).schema()


def test_load_takes_options_of_both_kinds_of_query() -> None:
    options = OPTIONS | {"maxOffsetsPerTrigger": "5", "endingOffsets": "latest", "checkpointLocation": "x"}
    AmqpStreamsDataSource(CaseInsensitiveDict(options)).schema()
