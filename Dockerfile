# Event log node and gateway. Two stages: the compiler that Qpid Proton's binding needs stays in the first.
FROM python:3.13-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ libc6-dev libffi-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY amqp_streams amqp_streams
COPY event_formats event_formats
COPY knative_gateway knative_gateway
COPY pyspark_amqpstreams pyspark_amqpstreams
COPY service_parts service_parts
COPY spark_connector spark_connector
COPY web_console web_console
RUN python -m venv /opt/amqp-streams && /opt/amqp-streams/bin/pip install --no-cache-dir --constraint constraints.txt '.[compression,gateway,kafka,node]'

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/amqp-streams --create-home amqp-streams
COPY --from=build /opt/amqp-streams /opt/amqp-streams
ENV PATH=/opt/amqp-streams/bin:$PATH
USER amqp-streams
VOLUME /var/lib/amqp-streams
EXPOSE 5672 8672
HEALTHCHECK --interval=10s --start-period=60s CMD \
    ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8672/readyz', timeout=3)"]
# A container has no loopback for its neighbours: who may connect without a user is said by whoever runs it (see docker-compose.yml).
ENTRYPOINT ["amqp-streams", "serve", "--data-dir", "/var/lib/amqp-streams/data", "--listen", "0.0.0.0:5672", "--admin-listen", "0.0.0.0:8672"]
