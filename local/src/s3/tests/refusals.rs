use std::net::SocketAddr;

use aws_sdk_s3::types::{ObjectCannedAcl, ServerSideEncryption, StorageClass};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BUCKET, Server, client, refused};

/// A GET as it is, unsigned; the whole answer.
pub(in crate::s3) async fn raw_get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_key_pair_gets_in() {
    let server = Server::start().await;
    server.put("k", "secret").await;
    let anonymous = raw_get(server.address, &format!("/{BUCKET}/k")).await;
    assert!(anonymous.starts_with("HTTP/1.1 403") && anonymous.contains("AccessDenied"), "{anonymous}");
    let wrong = client(server.address, "test", "wrong");
    assert_eq!(refused(wrong.list_buckets().send()).await, "403 SignatureDoesNotMatch");
    let unknown = client(server.address, "nobody", "testsecret");
    assert_eq!(refused(unknown.list_buckets().send()).await, "403 InvalidAccessKeyId");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_supported_is_refused_by_name() {
    let server = Server::start().await;
    let client = &server.client;
    let put = || client.put_object().bucket(BUCKET).key("k");
    let refusals = [
        refused(put().server_side_encryption(ServerSideEncryption::AwsKms).send()).await,
        refused(put().storage_class(StorageClass::Glacier).send()).await,
        refused(put().acl(ObjectCannedAcl::PublicRead).send()).await,
        refused(put().website_redirect_location("/x").send()).await,
        refused(client.get_bucket_policy().bucket(BUCKET).send()).await,
        refused(client.list_object_versions().bucket(BUCKET).delimiter("/").send()).await,
        refused(client.copy_object().bucket(BUCKET).key("k").copy_source(format!("{BUCKET}/k?versionId=v1")).send())
            .await,
    ];
    assert_eq!(refusals, ["501 NotImplemented"; 7]);
    let asked = client.list_object_versions().bucket(BUCKET).delimiter("/");
    let error = asked.send().await.unwrap_err().into_service_error();
    assert!(error.meta().message().unwrap().contains("ListObjectVersions"), "{error:?}");
    put().server_side_encryption(ServerSideEncryption::Aes256).acl(ObjectCannedAcl::BucketOwnerFullControl);
    assert_eq!(server.get("k").await, Err("404 NoSuchKey".into()));
}
