# The gateway with PostgreSQL and code mode. Servers that start with npx or uvx need an image that adds Node.js or uv.
FROM python:3.13-slim AS build

WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/toolcrib \
    && /opt/toolcrib/bin/pip install --no-cache-dir ".[gateway,postgres,code]"

FROM python:3.13-slim

RUN useradd --uid 10001 --create-home --home-dir /var/lib/toolcrib toolcrib
COPY --from=build /opt/toolcrib /opt/toolcrib
COPY deploy/healthcheck.py /opt/toolcrib/healthcheck.py
ENV PATH=/opt/toolcrib/bin:$PATH \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can verify that it is not root.
USER 10001
WORKDIR /var/lib/toolcrib
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "/opt/toolcrib/healthcheck.py", "http://127.0.0.1:8787/ready"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["toolcrib"]
CMD ["serve", "--config", "/etc/toolcrib/toolcrib.json", "--host", "0.0.0.0", "--json-log"]
