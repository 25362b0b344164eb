"""The links of a connection: producers, consumers, requests, and attaches that wait for an answer."""
