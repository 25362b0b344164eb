"""JSON Web Tokens: the keys that check them, and their claims (RFC 7519, RFC 7517, RFC 8725)."""
