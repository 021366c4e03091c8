//! Every limit that more than one module relies on, in one place. Units are in the names.

/// DynamoDB: one item, names and values together.
pub const ITEM_MAX_BYTES: usize = 400 * 1024;
/// DynamoDB: one page of a query.
pub const QUERY_PAGE_MAX_BYTES: usize = 1024 * 1024;
/// DynamoDB: keys of one batch get.
pub const BATCH_GET_MAX_KEYS: usize = 100;
/// DynamoDB: one answer of a batch get.
pub const BATCH_GET_MAX_BYTES: usize = 16 * 1024 * 1024;
/// DynamoDB: requests of one batch write.
pub const BATCH_WRITE_MAX_KEYS: usize = 25;
/// DynamoDB: actions of one transaction.
pub const TRANSACTION_MAX_ACTIONS: usize = 100;
/// DynamoDB: one transaction, items together.
pub const TRANSACTION_MAX_BYTES: usize = 4 * 1024 * 1024;
/// DynamoDB: a hash key.
pub const HASH_KEY_MAX_BYTES: usize = 2048;
/// DynamoDB: a binary or text sort key.
pub const SORT_KEY_MAX_BYTES: usize = 1024;
/// S3: keys of one page of a listing.
pub const LIST_PAGE_MAX_KEYS: usize = 1000;
/// S3: keys of one batch delete.
pub const DELETE_BATCH_MAX_KEYS: usize = 1000;
/// S3: a key, in UTF-8.
pub const OBJECT_KEY_MAX_BYTES: usize = 1024;
/// SQS: one message.
pub const MESSAGE_MAX_BYTES: usize = 256 * 1024;
/// SQS: the longest delay of a message.
pub const MESSAGE_MAX_DELAY_MS: u64 = 15 * 60 * 1000;
/// Lambda: request or answer of a synchronous invocation is 6 MB; ours stay below what base64 makes of it.
pub const ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;
/// API Gateway: integration time.
pub const GATEWAY_TIMEOUT_MS: u64 = 30_000;
/// API Gateway and Lambda: the whole event, body in base64.
pub const GATEWAY_PAYLOAD_MAX_BYTES: usize = 6 * 1024 * 1024;
