"""reconnect URL LOG with Proton's Container and its own reconnection. See ../README.md."""

import os
import sys
import threading

from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

EVERY_S = 0.05


class Reconnecting(MessagingHandler):
    """Sends an event every so often, and prints what it receives."""

    def __init__(self, url: str, log: str) -> None:
        super().__init__()
        self._url = url
        self._log = log
        self.sent = 0

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self._url)
        event.container.create_receiver(connection, self._log)
        self._sender = event.container.create_sender(connection, self._log)
        event.container.schedule(EVERY_S, self)

    def on_timer_task(self, event: Event) -> None:
        if self._sender.credit:
            self._sender.send(Message(body=str(self.sent)))
            self.sent += 1
        event.container.schedule(EVERY_S, self)

    def on_message(self, event: Event) -> None:
        print("got", event.message.body, flush=True)


def answer_stdin(client: Reconnecting) -> None:
    for _ in sys.stdin:
        print("next", client.sent, flush=True)
    os._exit(0)


client = Reconnecting(sys.argv[2], sys.argv[3])
threading.Thread(target=answer_stdin, args=[client], daemon=True).start()
Container(client).run()
