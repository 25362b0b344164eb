"""JSON Web Tokens: their claims, and the keys that verify them. Spec: RFC 7519, RFC 7517, RFC 8725."""
