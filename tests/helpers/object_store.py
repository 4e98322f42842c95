"""A small S3 for tests, in this process: what Arrow asks of one, with credentials, throttling and nothing on disk."""

import contextlib
import email.utils
import http.server
import io
import re
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import IO, ClassVar
from xml.sax.saxutils import escape, unescape

KEY, SECRET = "tests", "not-to-be-told"


class Server(http.server.ThreadingHTTPServer):
    """Buckets of objects: key -> content, kind and time.

    So many requests as ``throttled`` says, and all for the key ``refused``, are answered with SlowDown.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.buckets: dict[str, dict[str, tuple[bytes, str, float]]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.throttled = 0
        self.refused = ""
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_address[1]}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def read_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """The chunks of a body: each its length in hex and a line's end, then the bytes and a line's end."""
    while size := int(stream.readline().partition(b";")[0], 16):
        yield stream.read(size)
        stream.readline()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection: a request is told by its method and the first word of its query."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    KNOWN: ClassVar = {
        ("PUT", "partNumber"): "put_part",
        ("POST", "uploads"): "begin_upload",
        ("POST", "uploadId"): "complete_upload",
        ("DELETE", "uploadId"): "abort_upload",
        ("POST", "delete"): "delete_objects",
    }

    def log_message(self, *arguments: object) -> None: ...

    def handle_any(self) -> None:
        path, _, query = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.bucket, _, self.key = urllib.parse.unquote(path).lstrip("/").partition("/")
        self.body = self.read_body()
        with self.server.lock:
            if fault := self.refusal():
                return self.error(*fault)
            special = [name for (method, word), name in self.KNOWN.items()
                       if method == self.command and word in self.query]  # fmt: skip
            kind = "object" if self.key else "bucket"
            getattr(self, special[0] if special else f"{self.command.lower()}_{kind}")()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def refusal(self) -> tuple[int, str] | None:
        asker = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        if asker is None or asker[1] != KEY:
            return 403, "InvalidAccessKeyId" if asker else "AccessDenied"
        if self.server.throttled > 0 or (self.key and self.key == self.server.refused):
            self.server.throttled -= self.server.throttled > 0
            return 503, "SlowDown"
        is_new = self.command == "PUT" and not self.key
        return None if is_new or self.bucket in self.server.buckets else (404, "NoSuchBucket")

    @property
    def objects(self) -> dict[str, tuple[bytes, str, float]]:
        return self.server.buckets[self.bucket]

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(read_chunks(self.rfile))
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        # the uploads of S3 have chunks of their own, with a checksum after the last
        is_framed = "x-amz-decoded-content-length" in self.headers
        return b"".join(read_chunks(io.BytesIO(body))) if is_framed else body

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self.answer(status, body.encode(), Content_Type="application/xml")

    def xml(self, name: str, content: str = "") -> None:
        text = f'<?xml version="1.0"?><{name}>{content}</{name}>'
        self.answer(200, text.encode(), Content_Type="application/xml")

    def put_bucket(self) -> None:
        self.server.buckets.setdefault(self.bucket, {})
        self.answer(200)

    def head_bucket(self) -> None:
        self.answer(200, x_amz_bucket_region="us-east-1")

    def get_bucket(self) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token", "")
        found: dict[str, str] = {}
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            head, stroke, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            entry = prefix + head + stroke if stroke else key
            if entry > after:
                found.setdefault(entry, self.entry(entry, is_folder=bool(stroke)))
        most = int(self.query.get("max-keys", 1000))
        names = list(found)[:most]
        more = len(found) > most
        token = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        listed = "".join(found[name] for name in names)
        self.xml("ListBucketResult", f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
                 f"<KeyCount>{len(names)}</KeyCount>{listed}")  # fmt: skip

    def entry(self, key: str, *, is_folder: bool) -> str:
        if is_folder:
            return f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
        data, _, changed = self.objects[key]
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(changed))
        return (f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
                f"<Size>{len(data)}</Size></Contents>")  # fmt: skip

    def get_object(self) -> None:
        if self.key not in self.objects:
            return self.error(404, "NoSuchKey")
        data, kind, changed = self.objects[self.key]
        headers = {"Content_Type": kind, "ETag": '"e"',
                   "Last_Modified": email.utils.formatdate(changed, usegmt=True)}  # fmt: skip
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
            headers["Content_Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            return self.answer(206, data[start:end], **headers)
        return self.answer(200, data, **headers)

    head_object = get_object

    def put_object(self) -> None:
        source = urllib.parse.unquote(self.headers.get("x-amz-copy-source", "")).lstrip("/")
        if source:
            bucket, _, key = source.partition("/")
            if key not in self.server.buckets.get(bucket, {}):
                return self.error(404, "NoSuchKey")
            self.body = self.server.buckets[bucket][key][0]
        self.keep(self.body)
        return self.xml("CopyObjectResult", "<ETag>e</ETag>") if source else self.answer(200, ETag='"e"')

    def keep(self, data: bytes) -> None:
        kind = self.headers.get("Content-Type", "binary/octet-stream")
        self.objects[self.key] = (data, kind, time.time())

    def delete_object(self) -> None:
        self.objects.pop(self.key, None)
        self.answer(204)

    def delete_objects(self) -> None:
        for key in re.findall("<Key>(.*?)</Key>", self.body.decode()):
            self.objects.pop(unescape(key, {"&quot;": '"', "&apos;": "'"}), None)
        self.xml("DeleteResult")

    def begin_upload(self) -> None:
        name = uuid.uuid4().hex
        self.server.uploads[name] = {}
        self.xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>")

    def put_part(self) -> None:
        self.server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = self.body
        self.answer(200, ETag='"e"')

    def complete_upload(self) -> None:
        parts = self.server.uploads.pop(self.query["uploadId"])
        self.keep(b"".join(parts[number] for number in sorted(parts)))
        self.xml("CompleteMultipartUploadResult", "<ETag>e</ETag>")

    def abort_upload(self) -> None:
        self.server.uploads.pop(self.query["uploadId"], None)
        self.answer(204)
