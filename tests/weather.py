"""A Broker with two Triggers, one of whose subscribers fails, and the Broker that gets its dead letters."""

RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: weather, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: {dead}, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: measured, namespace: default}}
spec:
  broker: weather
  filter: {{attributes: {{type: measured}}}}
  subscriber: {{uri: "{good}"}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: alarms, namespace: default}}
spec:
  broker: weather
  filters: [{{cesql: "celsius > 30"}}]
  subscriber: {{uri: "{bad}"}}
  delivery:
    retry: 1
    backoffPolicy: linear
    backoffDelay: PT0.01S
    deadLetterSink:
      ref: {{apiVersion: eventing.knative.dev/v1, kind: Broker, name: {dead}}}
"""
"""For `str.format`: URLs of the subscribers `good` and `bad`, and the name of the Broker `dead`."""
