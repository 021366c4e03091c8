//! The operations there are. Everything else answers `NotImplemented` with the operation's name (the wire layer's
//! default).

use std::fmt::Display;

use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result};

use super::{Failure, Store, buckets, delete, get, listing, multipart, parts, put, tagging, versions};

#[derive(Clone, Debug)]
pub(super) struct Service {
    pub store: Store,
}

macro_rules! operations {
    ($($operation:ident: $input:ident -> $output:ident = $module:ident;)*) => {
        #[async_trait::async_trait]
        impl S3 for Service {
            $(async fn $operation(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let uri = request.uri.path().to_owned();
                $module::$operation(&self.store, request)
                    .await
                    .map_err(|failure| to_answer(stringify!($operation), &uri, failure))
            })*
        }
    };
}

operations! {
    create_bucket: CreateBucketInput -> CreateBucketOutput = buckets;
    head_bucket: HeadBucketInput -> HeadBucketOutput = buckets;
    get_bucket_location: GetBucketLocationInput -> GetBucketLocationOutput = buckets;
    get_bucket_versioning: GetBucketVersioningInput -> GetBucketVersioningOutput = versions;
    put_bucket_versioning: PutBucketVersioningInput -> PutBucketVersioningOutput = versions;
    list_object_versions: ListObjectVersionsInput -> ListObjectVersionsOutput = versions;
    list_buckets: ListBucketsInput -> ListBucketsOutput = buckets;
    delete_bucket: DeleteBucketInput -> DeleteBucketOutput = buckets;
    put_object: PutObjectInput -> PutObjectOutput = put;
    copy_object: CopyObjectInput -> CopyObjectOutput = put;
    get_object: GetObjectInput -> GetObjectOutput = get;
    head_object: HeadObjectInput -> HeadObjectOutput = get;
    delete_object: DeleteObjectInput -> DeleteObjectOutput = delete;
    delete_objects: DeleteObjectsInput -> DeleteObjectsOutput = delete;
    list_objects: ListObjectsInput -> ListObjectsOutput = listing;
    list_objects_v2: ListObjectsV2Input -> ListObjectsV2Output = listing;
    get_object_tagging: GetObjectTaggingInput -> GetObjectTaggingOutput = tagging;
    put_object_tagging: PutObjectTaggingInput -> PutObjectTaggingOutput = tagging;
    delete_object_tagging: DeleteObjectTaggingInput -> DeleteObjectTaggingOutput = tagging;
    create_multipart_upload: CreateMultipartUploadInput -> CreateMultipartUploadOutput = multipart;
    complete_multipart_upload: CompleteMultipartUploadInput -> CompleteMultipartUploadOutput = multipart;
    abort_multipart_upload: AbortMultipartUploadInput -> AbortMultipartUploadOutput = multipart;
    list_multipart_uploads: ListMultipartUploadsInput -> ListMultipartUploadsOutput = multipart;
    upload_part: UploadPartInput -> UploadPartOutput = parts;
    upload_part_copy: UploadPartCopyInput -> UploadPartCopyOutput = parts;
    list_parts: ListPartsInput -> ListPartsOutput = parts;
}

/// Refusals are the client's business; trouble of the machine is the operator's too.
fn to_answer(operation: &str, uri: &(impl Display + ?Sized), failure: Failure) -> S3Error {
    if !matches!(failure, Failure::Refused(_)) {
        tracing::error!(operation, %uri, %failure, "the local S3 could not answer");
    }
    failure.into()
}
