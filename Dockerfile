# regard serve in a container, on the CPU.
#   docker build -t regard .
#   docker run -p 127.0.0.1:8080:8080 -v "$PWD/runs/en-de:/app/runs/model:ro" regard
# Words behind the image take the place of CMD: several runs, --token-file and further options of regard serve.

# this image has a C compiler, for the native kernels; the next one does not need it
ARG PYTHON=3.12.12
FROM python:${PYTHON}-bookworm AS build
WORKDIR /app
COPY . source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir wheels ./source && cp source/constraints.txt wheels/

FROM python:${PYTHON}-slim-bookworm
WORKDIR /app
COPY --from=build /app/wheels wheels
# the torch of this index has no CUDA, which takes gigabytes
RUN pip install --no-cache-dir --constraint wheels/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu "$(ls wheels/*.whl)[serve,vision]"
# nothing is written: docker run --read-only works, as deploy/compose.yaml does
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/nonexistent
USER 65534
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health/live', timeout=5)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0"]
CMD ["runs/model"]
