"""Filter texts: tokens, grammar and checks. Spec: FILTEX 6.4."""
