"""The control plane: `Controller` reconciles the objects of the store with the data plane."""

from knative_gateway.controller.controller import Controller, Counters, Times
from knative_gateway.controller.deciding.plan import Figures, LogNeed, Settings
from knative_gateway.controller.deciding.reconcile import Reconciler

__all__ = ["Controller", "Counters", "Figures", "LogNeed", "Reconciler", "Settings", "Times"]
