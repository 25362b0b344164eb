"""Decides what to do with one event for one subscriber: attempts, waits, replies, dead letters.

Pure: the dispatcher carries the decisions out.
"""

from knative_gateway.delivery.congestion import Congestion
from knative_gateway.delivery.dead_letter import Attempt
from knative_gateway.delivery.outcome import Answer, overloaded, succeeded
from knative_gateway.delivery.plan import Action, Done, End, Plan, Post, Store, To, Unstored, Wait
from knative_gateway.delivery.rate import Rate
from knative_gateway.delivery.window import Entry, Window

__all__ = [
    "Action",
    "Answer",
    "Attempt",
    "Congestion",
    "Done",
    "End",
    "Entry",
    "Plan",
    "Post",
    "Rate",
    "Store",
    "To",
    "Unstored",
    "Wait",
    "Window",
    "overloaded",
    "succeeded",
]
