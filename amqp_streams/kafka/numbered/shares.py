"""How the users of a node share what its idempotent producers have together. Pure.

Law: a user may use what is free. When nothing is free, the user that has most gives way to one that has less.
No user gives way to one that has more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from amqp_streams.kafka.numbered.records import ProducerKey
from amqp_streams.kafka.sharing.followed import KEY_OVERHEAD
from amqp_streams.storage.formats.producers import USER_SEPARATOR

_HASHED: Final = USER_SEPARATOR * 2


def user_of(key: ProducerKey) -> str:
    """Whose producer it is: see `stored_id`.

    Producers whose names are so long that only a hash is stored count as those of one user.
    """
    if key.producer.startswith(_HASHED):
        return _HASHED
    user, separator, _ = key.producer.partition(USER_SEPARATOR)
    return user if separator else ""


def users_of(keys: Iterable[ProducerKey]) -> Counter[str]:
    """How many of these producers each user has."""
    return Counter(map(user_of, keys))


class Remembered:
    """The records of a bucket by user. `count_max`, `bytes_max`: of the bucket, which shares refer to.

    `note` is called for each record as it is read, so it costs the same however many there are.
    """

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max: Final = count_max
        self._bytes_max: Final = bytes_max
        self._sizes: dict[str, dict[str, int]] = {}
        """By user, and by key in the topic, the bytes. The oldest first, users and records."""
        self._bytes: Counter[str] = Counter()

    def note(self, user: str, state: str, size: int | None) -> None:
        """A record has this many bytes now, with its key; None: it was removed."""
        sizes = self._sizes.pop(user, {})
        self._bytes[user] -= sizes.pop(state, 0)
        if size is not None:
            sizes[state] = size + KEY_OVERHEAD
            self._bytes[user] += sizes[state]
        if sizes:
            self._sizes[user] = sizes
        else:
            del self._bytes[user]

    def bytes_of(self, user: str) -> int:
        """The bytes of the records of a user."""
        return self._bytes[user]

    def candidates(self, user: str) -> Iterator[str]:
        """What may be forgotten for a new producer of this user: of the users that have most, the oldest.

        Of no user that has less than this one.
        """
        own = self._share(user, more=1)
        shares = {each: self._share(each) for each in self._sizes}
        if user in shares:
            shares[user] = own
        # Of users that have as much: this one, then the one that stored nothing for the longest time.
        for each in sorted(shares, key=lambda each: (-shares[each], each != user)):
            if shares[each] < own:
                return
            yield from self._sizes[each]

    def _share(self, user: str, more: int = 0) -> float:
        count = len(self._sizes.get(user, ())) + more
        return max(count / self._count_max, self._bytes[user] / self._bytes_max)
