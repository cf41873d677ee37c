# The service on a CPU, with the weights of the lite models inside; see docs/serve.md.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
# PyTorch's own index has the builds without CUDA, which are a tenth of the size. No other index is asked for them: a newer
# build with CUDA would be taken.
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch torchvision \
    && /venv/bin/pip install --no-cache-dir '.[serve,fast]'

FROM python:3.12-slim
COPY --from=build /venv /venv
# The cache holds the model as OpenVINO has converted it, and which engine is the faster one here; without it PyTorch runs.
RUN useradd --system --no-create-home --shell /usr/sbin/nologin faircontext \
    && install --directory --owner=faircontext /var/cache/faircontext
USER faircontext
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 FAIRCONTEXT_CACHE=/var/cache/faircontext HF_HUB_OFFLINE=1
VOLUME /var/cache/faircontext
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
# What was accepted is finished within 30 seconds: stop it with `docker stop --time 45`, as docs/serve.md says.
STOPSIGNAL SIGTERM
ENTRYPOINT ["faircontext", "serve", "--host", "0.0.0.0", "--max-images", "32"]
# Whoever starts the container decides who may ask: --token FILE, or --insecure behind a proxy.
CMD []
