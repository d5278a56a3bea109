# regard serve in a container, on the CPU.
#   docker build -t regard .
#   docker run -p 127.0.0.1:8080:8080 -v "$PWD/runs/en-de:/app/runs/model:ro" regard
# Words behind the image take the place of CMD: several runs, --token-file and further options of regard serve.

# this image has a C compiler, for the native kernels; the next one does not need it
FROM python:3.12 AS build
WORKDIR /app
COPY . source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir wheels ./source && cp source/constraints.txt wheels/

FROM python:3.12-slim
WORKDIR /app
COPY --from=build /app/wheels wheels
# the torch of this index has no CUDA, which takes gigabytes
RUN pip install --no-cache-dir --constraint wheels/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu "$(ls wheels/*.whl)[serve,vision]"
USER 65534
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=5)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0"]
CMD ["runs/model"]
