"""Load a running service with many clients at once, and check every answer.

Usage: python scripts/load_service.py PHOTOS [--clients 200] [--seconds 60] [--backbone lite0] [--labels a,b] [--seed 0]

PHOTOS is a folder of images. The service is started as a process on the loopback. Before the load, the answers of the
library for the photos are computed; then the bare encoder is timed on batches of 16, and zero-shot's throughput with
few clients that send good photos alone, in turn. Under load the clients mix good photos (zero_shot, and now and then
MTA), 20 kinds of bad files, uploads that are too large, slow senders, and clients that leave. A 200 must hold what the
library answers; whatever else must be a refusal of 4xx in JSON that names its field.
Memory is the resident size of the service after a warm-up of the same kind and at the end. The exit code is 1 where an
answer is wrong, a status is 5xx, or memory grew by more than 200 MB.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

METHODS = ("zero_shot", "mta")
_JPEG_END = b"\xff\xd9"


@dataclass
class Found:
    """What came of the requests."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    images: int = 0


def bad_files(good: bytes) -> dict[str, bytes]:
    """Return 20 kinds of files that are no photo."""
    rng = random.Random(0)
    flipped = bytearray(good)
    for position in range(100, len(flipped), 50):
        flipped[position] ^= rng.randrange(256)
    return {
        "empty.jpg": b"",
        "byte.jpg": b"\xff",
        "text.jpg": b"hello",
        "page.html": b"<html><script>alert(1)</script></html>",
        "head.jpg": good[:20],
        "half.jpg": good[: len(good) // 2],
        "zeros.jpg": bytes(5000),
        "noise.png": rng.randbytes(5000),
        "flipped.jpg": bytes(flipped),
        "headless.jpg": good[200:],
        "png-head.png": b"\x89PNG\r\n\x1a\n",
        "png-bomb.png": _png_head(60_000, 60_000),
        "gif.gif": b"GIF89a" + bytes(20),
        "bmp.bmp": b"BM" + b"\xff" * 60,
        "tiff.tif": b"II*\0" + b"\xff" * 60,
        "webp.webp": b"RIFF\x10\0\0\0WEBPVP8 ",
        "eps.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n",
        "svg.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "zip.zip": b"PK\x03\x04" + bytes(30),
        "../../etc/passwd": b"root:x:0:0",
    }


def _png_head(width: int, height: int) -> bytes:
    import struct
    import zlib

    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + _JPEG_END


class Load:
    """Clients of one service, and what is right."""

    def __init__(self, url: str, photos: list[Path], labels: str, expected: dict[tuple[str, str], Any]) -> None:
        self.url, self.labels, self.expected = url, labels, expected
        self.photos = [(path.name, path.read_bytes()) for path in photos]
        self.bad = bad_files(self.photos[0][1])
        self.found = Found()

    async def client(self, http: httpx.AsyncClient, rng: random.Random, end: float) -> None:
        """Ask until the end, each time in another way."""
        kinds = (self.good, self.good, self.good, self.mixed, self.wrong, self.large, self.slow, self.leaving)
        while time.monotonic() < end:
            try:
                await rng.choice(kinds)(http, rng)
            except (httpx.TransportError, OSError) as error:
                self.found.statuses[type(error).__name__] += 1
                self.found.problems.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(rng.random())

    async def good(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Send good photos."""
        method = "mta" if rng.random() < 0.03 else "zero_shot"
        chosen = rng.sample(self.photos, 1 if method == "mta" else rng.randint(1, 4))
        await self._ask(http, method, chosen)

    async def mixed(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Send a good photo among bad files."""
        bad = rng.sample([*self.bad.items()], 2)
        await self._ask(http, "zero_shot", [bad[0], rng.choice(self.photos), bad[1]])

    async def wrong(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Send a form with a field that cannot be used."""
        fields: dict[str, str] = rng.choice(
            ({}, {"labels": "a,b", "seed": "x"}, {"labels": "a,b", "no": "1"}, {"labels": ","})
        )
        response = await http.post("/v1/classify", data=fields, files=[("images", rng.choice(self.photos))])
        self._refused(response, {422})

    async def large(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Send a file that is too large."""
        files = [("images", ("large.jpg", rng.randbytes(1000) * 2100))]
        self._refused(await http.post("/v1/classify", data={"labels": "a,b"}, files=files), {413})

    async def slow(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Send a photo in small pieces with pauses."""
        photo = rng.choice(self.photos)
        request = self._request(http, "zero_shot", [photo])
        body, kind = request.read(), request.headers["content-type"]

        async def pieces() -> Any:
            for start in range(0, len(body), 1 + len(body) // 8):
                yield body[start : start + 1 + len(body) // 8]
                await asyncio.sleep(0.25)

        began = time.monotonic()
        response = await http.post("/v1/classify", content=pieces(), headers={"Content-Type": kind})
        self._check(response, "zero_shot", [photo], began)

    async def leaving(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """Leave at any time: before all is sent, or while the answer is computed."""
        request = self._request(http, "mta", rng.sample(self.photos, 2))
        body, kind = request.read(), request.headers["content-type"]
        host, port = self.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /v1/classify HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body[: rng.choice((100, len(body) // 2, len(body)))])
        await asyncio.sleep(rng.random())
        writer.close()
        self.found.statuses["left"] += 1

    def _request(self, http: httpx.AsyncClient, method: str, files: list[tuple[str, bytes]]) -> httpx.Request:
        form = {"labels": self.labels, "method": method}
        return http.build_request("POST", "/v1/classify", data=form, files=[("images", file) for file in files])

    async def _ask(self, http: httpx.AsyncClient, method: str, files: list[tuple[str, bytes]]) -> None:
        began = time.monotonic()
        form = {"labels": self.labels, "method": method}
        response = await http.post("/v1/classify", data=form, files=[("images", file) for file in files])
        self._check(response, method, files, began)
        if response.status_code == 429:
            await asyncio.sleep(float(response.headers["retry-after"]) * random.uniform(0.5, 1.0))

    def _check(self, response: httpx.Response, method: str, files: list[tuple[str, bytes]], began: float) -> None:
        """Compare an answer with the library's; only 200 and 429 are right for what could be answered."""
        if response.status_code != 200:
            self._refused(response, {429})
            return
        self.found.statuses["200"] += 1
        self.found.seconds.append(time.monotonic() - began)
        answers = response.json()["answers"]
        self.found.images += len(answers)
        for (name, _), answer in zip(files, answers, strict=True):
            wanted = self.expected.get((name, method))
            given = {key: answer.get(key) for key in ("prediction", "votes", "confidence", "zero_shot", "top5")}
            if (wanted is None) != bool(answer["error"]) or (wanted is not None and wanted != given):
                self.found.problems.append(f"{name} {method}: {given} and not {wanted}")

    def _refused(self, response: httpx.Response, allowed: set[int]) -> None:
        self.found.statuses[str(response.status_code)] += 1
        if response.status_code not in allowed | {429}:
            self.found.problems.append(f"{response.status_code}: {response.text[:200]}")
        elif not response.json()["error"]["field"]:
            self.found.problems.append(f"no field: {response.text[:200]}")


def expected_of(
    photos: list[Path], options: argparse.Namespace, bad: dict[str, bytes]
) -> tuple[dict[Any, Any], Callable[[], float]]:
    """Return the library's answers for good photos, by name and method, and what times the bare encoder."""
    import torch

    from faircontext import LabelSpace, create_backbone, create_method
    from faircontext.datasets.spec import Sample
    from faircontext.runs.answer import Predictor, answer_images
    from faircontext.sources import Content
    from faircontext.system import keep_freed_memory

    keep_freed_memory()  # as the service does, so that both encode under the same conditions
    backbone = create_backbone(options.backbone, engine=options.engine_image)
    space = LabelSpace(options.labels.split(","), backbone)
    methods = {name: create_method(name, preset="recommended", backbone=backbone) for name in METHODS}
    contents = {path.name: path.read_bytes() for path in photos} | bad
    items = [Sample(name, Content(name, content)) for name, content in contents.items()]
    expected = {}
    for answered in answer_images(items, Predictor(space, methods, backbone.view_recipe("recommended"))):
        for entry in json.loads(json.dumps([answer.entry(space.names) for answer in answered.answers])):
            if not entry["error"]:
                kept = {key: entry.get(key) for key in ("prediction", "votes", "confidence", "zero_shot", "top5")}
                expected[entry["path"], entry["method"]] = kept
    expected |= {(name.rpartition("/")[2], method): value for (name, method), value in expected.items()}
    # In the memory format that is quickest, as preprocessed batches are.
    pixels = torch.rand(16, 3, backbone.image_size, backbone.image_size).to(memory_format=torch.channels_last)

    def bare() -> float:
        """Return images a second."""
        times = []
        for _ in range(12):
            began = time.perf_counter()
            backbone.encode_image(pixels)
            times.append(time.perf_counter() - began)
        return 16 / statistics.median(times[1:])

    return expected, bare


async def throughput(load: Load, seconds: float, clients: int = 4) -> float:
    """Return zero-shot's images a second, with a few clients that send 16 good photos at a time."""
    load.found = Found()
    async with httpx.AsyncClient(base_url=load.url, timeout=120, trust_env=False) as http:
        end, began = time.monotonic() + seconds, time.monotonic()

        async def send(start: int) -> None:
            while time.monotonic() < end:
                start += 16
                chosen = [load.photos[(start + index) % len(load.photos)] for index in range(16)]
                await load._ask(http, "zero_shot", chosen)

        await asyncio.gather(*(send(16 * number) for number in range(clients)))
        return load.found.images / (time.monotonic() - began)


async def crowd(load: Load, clients: int, seconds: float, seed: int) -> None:
    """Let many clients ask at once."""
    load.found = Found()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=load.url, timeout=120, limits=limits, trust_env=False) as http:
        end = time.monotonic() + seconds
        await asyncio.gather(
            *(load.client(http, random.Random(seed * 1000 + number), end) for number in range(clients))
        )


def resident_mb(process: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--labels", default="dog,elephant,giraffe,guitar,horse,house,person")
    parser.add_argument("--engine-image", default="torch", help="of both, as auto may choose another for each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    photos = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))[:48]
    photos = [*{path.name: path for path in photos}.values()]
    if not photos:
        parser.error(f"{options.photos}: no .jpg, .jpeg or .png in it")
    expected, bare = expected_of(photos, options, bad_files(photos[0].read_bytes()))
    words = ("--port", "0", "--backbone", options.backbone, "--engine-image", options.engine_image)
    command = [sys.executable, "-m", "faircontext", "serve", "--max-file-mb", "2", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"FAIRCONTEXT_CACHE": "off"}
    ) as process:
        try:
            assert process.stdout is not None
            url = re.search(r"http://\S+(?=/ )", process.stdout.readline())
            assert url is not None, "the service did not start"
            load = Load(url[0], photos, options.labels, expected)
            rates = [(bare(), asyncio.run(throughput(load, 5))) for _ in range(6)][1:]
            asyncio.run(crowd(load, options.clients, min(10.0, options.seconds), options.seed + 1))
            before, problems = resident_mb(process.pid), load.found.problems
            asyncio.run(crowd(load, options.clients, options.seconds, options.seed))
            after = resident_mb(process.pid)
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        finally:
            process.kill()
    return report(load.found, problems, rates, (before, after), code)


def report(
    found: Found, earlier: list[str], rates: list[tuple[float, float]], memory: tuple[float, float], code: int
) -> int:
    """Print what was found, and return 1 where something is wrong."""
    bare, service = (statistics.median(one) for one in zip(*rates, strict=True))
    ratios = sorted(answered / encoded for encoded, answered in rates)
    problems = [*earlier, *found.problems]
    print(f"answers: {dict(sorted(found.statuses.items()))}; {found.images} images answered")
    cuts = statistics.quantiles(found.seconds, n=100) if len(found.seconds) > 1 else [float("nan")] * 99
    print(f"seconds of a 200: p50 {cuts[49]:.2f}, p99 {cuts[98]:.2f} (n = {len(found.seconds)})")
    print(
        f"zero-shot throughput: {service:.1f} images/s, the bare encoder's {bare:.1f}, medians of {len(rates)} in turn"
    )
    print(f"ratio, median (min to max): {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"resident: {memory[0]:.0f} MB before, {memory[1]:.0f} MB after; exit code of the service: {code}")
    for line, count in Counter(problems).most_common(20):
        print(f"wrong: {count} x {line}")
    failed = bool(problems) or any(status.startswith("5") for status in found.statuses) or code != 0
    return int(failed or memory[1] - memory[0] > 200)


if __name__ == "__main__":
    sys.exit(main())
