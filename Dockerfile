# Images. The last stage, which `docker build .` makes, is for nodes, gateways and consoles:
#   docker build --tag amqp-streams .
# A job of Spark, with Java:
#   docker build --target job --tag amqp-streams-job .
# docker-compose.yml builds both. docs/containers.md explains them.

# The compiler that Qpid Proton's binding needs stays in the stages whose names begin with "build".
FROM python:3.13-slim-bookworm AS build
# hadolint ignore=DL3008
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
RUN python -m venv /opt/amqp-streams \
    && /opt/amqp-streams/bin/pip install --no-cache-dir --constraint constraints.txt '.[compression,console,gateway,kafka,node]'

FROM build AS build-job
RUN python -m venv /opt/job \
    && /opt/job/bin/pip install --no-cache-dir --constraint constraints.txt '.[compression,spark]'

FROM python:3.13-slim-bookworm AS job
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/job --create-home job
COPY --from=build-job /opt/job /opt/job
COPY deploy/spark /opt/jobs
ENV PATH=/opt/job/bin:$PATH
USER 10001
WORKDIR /var/lib/job
EXPOSE 4040
# The pages of Spark answer as long as the job has a session.
HEALTHCHECK --interval=30s --start-period=120s CMD \
    ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4040/api/v1/applications', timeout=3)"]
ENTRYPOINT ["python"]
CMD ["/opt/jobs/count.py"]

FROM python:3.13-slim-bookworm
# openssl makes the certificates of the profile `tls` of docker-compose.yml.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends openssl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/amqp-streams --create-home amqp-streams
COPY --from=build /opt/amqp-streams /opt/amqp-streams
ENV PATH=/opt/amqp-streams/bin:$PATH
USER 10001
VOLUME /var/lib/amqp-streams
EXPOSE 5672 8672
HEALTHCHECK --interval=10s --start-period=60s CMD \
    ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8672/readyz', timeout=3)"]
# A container has no loopback for its neighbours: who may connect without a user is said by whoever runs it (see docker-compose.yml).
ENTRYPOINT ["amqp-streams", "serve", "--data-dir", "/var/lib/amqp-streams/data", "--listen", "0.0.0.0:5672", "--admin-listen", "0.0.0.0:8672"]
