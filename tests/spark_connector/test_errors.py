"""Errors name the problem, its place and the remedy, also after they crossed processes."""

import pickle

from spark_connector.errors import ConnectorError, DataLossError


def test_an_error_says_what_where_and_what_to_do() -> None:
    assert (
        str(ConnectorError("it is gone", "log 't'", "Look elsewhere"))
        == "it is gone (log 't'). Look elsewhere"
    )
    assert str(ConnectorError("it is gone", "", "Look elsewhere")) == "it is gone. Look elsewhere"
    assert str(ConnectorError("it is gone")) == "it is gone"


def test_an_error_crosses_processes() -> None:
    again = pickle.loads(pickle.dumps(DataLossError("a", "b", "c")))
    assert (type(again), again.what, again.where, again.remedy) == (DataLossError, "a", "b", "c")
