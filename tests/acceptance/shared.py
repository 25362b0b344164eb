"""One Broker with one Trigger, whose events several processes accept and deliver together."""

BROKER = "/broker/default/shared"
RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: shared, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: all, namespace: default}}
spec:
  broker: shared
  subscriber: {{uri: "{url}"}}
  delivery: {{retry: 20, backoffDelay: PT0.05S, backoffPolicy: linear}}
"""
