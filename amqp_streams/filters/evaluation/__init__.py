"""A filter's tree as functions over a record. Spec: FILTEX 6.4."""
