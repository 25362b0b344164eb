"""The Kubernetes-style API for kubectl and Kubernetes clients, with a few endpoints of this gateway."""

from knative_gateway.api.app import Api
from knative_gateway.api.handlers import ApiSettings
from knative_gateway.api.objects import Namespaces
from knative_gateway.api.startup import load_directory

__all__ = ["Api", "ApiSettings", "Namespaces", "load_directory"]
