"""The guarded S3 with clients that read and write anything: what passes through is what comes out of the plain one."""

import concurrent.futures
import hashlib
import os

import boto3
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pytest
import requests
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from conftest import LAKE, Clients
from guarded import Guarded, both, steady

KEYS = ["plain", "a b", "ü/ö", "a+b", "a%2Fb", "a//b", "./c", "d/../e", "f&g=h?i#j", "_x/~tilde'()*!", "end/"]


@pytest.fixture(scope="module")
def ways(server):
    return both(server)


def compared(ways, unique, deed):
    """What a deed answers by both ways; they must be the same. It may answer what names its own prefix."""
    answers = {}
    for way, clients in ways.items():
        # Of one length, since answers that name it say their own.
        prefix = f"through/{unique}/{way[0]}/"
        answers[way] = repr(steady(deed(clients, prefix))).replace(prefix, "PREFIX/").replace(clients.server.endpoints["s3"], "S3")
    assert answers["guarded"] == answers["plain"]
    return answers["plain"]


def told(call, **arguments):
    """An answer, or the error that came instead."""
    try:
        return call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]


def test_objects_with_all_that_belongs_to_them(ways, unique):
    def deed(clients, prefix):
        s3, seen = clients.s3, []
        at = {"Bucket": LAKE, "Key": prefix + "one"}
        seen.append(s3.put_object(
            **at, Body=b"0123456789", ContentType="text/x", CacheControl="no-store", ContentDisposition="inline",
            ContentLanguage="de", ContentEncoding="gzip", Metadata={"a": "b", "long-name": "two  words"}, Tagging="x=1&y=2",
        ))
        seen += [s3.head_object(**at), s3.get_object(**at), s3.get_object_tagging(**at)]
        for given in ("bytes=2-4", "bytes=-3", "bytes=8-", "bytes=20-30"):
            seen.append(told(s3.get_object, **at, Range=given))
        etag = seen[0]["ETag"]
        for condition in ({"IfMatch": etag}, {"IfMatch": '"x"'}, {"IfNoneMatch": etag}, {"IfNoneMatch": '"x"'}):
            seen.append(told(s3.get_object, **at, **condition))
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"x"'}, {"IfMatch": etag}):
            seen.append(told(s3.put_object, **at, Body=b"new", **condition))
        seen.append(s3.get_object(**at))
        seen.append(told(s3.get_object, Bucket=LAKE, Key=prefix + "missing"))
        seen.append(told(s3.head_object, Bucket=LAKE, Key=prefix + "missing"))
        seen.append(told(s3.get_object, Bucket="no-such-bucket", Key="x"))
        seen.append(told(s3.put_object, **at, Body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA=="))
        seen.append(s3.put_object_tagging(**at, Tagging={"TagSet": [{"Key": "z", "Value": "ü"}]}))
        seen += [s3.get_object_tagging(**at), s3.delete_object(**at), told(s3.head_object, **at)]
        return seen

    compared(ways, unique, deed)


def test_names_of_every_kind(ways, unique):
    def deed(clients, prefix):
        s3, seen = clients.s3, []
        for key in KEYS:
            s3.put_object(Bucket=LAKE, Key=prefix + key, Body=key.encode())
            seen.append(s3.get_object(Bucket=LAKE, Key=prefix + key)["Body"].read())
        seen.append([entry["Key"] for entry in s3.list_objects_v2(Bucket=LAKE, Prefix=prefix)["Contents"]])
        seen.append(s3.list_objects_v2(Bucket=LAKE, Prefix=prefix, Delimiter="/"))
        seen.append(s3.list_objects(Bucket=LAKE, Prefix=prefix + "a", MaxKeys=2))
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=prefix, PaginationConfig={"PageSize": 3})
        seen.append([[entry["Key"] for entry in page["Contents"]] for page in pages])
        doomed = [{"Key": prefix + key} for key in [*KEYS, "never there"]]
        answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": doomed})
        seen.append(sorted(entry["Key"] for entry in answer["Deleted"]))
        seen.append(s3.list_objects_v2(Bucket=LAKE, Prefix=prefix)["KeyCount"])
        seen.append(s3.head_bucket(Bucket=LAKE))
        return seen

    compared(ways, unique, deed)


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"])
def test_checksums(ways, unique, algorithm):
    def deed(clients, prefix):
        at = {"Bucket": LAKE, "Key": prefix + "sum"}
        try:
            seen = [clients.s3.put_object(**at, Body=b"123456789" * 1000, ChecksumAlgorithm=algorithm)]
        except Exception as missing:  # an algorithm that needs a library that is not installed
            return type(missing).__name__
        seen += [clients.s3.get_object(**at, ChecksumMode="ENABLED"), clients.s3.head_object(**at, ChecksumMode="ENABLED")]
        return seen

    compared(ways, unique, deed)


def test_uploads_in_parts(ways, unique):
    part = os.urandom(5 * 1024 * 1024)

    def deed(clients, prefix):
        s3, seen = clients.s3, []
        at = {"Bucket": LAKE, "Key": prefix + "parts"}
        upload = s3.create_multipart_upload(**at, Metadata={"a": "b"}, ChecksumAlgorithm="CRC32")["UploadId"]
        parts = []
        for number, body in ((1, part), (2, b"the end")):
            answer = s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
            parts.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": answer["ChecksumCRC32"]})
        seen.append(s3.list_parts(**at, UploadId=upload)["Parts"])
        done = s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
        seen += [done["ETag"], s3.head_object(**at)]
        copy = s3.copy_object(Bucket=LAKE, Key=prefix + "copy", CopySource=at)
        seen += [copy["CopyObjectResult"]["ETag"], s3.head_object(Bucket=LAKE, Key=prefix + "copy")]
        gone = s3.create_multipart_upload(**at)["UploadId"]
        s3.abort_multipart_upload(**at, UploadId=gone)
        seen.append(told(s3.upload_part, **at, UploadId=gone, PartNumber=1, Body=b"x"))
        return seen

    compared(ways, unique, deed)


def test_large_files_in_threads(ways, unique, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(os.urandom(21_000_000))

    def deed(clients, prefix):
        transfer = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=4)
        clients.s3.upload_file(str(path), LAKE, prefix + "large", Config=transfer)
        clients.s3.download_file(LAKE, prefix + "large", str(tmp_path / "back"), Config=transfer)
        return hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest(), clients.s3.head_object(Bucket=LAKE, Key=prefix + "large")

    assert hashlib.sha256(path.read_bytes()).hexdigest() in compared(ways, unique, deed)


def test_presigned_addresses(ways, unique):
    def deed(clients, prefix):
        at = {"Bucket": LAKE, "Key": prefix + "signed ü"}
        put = clients.s3.generate_presigned_url("put_object", Params=at)
        seen = [requests.put(put, data=b"by an address", timeout=60).status_code]
        get = clients.s3.generate_presigned_url("get_object", Params=at | {"ResponseContentType": "text/y"})
        answer = requests.get(get, timeout=60)
        seen += [answer.content, answer.headers["Content-Type"], answer.headers["ETag"]]
        seen.append(requests.get(get.replace("signed", "other"), timeout=60).status_code)
        return seen

    compared(ways, unique, deed)


def test_the_aws_cli(ways, unique, tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b c.txt"):
        (folder / name).write_text(name)
    (folder / "large").write_bytes(os.urandom(9_000_000))

    def deed(clients, prefix):
        to = f"s3://{LAKE}/{prefix}"
        back = tmp_path / ("back-" + prefix.split("/")[-2])
        done = [clients.cli(*line, check=False) for line in (
            ("s3", "sync", str(folder), to),
            ("s3", "sync", str(folder), to),
            ("s3", "cp", to + "a.txt", to + "copy.txt"),
            ("s3", "mv", to + "copy.txt", to + "moved.txt"),
            ("s3", "cp", "--recursive", to, str(back)),
            ("s3", "rm", "--recursive", to + "deep/"),
        )]
        assert [one.returncode for one in done] == [0] * len(done), [one.stderr for one in done]
        listed = clients.cli("s3api", "list-objects-v2", "--bucket", LAKE, "--prefix", prefix)
        got = {str(path.relative_to(back)): path.read_bytes() for path in sorted(back.rglob("*")) if path.is_file()}
        missing = clients.cli("s3api", "get-object", "--bucket", LAKE, "--key", prefix + "no", "/dev/null", check=False)
        found = [(entry["Key"], entry["Size"], entry["ETag"]) for entry in listed["Contents"]]
        return done[1].stdout, found, got, missing.stderr

    compared(ways, unique, deed)


def test_pyarrow_s_file_system(ways, unique):
    def deed(clients, prefix):
        endpoints = clients.server.endpoints
        fs = pyarrow.fs.S3FileSystem(
            access_key=endpoints["access_key"], secret_key=endpoints["secret_key"], region=endpoints["region"],
            endpoint_override=endpoints["s3"].removeprefix("http://"), scheme="http", connect_timeout=60, request_timeout=60,
        )
        root = f"{LAKE}/{prefix}data"
        rows = pa.table({"id": list(range(1000)), "day": [str(number % 3) for number in range(1000)]})
        pyarrow.dataset.write_dataset(rows, root, filesystem=fs, format="parquet", partitioning=["day"], partitioning_flavor="hive")
        read = pyarrow.dataset.dataset(root, filesystem=fs, partitioning="hive").to_table().sort_by("id")
        with fs.open_output_stream(f"{LAKE}/{prefix}large") as out:
            for _ in range(12):
                out.write(b"x" * 1_000_000)
        with fs.open_input_file(f"{LAKE}/{prefix}large") as large:
            large.seek(11_999_990)
            tail = large.read()
        fs.copy_file(f"{LAKE}/{prefix}large", f"{LAKE}/{prefix}copy")
        fs.move(f"{LAKE}/{prefix}copy", f"{LAKE}/{prefix}moved")
        found = fs.get_file_info(pyarrow.fs.FileSelector(f"{LAKE}/{prefix}", recursive=True))
        names = sorted((one.path, str(one.type), one.size) for one in found)
        fs.delete_dir(root)
        left = [one.path for one in fs.get_file_info(pyarrow.fs.FileSelector(f"{LAKE}/{prefix}"))]
        return read["id"].to_pylist() == list(range(1000)), sorted(set(read["day"].to_pylist())), tail, names, sorted(left)

    compared(ways, unique, deed)


def test_only_the_right_key_pair_is_taken(server):
    def s3(access_key, secret_key):
        config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
        return boto3.client(
            "s3", endpoint_url=server.endpoints["guarded_s3"], region_name="us-east-1", config=config,
            aws_access_key_id=access_key, aws_secret_access_key=secret_key,
        )

    good = server.endpoints["access_key"], server.endpoints["secret_key"]
    assert s3(*good).list_objects_v2(Bucket=LAKE, MaxKeys=1)
    for keys, code in (((good[0], "wrong"), "SignatureDoesNotMatch"), (("NOBODY", good[1]), "InvalidAccessKeyId")):
        with pytest.raises(ClientError) as refused:
            s3(*keys).list_objects_v2(Bucket=LAKE, MaxKeys=1)
        assert refused.value.response["Error"]["Code"] == code
    assert requests.get(f"{server.endpoints['guarded_s3']}/{LAKE}?list-type=2", timeout=60).status_code == 403


def test_many_at_once(server, unique):
    clients = Clients(Guarded(server))
    body = os.urandom(300_000)

    def work(number):
        key = f"many/{unique}/{number}"
        clients.s3.put_object(Bucket=LAKE, Key=key, Body=body)
        return clients.s3.get_object(Bucket=LAKE, Key=key)["Body"].read() == body

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(100)))
