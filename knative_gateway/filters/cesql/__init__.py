"""CloudEvents SQL: text, tree and evaluation. Spec: CloudEvents SQL 1.0."""
