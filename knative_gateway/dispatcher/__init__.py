"""[io] Pushing what is in the logs to subscribers."""

from knative_gateway.dispatcher.dispatcher import Dispatcher
from knative_gateway.dispatcher.posting.sending import Sender, SendSettings
from knative_gateway.dispatcher.settings import DispatchSettings

__all__ = ["DispatchSettings", "Dispatcher", "SendSettings", "Sender"]
