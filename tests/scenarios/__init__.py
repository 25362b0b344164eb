"""Sections 4 and 5 of Event Streams, paragraph by paragraph, as transcripts that run.

`script.py` reads them. `playing.py` plays them on a stage: in memory (`memory.py`), or over the wire with
clients of other projects (`wire.py`).
"""
