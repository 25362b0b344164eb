"""From resources to status and routes: `reconcile` decides, `Controller` carries it out."""

from knative_gateway.controller.controller import Controller, Counters, Times
from knative_gateway.controller.plan import Figures, LogNeed, Plan, Settings, State
from knative_gateway.controller.reconcile import reconcile

__all__ = ["Controller", "Counters", "Figures", "LogNeed", "Plan", "Settings", "State", "Times", "reconcile"]
