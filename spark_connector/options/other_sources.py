"""Names of options of other sources, for example Kafka and Event Hubs, for helpful errors. Pure."""

from typing import Final

_NO_GROUP: Final = "Reading needs no consumer group: remove the option"

ELSEWHERE: Final = {
    "bootstrap.servers": "endpoint",
    "connectionstring": "endpoint",
    "service.url": "endpoint",
    "assign": "startingOffsets",
    "startingposition": "startingOffsets",
    "startingpositions": "startingOffsets",
    "endingposition": "endingOffsets",
    "endingpositions": "endingOffsets",
    "maxeventspertrigger": "maxOffsetsPerTrigger",
    "maxrecordspertrigger": "maxOffsetsPerTrigger",
    "maxrecordsperpartition": "maxOffsetsPerPartition",
    "includeheaders": "includeProperties",
    "fetchoffset.numretries": "retries",
    "fetchoffset.retryintervalms": "retryInterval",
    "polltimeoutms": "operationTimeout",
    "receivertimeout": "operationTimeout",
    "operationtimeout": "operationTimeout",
}
"""The options that correspond to those of other sources, by the end of their names in lower case."""

NOT_NEEDED: Final = {
    "group.id": _NO_GROUP,
    "groupidprefix": _NO_GROUP,
    "consumergroup": _NO_GROUP,
    "prefetchcount": "Remove the option: tasks prefetch automatically, and batchBytes limits their memory",
    "subscribepattern": "Patterns are not supported: name the logs in 'stream', separated by commas",
}
"""Remedies for options of other sources that do not correspond to an option, by the end of their names in
lower case.
"""
