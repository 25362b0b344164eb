"""Messages as rows of Arrow record batches."""
