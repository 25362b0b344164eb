"""[io] The dispatcher: it reads logs and sends events to subscribers."""

from knative_gateway.dispatcher.dispatcher import Dispatcher
from knative_gateway.dispatcher.posting.sending import Sender, SendSettings
from knative_gateway.dispatcher.settings import DispatchSettings

__all__ = ["DispatchSettings", "Dispatcher", "SendSettings", "Sender"]
