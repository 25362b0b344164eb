"""The blocking face: the names and meanings of `amqp_streams.client.aio` without `await`; iterate with `for`, enter with `with`.

`producer.post` returns a `concurrent.futures.Future`-like object with `.result(timeout)`. Safe to use from several threads.
"""
