"""Ways around the guarded name that S3's many forms of requests offer: what the gateway does not take must not get through."""

import hashlib
import hmac
import re
import urllib.parse
import zlib
from base64 import b64encode

import boto3
import pyarrow as pa
import pytest
import requests
from botocore.config import Config

from conftest import LAKE, Clients
from delta import Delta
from guarded import Guarded, Raw

COMMIT = b'{"commitInfo":{"operation":"X"}}\n{"txn":{"appId":"a","version":1}}\n'
BROKEN = b'{"add":{"path":"nowhere.parquet","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}\n'
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture(scope="module")
def guarded(server):
    return Clients(Guarded(server))


@pytest.fixture(scope="module")
def raw(server):
    return Raw(server)


@pytest.fixture
def delta(guarded, unique):
    delta = Delta(guarded, unique)
    for number in range(2):
        delta.write(pa.table({"id": pa.array([number], pa.int64()), "dt": ["a"]}), mode="append" if number else "error")
    return delta


def log(delta, version):
    return f"{delta.prefix}/_delta_log/{version:020}.json"


def everything(clients, delta):
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=delta.prefix + "/")
    found = (entry for page in pages for entry in page.get("Contents", []))
    return {entry["Key"]: (entry["ETag"], entry["LastModified"]) for entry in found if "_staged_commits/" not in entry["Key"]}


@pytest.fixture
def unchanged(clients, delta):
    """The table is afterwards what it was before."""
    before = everything(clients, delta)
    yield
    assert everything(clients, delta) == before


def test_presigned_addresses_take_no_more_headers(guarded, delta, clients, unchanged):
    """Or whoever holds an address to put one object could copy another one there, or open it to everybody."""
    at = {"Bucket": LAKE, "Key": f"loose/{delta.prefix}"}
    endpoints = guarded.server.endpoints
    signer = boto3.client(
        "s3", endpoint_url=endpoints["s3"], region_name=endpoints["region"], config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        aws_access_key_id=endpoints["access_key"], aws_secret_access_key=endpoints["secret_key"],
    )
    address = signer.generate_presigned_url("put_object", Params=at)
    source = urllib.parse.quote(f"/{LAKE}/{log(delta, 0)}")
    for more in ({"x-amz-copy-source": source}, {"x-amz-acl": "public-read"}, {"x-amz-tagging": "a=b"}, {"x-amz-meta-a": "b"}):
        answer = requests.put(address, data=b"" if "x-amz-copy-source" in more else b"x", headers=more, timeout=60)
        assert answer.status_code == 403 and "not signed" in answer.text, (more, answer.text)
    assert clients.s3.list_objects_v2(Bucket=LAKE, Prefix=at["Key"])["KeyCount"] == 0
    assert requests.put(address, data=b"x", headers={"content-type": "text/x"}, timeout=60).status_code == 200
    meta = signer.generate_presigned_url("put_object", Params=at | {"Metadata": {"a": "b"}})
    assert requests.put(meta, data=b"x", headers={"x-amz-meta-a": "b"}, timeout=60).status_code == 200
    assert clients.s3.head_object(**at)["Metadata"] == {"a": "b"}
    clients.s3.delete_object(**at)


def test_headers_that_are_not_signed_are_not_acted_upon(delta, raw, clients, unchanged):
    path = f"/{LAKE}/loose/{delta.prefix}"
    for line in (f"x-amz-copy-source: /{LAKE}/{log(delta, 0)}", "x-amz-acl: public-read", "X-Amz-Rename-Source: /x"):
        status, answer = raw("PUT", path, b"", unsigned=[line])
        assert status == 403 and b"not signed" in answer, (line, answer)
    assert clients.s3.list_objects_v2(Bucket=LAKE, Prefix=path.removeprefix(f"/{LAKE}/"))["KeyCount"] == 0


def test_nothing_of_a_log_is_renamed(delta, raw, unchanged):
    path, source = f"/{LAKE}/loose/{delta.prefix}", log(delta, 0)
    encoded = source.replace("_", "%5F")
    for given in (source, "/" + source, f"/{LAKE}/{source}", f"{LAKE}/{source}", encoded, f"/{LAKE}/{encoded}", source.replace("/_delta", "//_delta")):
        for query in ("renameObject=", ""):
            assert raw("PUT", path, b"", {"x-amz-rename-source": given}, query=query)[0] == 403, given
        quoted = urllib.parse.quote(given, safe="")
        for name in ("x-amz-rename-source", "X-Amz-Rename-Source"):
            assert raw("PUT", path, b"", query=f"renameObject=&{name}={quoted}")[0] == 403, (name, given)
    # Onto one.
    for version in (0, 2):
        assert raw("PUT", f"/{LAKE}/{log(delta, version)}", b"", {"x-amz-rename-source": "/x"}, query="renameObject=")[0] == 403
    # The second of two.
    head, _ = raw.head("PUT", path, 0, {"x-amz-rename-source": "/x,/" + source}, "renameObject=", EMPTY)
    head = head.replace("x-amz-rename-source: /x,/", "x-amz-rename-source: /x\r\nx-amz-rename-source: /")
    assert b" 403 " in raw.send((head + "connection: close\r\n\r\n").encode())[:20]


def test_posts_that_are_none_delete_and_write_nothing(delta, raw, unchanged):
    key = log(delta, 0)
    batch = f"<Delete><Object><Key>{key}</Key></Object></Delete>".encode()
    for path in (f"/{LAKE}//", f"/{LAKE}/%2F", f"/{LAKE}/{key}", f"/{LAKE}/{delta.prefix}/", f"/{LAKE}/x"):
        for query in ("delete=", "delete", "delete=&uploads=", "%64elete=", "x=1&delete="):
            status, answer = raw("POST", path, batch, query=query)
            assert status in (403, 405), (path, query, answer)
    for path in (f"/{LAKE}", f"/{LAKE}/"):
        for query in ("delete=", "delete=&x=1", "x=1&delete=1", "delete=&delete="):
            status, answer = raw("POST", path, batch, query=query)
            assert b"<Deleted>" not in answer and status in (200, 400, 403, 501), (query, answer)
    border = b"--b\r\ncontent-disposition: form-data; name=\"key\"\r\n\r\n" + log(delta, 2).encode() + b"\r\n"
    border += b"--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n" + BROKEN + b"\r\n--b--\r\n"
    form = "multipart/form-data; boundary=b"
    for kinds in (["content-type: text/plain", f"content-type: {form}"], [f"Content-Type:  {form.upper()}"], [f"content-type: {form}"], []):
        for query in ("", "x-id=PostObject"):
            assert raw("POST", f"/{LAKE}", border, query=query, unsigned=kinds)[0] == 501, kinds


def test_everything_that_belongs_to_a_log_file_stays(delta, raw, clients, guarded, unchanged):
    there, absent = f"/{LAKE}/{log(delta, 0)}", f"/{LAKE}/{log(delta, 2)}"
    for path in (there, absent):
        for query in ("tagging=", "acl=", "retention=", "legal-hold=", "torrent=", "versionId=null", "encryption=", "partNumber=1", "x-id=PutObject&x=1",
                      "x-id=CopyObject", "response-content-type=a", "attributes=", "append=&position=0"):
            assert raw("PUT", path, BROKEN, query=query)[0] == 403, query
        for query in ("tagging=", "acl=", "versionId=null", "versionId=", "x=1", "partNumber=1&uploadId=x", "x-id=DeleteObject&versionId=x"):
            assert raw("DELETE", path, query=query)[0] == 403, query
        for query in ("restore=", "uploads=", "uploadId=x", "append=", "select=&x=1", "x=1", ""):
            assert raw("POST", path, b"<a/>", query=query)[0] in (403, 404), query
        for method in ("PATCH", "MOVE", "COPY", "LINK", "PROPPATCH"):
            assert raw(method, path, BROKEN)[0] in (400, 403, 405, 501), method
        for offset in ("0", "1", ""):
            assert raw("PUT", path, BROKEN, {"x-amz-write-offset-bytes": offset})[0] == 403
        for source in (f"/{LAKE}/x", f"{LAKE}/x", f"/{LAKE}/{log(delta, 1)}?versionId=null", "arn:aws:s3:eu-west-1:1:accesspoint/a/object/x", ""):
            assert raw("PUT", path, BROKEN, {"x-amz-copy-source": source})[0] == 403
            assert raw("PUT", path, b"", {"x-amz-copy-source": source}, query="partNumber=1&uploadId=x")[0] == 403
    # Conditions that are none.
    for value in ('"*"', "", "* ", '"x", *'):
        assert raw("PUT", absent, BROKEN, {"if-none-match": value})[0] in (403, 501), value
    # Reading is free.
    for query in ("", "tagging=", "attributes=", "acl=", "uploadId=x", "partNumber=1", "versionId=null"):
        plain = requests.get(clients.s3.generate_presigned_url("get_object", Params={"Bucket": LAKE, "Key": log(delta, 0)}), timeout=60)
        assert raw("GET", there, query=query, headers={"x-amz-object-attributes": "ETag"})[0] != 403 and plain.status_code == 200, query
    assert raw("GET", f"/{LAKE}", query="versions=&prefix=x")[0] in (200, 501)


def test_uploads_of_log_names_are_not_finished_under_another_name(delta, raw, clients, guarded, unchanged):
    key, other = log(delta, 2), f"loose/{delta.prefix}"
    upload = clients.s3.create_multipart_upload(Bucket=LAKE, Key=key)["UploadId"]
    part = clients.s3.upload_part(Bucket=LAKE, Key=key, UploadId=upload, PartNumber=1, Body=BROKEN)["ETag"]
    done = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>".encode()
    for path in (other, f"{delta.prefix}/_delta_log/", f"{delta.prefix}/x/../_delta_log/{2:020}.json", key + "/", key, ""):
        for query in (f"uploadId={upload}", f"uploadId={upload}&uploadId=x", f"uploadId={upload}&x=1"):
            status, answer = raw("POST", f"/{LAKE}/{path}", done, query=query)
            assert b"CompleteMultipartUploadResult" not in answer and status >= 400, (path, answer)
    guarded.s3.abort_multipart_upload(Bucket=LAKE, Key=key, UploadId=upload)


def chunked(raw, path, body, forge=False, said=None, kind="STREAMING-AWS4-HMAC-SHA256-PAYLOAD", trailer=b""):
    headers = {"x-amz-decoded-content-length": str(len(body) if said is None else said), "content-encoding": "aws-chunked"}
    if trailer:
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    head, (key, stamp, scope, previous) = raw.head("PUT", path, None, headers, "", kind)
    data = b""
    for chunk in (body, b""):
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, previous, EMPTY, hashlib.sha256(chunk).hexdigest()])
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        signature = "0" * 64 if forge else previous
        line = f"{len(chunk):x}\r\n" if "UNSIGNED" in kind else f"{len(chunk):x};chunk-signature={signature}\r\n"
        data += line.encode() + chunk + (b"\r\n" if chunk else b"")
    data += trailer + b"\r\n"
    return raw.send((head + f"content-length: {len(data)}\r\nconnection: close\r\n\r\n").encode() + data)


def test_chunks_are_what_they_say(delta, raw, unchanged):
    for path in (f"/{LAKE}/{log(delta, 2)}", f"/{LAKE}/loose/{delta.prefix}"):
        for body in (COMMIT, b"x" * 300_000):
            answer = chunked(raw, path, body, forge=True)
            assert b" 403 " in answer[:20] and b"SignatureDoesNotMatch" in answer, answer
        for said in (-1, 1):
            answer = chunked(raw, path, COMMIT, said=len(COMMIT) + said)
            assert answer[9:12] == b"400", (said, answer)
        for kind in ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-EVENTS", "streaming-aws4-hmac-sha256-payload", "STREAMING-X"):
            answer = chunked(raw, path, COMMIT, kind=kind)
            assert answer[9:12] in (b"400", b"403", b"501"), (kind, answer)
        answer = chunked(raw, path, COMMIT, kind="STREAMING-UNSIGNED-PAYLOAD-TRAILER", trailer=b"x-amz-checksum-crc32:AAAAAA==\r\n")
        assert answer[9:12] == b"400", answer
    crc = b64encode(zlib.crc32(BROKEN).to_bytes(4, "big"))
    path = f"/{LAKE}/{log(delta, 2)}"
    for answer in (chunked(raw, path, BROKEN), chunked(raw, path, BROKEN, kind="STREAMING-UNSIGNED-PAYLOAD-TRAILER", trailer=b"x-amz-checksum-crc32:" + crc + b"\r\n")):
        assert b" 403 " in answer[:20] and b"FILE_MISSING" in answer, answer


def test_requests_that_hide_in_others(delta, raw, clients, unchanged):
    """What one side takes for a body and the other one for the next request."""
    hidden, _ = raw.head("DELETE", f"/{LAKE}/{log(delta, 0)}", 0, (), "", EMPTY)
    hidden = (hidden + "\r\n").encode()
    path = f"/{LAKE}/loose/{delta.prefix}"
    chunk = f"{len(hidden):x}\r\n".encode() + hidden + b"\r\n0\r\n\r\n"
    digest = hashlib.sha256(hidden).hexdigest()
    for method in ("PUT", "GET", "HEAD", "OPTIONS", "DELETE"):
        for lines in (
            ["transfer-encoding: chunked", "content-length: 4"],
            ["content-length: 4", "transfer-encoding: chunked"],
            ["transfer-encoding: chunked"],
            ["transfer-encoding: identity, chunked"],
            ["transfer-encoding: x-chunked", "content-length: 0"],
            ["Transfer-Encoding : chunked"],
            ["content-length: 0", f"content-length: {len(chunk)}"],
            ["connection: content-length", f"content-length: {len(chunk)}"],
            [f"content-length: +{len(chunk)}"],
        ):
            head, _ = raw.head(method, path, None, (), "", "UNSIGNED-PAYLOAD" if "chunked" not in lines[0] else digest, lines)
            try:
                raw.send((head + "connection: close\r\n\r\n").encode() + chunk)
            except OSError:
                pass
    # Sent at once over one connection they are answered one by one.
    one, _ = raw.head("PUT", path, 3, (), "", hashlib.sha256(b"abc").hexdigest())
    two, _ = raw.head("DELETE", f"/{LAKE}/{log(delta, 0)}", 0, (), "", EMPTY)
    three, _ = raw.head("GET", path, 4, (), "", "UNSIGNED-PAYLOAD")
    four, _ = raw.head("GET", path, None, (), "", EMPTY)
    data = (one + "\r\n").encode() + b"abc" + (two + "\r\n").encode() + (three + "\r\n").encode() + b"body" + (four + "connection: close\r\n\r\n").encode()
    answer = raw.send(data)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"403", b"200", b"200"], answer
    clients.s3.delete_object(Bucket=LAKE, Key=path.removeprefix(f"/{LAKE}/"))


def test_other_names_of_buckets_are_none(delta, raw, unchanged):
    for bucket in ("lake-0a1b2c-s3alias", "lake--ol-s3", "arn:aws:s3:eu-west-1:111122223333:accesspoint", "LAKE.mrap"):
        status, answer = raw("PUT", f"/{bucket}/{log(delta, 2)}", COMMIT)
        assert status in (400, 403) and b"FILE" not in answer, (bucket, answer)
        assert raw("DELETE", f"/{bucket}/{log(delta, 0)}")[0] in (400, 403), bucket
