"""The start of a replay as users write it, with the same forms as in `amqp-streams receive --from`. Pure.

| written | meaning |
|---|---|
| `earliest` | the earliest event in the log |
| `latest`, `new` | only events that are stored from now on |
| `2026-11-21T06:30:00Z`, `2026-11-21 06:30`, `time=…` | a time; without a zone it is UTC |
| `1795242600000` | milliseconds since 1970: 13 digits |
| `-1h`, `-1h30m`, `now` | a time before the present |
| `0:42`, `0:42,1:40`, `offset=0=42,1=40` | offsets by partition |
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

FORMS: Final = "earliest, latest, a time (2026-11-21T06:30:00Z, -1h, now) or offsets by partition (0:42,1:40)"
_OFFSETS: Final = re.compile(r"[0-9]{1,9}[:=][0-9]{1,16}(?:,[0-9]{1,9}[:=][0-9]{1,16})*")
_MILLISECONDS: Final = re.compile(r"[0-9]{13}")
_AGO: Final = re.compile(
    r"-(?:(?P<weeks>[0-9]{1,5})w)?(?:(?P<days>[0-9]{1,5})d)?(?:(?P<hours>[0-9]{1,6})h)?"
    r"(?:(?P<minutes>[0-9]{1,8})m)?(?:(?P<seconds>[0-9]{1,9})s)?"
)


def written_start(text: str, now: datetime) -> str:
    """Return the start in the API's form: `earliest`, `new`, `time=…` or `offset=…`. `now` must have a time
    zone.

    Raises:
      ValueError: `text` does not have any of these forms; the message lists them.
    """
    if text in {"earliest", "new"}:
        return text
    if text == "latest":
        return "new"
    if _OFFSETS.fullmatch(offsets := text.removeprefix("offset=")):
        return f"offset={offsets.replace(':', '=')}"
    moment = _moment(text.removeprefix("time="), now)
    if moment is None:
        message = f"{text!r} is not a valid start. Use {FORMS}"
        raise ValueError(message)
    return f"time={moment.astimezone(UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


def _moment(text: str, now: datetime) -> datetime | None:
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None and text != "-":
            return now - timedelta(**{unit: int(count) for unit, count in ago.groupdict(default="0").items()})
        if _MILLISECONDS.fullmatch(text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        moment = now if text == "now" else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
