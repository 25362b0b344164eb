"""The commands of `knative-gateway`, one module each."""
