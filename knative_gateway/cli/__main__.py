"""`python -m knative_gateway.cli`."""

from knative_gateway.cli import main

main()
