"""The Kubernetes-style API: what kubectl and Kubernetes clients speak, and our few endpoints beside it."""

from knative_gateway.api.app import Api
from knative_gateway.api.handlers import ApiSettings
from knative_gateway.api.objects import Namespaces
from knative_gateway.api.startup import load_directory

__all__ = ["Api", "ApiSettings", "Namespaces", "load_directory"]
