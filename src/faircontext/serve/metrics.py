"""What the service counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_BATCHES = (1, 2, 4, 8, 12, 16)


class Metrics:
    """Requests, seconds, the queue, batches and refusals of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "faircontext_requests",
            "Requests that were answered or refused.",
            ("path", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "faircontext_request_seconds",
            "Seconds from a request's first byte to the end of its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.images = Counter("faircontext_images", "Images that were answered.", ("outcome",), registry=self._registry)
        self.batches = Histogram(
            "faircontext_batch_images", "Images that were computed together.", buckets=_BATCHES, registry=self._registry
        )
        self.queue = Gauge("faircontext_queue_images", "Images that wait or are computed.", registry=self._registry)
        self.refusals = Counter(
            "faircontext_refusals", "Requests that were refused, by reason.", ("reason",), registry=self._registry
        )

    def text(self) -> bytes:
        """Return all of it in Prometheus's text format."""
        return generate_latest(self._registry)
