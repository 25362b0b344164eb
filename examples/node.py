"""A node as a process of its own, as a program that needs one for a while starts it: by its command, told by
a file when it listens.

The first start lets the system choose a port; later ones keep it, so that clients find the node again.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

START_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 60.0


class NodeProcess:
    """`amqp-streams serve` with its data, words and ready file in `folder`.

    Use it with `with`: that stops what is left running.
    """

    def __init__(
        self, folder: Path, *options: str, log: str | Sequence[str] = (), listen: str = "127.0.0.1:0"
    ) -> None:
        self.folder: Final = folder
        self.listen: Final = listen
        self.data_dir: Final = folder / "data"
        self.options: Final = list(options)
        self.start_seconds_max = START_SECONDS_MAX
        for one in [log] if isinstance(log, str) else log:
            self.options.extend(["--log", one])
        self.addresses: dict[str, list[str]] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._ready_file: Final = folder / "ready.json"
        self._words: Final = folder / "node.log"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://{self.addresses['amqp'][0]}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    @property
    def words(self) -> str:
        """What it has written, all starts together."""
        return self._words.read_text(errors="replace") if self._words.exists() else ""

    def launch(self) -> None:
        """Start the process and do not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)  # a killed node leaves it behind
        with self._words.open("ab") as words:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=self.environment()
            )

    def command(self) -> list[str]:
        """What is run."""
        listen = self.addresses["amqp"][0] if "amqp" in self.addresses else self.listen
        command = [
            str(Path(sys.executable).parent / "amqp-streams"),
            "serve",
            "--data-dir",
            str(self.data_dir),
        ]
        return [*command, "--listen", listen, "--ready-file", str(self._ready_file), *self.options]

    def environment(self) -> dict[str, str]:
        """Ours without settings of a node that someone may have set for another one."""
        return {name: value for name, value in os.environ.items() if not name.startswith("AMQP_STREAMS_")}

    def start(self) -> Self:
        """Start it and wait until it listens.

        Raises:
            RuntimeError: it ended, or does not listen in time; with its words.
        """
        self.launch()
        return self.await_ready()

    def await_ready(self) -> Self:
        """Wait until what was launched listens. Raises RuntimeError as `start` does."""
        deadline = time.monotonic() + self.start_seconds_max
        while not self._ready_file.exists():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                message = f"the node does not listen: {self.words[-2000:]}"
                raise RuntimeError(message)
            time.sleep(0.005)
        self.addresses = json.loads(self._ready_file.read_text())
        return self

    def kill(self) -> None:
        """kill -9: no chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit status.

        Raises:
            subprocess.TimeoutExpired: it does not end.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
