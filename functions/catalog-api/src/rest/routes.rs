//! Everything that is served on `/v1`. To serve another operation: add a line, and run the test that writes
//! `docs/openapi.yaml` (`openapi.rs` says how).
//!
//! Where a partition's values are part of an address they are query parameters, `?value=2026&value=eu%2Fwest`, one for
//! each key and in the keys' order: any text has a spelling there that survives every proxy, while API Gateway decodes
//! paths before a function sees them, and clients fold `//`, `.` and `..`.

use super::call::EXPLAIN;
use super::route::{Handler, Query, Revisioned, Route, create, delete, get, post, put};
use super::{RestRequest, dropped, leases, specs, sweeps};

const DATABASE: &[(&str, &str)] = &[("database", "Name")];
const IN_DATABASE: &[(&str, &str)] = &[("database", "DatabaseName")];
const TABLE: &[(&str, &str)] = &[("database", "DatabaseName"), ("table", "Name")];
const IN_TABLE: &[(&str, &str)] = &[("database", "DatabaseName"), ("table", "TableName")];
const VERSION: &[(&str, &str)] = &[("database", "DatabaseName"), ("table", "TableName"), ("version", "VersionId")];
const INDEX: &[(&str, &str)] = &[("database", "DatabaseName"), ("table", "TableName"), ("index", "IndexName")];
const OPTIMIZER: &[(&str, &str)] = &[("database", "DatabaseName"), ("table", "TableName"), ("type", "Type")];
const FUNCTION: &[(&str, &str)] = &[("database", "DatabaseName"), ("function", "FunctionName")];

const MAX_RESULTS: Query = Query::number("max_results", "MaxResults");
const NEXT_TOKEN: Query = Query::text("next_token", "NextToken");
const EXPRESSION: Query = Query::text("expression", "Expression");
const ATTRIBUTES: Query = Query::texts("attribute", "AttributesToGet");
const SHARED: Query = Query::text("resource_share_type", "ResourceShareType");
const TRANSACTION: Query = Query::text("transaction_id", "TransactionId");
const AS_OF: Query = Query::seconds("query_as_of_time", "QueryAsOfTime");
const STATUS_DETAILS: Query = Query::flag("include_status_details", "IncludeStatusDetails");
const VALUES: Query = Query::texts("value", "PartitionValues");
const COLUMNS: Query = Query::texts("column", "ColumnNames");
const COLUMN: Query = Query::text("column", "ColumnName");
const PATTERN: Query = Query::text("pattern", "Pattern");
const FUNCTION_TYPE: Query = Query::text("function_type", "FunctionType");
const ARN: Query = Query::text("arn", "ResourceArn");

const PAGE: &[Query] = &[MAX_RESULTS, NEXT_TOKEN];
const PARTITIONS: &[Query] = &[
    EXPRESSION,
    MAX_RESULTS,
    NEXT_TOKEN,
    Query::flag("exclude_column_schema", "ExcludeColumnSchema"),
    Query::number("segment_number", "Segment.SegmentNumber"),
    Query::number("total_segments", "Segment.TotalSegments"),
    TRANSACTION,
    AS_OF,
    Query::flag("explain", EXPLAIN),
];
/// The same without its last: specs are made of pages and say nothing of how those were found.
const SPECS: &[Query] = PARTITIONS.split_at(PARTITIONS.len() - 1).0;
const FUNCTIONS: &[Query] = &[PATTERN, FUNCTION_TYPE, MAX_RESULTS, NEXT_TOKEN];

/// `own!(handler)` with `async fn handler(&App, RestRequest, Map<String, Value>) -> Result<RestAnswer, RestError>`.
macro_rules! own {
    ($handler:path) => {{
        fn boxed(
            app: &lakewarden_core::ports::App,
            request: RestRequest,
            input: serde_json::Map<String, serde_json::Value>,
        ) -> super::route::Answering<'_> {
            Box::pin($handler(app, request, input))
        }
        const HANDLER: Handler = boxed;
        HANDLER
    }};
}

/// The one table of routes.
pub static ROUTES: &[Route] = &[
    // Databases
    get("/v1/databases", "GetDatabases").query(&[MAX_RESULTS, NEXT_TOKEN, SHARED, ATTRIBUTES]),
    create("/v1/databases", "CreateDatabase"),
    get("/v1/databases/{database}", "GetDatabase").members(DATABASE),
    put("/v1/databases/{database}", "UpdateDatabase").members(DATABASE),
    delete("/v1/databases/{database}", "DeleteDatabase").members(DATABASE),
    // Tables
    get("/v1/databases/{database}/tables", "GetTables").members(IN_DATABASE).query(&[
        EXPRESSION,
        MAX_RESULTS,
        NEXT_TOKEN,
        ATTRIBUTES,
        TRANSACTION,
        AS_OF,
        SHARED,
        STATUS_DETAILS,
    ]),
    create("/v1/databases/{database}/tables", "CreateTable").members(IN_DATABASE),
    get("/v1/databases/{database}/tables/{table}", "GetTable")
        .members(TABLE)
        .query(&[ATTRIBUTES, TRANSACTION, AS_OF, STATUS_DETAILS])
        .revisioned(Revisioned::Table),
    put("/v1/databases/{database}/tables/{table}", "UpdateTable").members(TABLE).revisioned(Revisioned::Table),
    delete("/v1/databases/{database}/tables/{table}", "DeleteTable").members(TABLE).query(&[TRANSACTION]),
    post("/v1/databases/{database}/batch-delete-tables", "BatchDeleteTable").members(IN_DATABASE),
    post("/v1/search-tables", "SearchTables"),
    // Versions of tables
    get("/v1/databases/{database}/tables/{table}/versions", "GetTableVersions").members(IN_TABLE).query(PAGE),
    get("/v1/databases/{database}/tables/{table}/versions/{version}", "GetTableVersion").members(VERSION),
    delete("/v1/databases/{database}/tables/{table}/versions/{version}", "DeleteTableVersion").members(VERSION),
    post("/v1/databases/{database}/tables/{table}/batch-delete-versions", "BatchDeleteTableVersion").members(IN_TABLE),
    // Column statistics of tables
    get("/v1/databases/{database}/tables/{table}/statistics", "GetColumnStatisticsForTable")
        .members(IN_TABLE)
        .query(&[COLUMNS]),
    put("/v1/databases/{database}/tables/{table}/statistics", "UpdateColumnStatisticsForTable").members(IN_TABLE),
    delete("/v1/databases/{database}/tables/{table}/statistics", "DeleteColumnStatisticsForTable")
        .members(IN_TABLE)
        .query(&[COLUMN]),
    // Partition indexes
    get("/v1/databases/{database}/tables/{table}/indexes", "GetPartitionIndexes")
        .members(IN_TABLE)
        .query(&[NEXT_TOKEN]),
    create("/v1/databases/{database}/tables/{table}/indexes", "CreatePartitionIndex").members(IN_TABLE),
    delete("/v1/databases/{database}/tables/{table}/indexes/{index}", "DeletePartitionIndex").members(INDEX),
    // Partitions
    get("/v1/databases/{database}/tables/{table}/partitions", "GetPartitions").members(IN_TABLE).query(PARTITIONS),
    create("/v1/databases/{database}/tables/{table}/partitions", "CreatePartition").members(IN_TABLE),
    get("/v1/databases/{database}/tables/{table}/partition", "GetPartition")
        .members(IN_TABLE)
        .query(&[VALUES])
        .revisioned(Revisioned::Partition),
    put("/v1/databases/{database}/tables/{table}/partition", "UpdatePartition")
        .members(IN_TABLE)
        .query(&[Query::texts("value", "PartitionValueList")])
        .revisioned(Revisioned::Partition),
    delete("/v1/databases/{database}/tables/{table}/partition", "DeletePartition")
        .members(IN_TABLE)
        .query(&[VALUES])
        .revisioned(Revisioned::Partition),
    post("/v1/databases/{database}/tables/{table}/batch-create-partitions", "BatchCreatePartition").members(IN_TABLE),
    post("/v1/databases/{database}/tables/{table}/batch-get-partitions", "BatchGetPartition").members(IN_TABLE),
    post("/v1/databases/{database}/tables/{table}/batch-update-partitions", "BatchUpdatePartition")
        .members(IN_TABLE)
        .revisioned(Revisioned::Entries("Entries")),
    post("/v1/databases/{database}/tables/{table}/batch-delete-partitions", "BatchDeletePartition")
        .members(IN_TABLE)
        .revisioned(Revisioned::Entries("PartitionsToDelete")),
    get("/v1/databases/{database}/tables/{table}/partition-specs", "GetPartitionSpecs")
        .members(IN_TABLE)
        .query(SPECS)
        .own(own!(specs::list)),
    // Column statistics of partitions
    get("/v1/databases/{database}/tables/{table}/partition/statistics", "GetColumnStatisticsForPartition")
        .members(IN_TABLE)
        .query(&[VALUES, COLUMNS]),
    put("/v1/databases/{database}/tables/{table}/partition/statistics", "UpdateColumnStatisticsForPartition")
        .members(IN_TABLE)
        .query(&[VALUES]),
    delete("/v1/databases/{database}/tables/{table}/partition/statistics", "DeleteColumnStatisticsForPartition")
        .members(IN_TABLE)
        .query(&[VALUES, COLUMN]),
    // Table optimizers and sweeps
    create("/v1/databases/{database}/tables/{table}/optimizers", "CreateTableOptimizer").members(IN_TABLE),
    get("/v1/databases/{database}/tables/{table}/optimizers/{type}", "GetTableOptimizer").members(OPTIMIZER),
    put("/v1/databases/{database}/tables/{table}/optimizers/{type}", "UpdateTableOptimizer").members(OPTIMIZER),
    delete("/v1/databases/{database}/tables/{table}/optimizers/{type}", "DeleteTableOptimizer").members(OPTIMIZER),
    get("/v1/databases/{database}/tables/{table}/optimizers/{type}/runs", "ListTableOptimizerRuns")
        .members(OPTIMIZER)
        .query(PAGE),
    post("/v1/batch-get-optimizers", "BatchGetTableOptimizer"),
    post("/v1/databases/{database}/tables/{table}/sweeps", "StartSweep").status(202).own(own!(sweeps::start)),
    get("/v1/databases/{database}/tables/{table}/sweeps", "ListSweeps").query(&[NEXT_TOKEN]).own(own!(sweeps::list)),
    get("/v1/databases/{database}/tables/{table}/sweeps/{run}", "GetSweep").own(own!(sweeps::get)),
    delete("/v1/databases/{database}/tables/{table}/sweeps/{run}", "CancelSweep").status(202).own(own!(sweeps::cancel)),
    get("/v1/databases/{database}/tables/{table}/sweeps/{run}/report", "GetSweepReport")
        .query(&[NEXT_TOKEN])
        .own(own!(sweeps::report)),
    post("/v1/databases/{database}/tables/{table}/restore-sweep", "RestoreSweep")
        .status(202)
        .own(own!(sweeps::restore)),
    post("/v1/databases/{database}/tables/{table}/explain-sweep", "ExplainSweep").own(own!(sweeps::explain)),
    // Tables that were dropped, and the files that they left
    get("/v1/dropped-tables", "ListDroppedTables").query(&[NEXT_TOKEN]).own(own!(dropped::list)),
    delete("/v1/dropped-tables/{dropped_table}", "ForgetDroppedTable").own(own!(dropped::forget)),
    post("/v1/dropped-tables/{dropped_table}/sweeps", "StartDroppedTableSweep").status(202).own(own!(dropped::start)),
    get("/v1/dropped-tables/{dropped_table}/sweeps/{run}", "GetDroppedTableSweep").own(own!(dropped::get)),
    delete("/v1/dropped-tables/{dropped_table}/sweeps/{run}", "CancelDroppedTableSweep")
        .status(202)
        .own(own!(dropped::cancel)),
    get("/v1/dropped-tables/{dropped_table}/sweeps/{run}/report", "GetDroppedTableSweepReport")
        .query(&[NEXT_TOKEN])
        .own(own!(dropped::report)),
    // What writers announce before they write
    create("/v1/databases/{database}/tables/{table}/leases", "GrantLease").own(own!(leases::grant)),
    get("/v1/databases/{database}/tables/{table}/leases", "ListLeases").query(&[NEXT_TOKEN]).own(own!(leases::list)),
    put("/v1/databases/{database}/tables/{table}/leases/{lease}", "RenewLease").own(own!(leases::renew)),
    delete("/v1/databases/{database}/tables/{table}/leases/{lease}", "ReleaseLease").own(own!(leases::release)),
    // User-defined functions
    get("/v1/functions", "GetUserDefinedFunctions").query(FUNCTIONS),
    get("/v1/databases/{database}/functions", "GetUserDefinedFunctions").members(IN_DATABASE).query(FUNCTIONS),
    create("/v1/databases/{database}/functions", "CreateUserDefinedFunction").members(IN_DATABASE),
    get("/v1/databases/{database}/functions/{function}", "GetUserDefinedFunction").members(FUNCTION),
    put("/v1/databases/{database}/functions/{function}", "UpdateUserDefinedFunction").members(FUNCTION),
    delete("/v1/databases/{database}/functions/{function}", "DeleteUserDefinedFunction").members(FUNCTION),
    // Tags
    get("/v1/tags", "GetTags").query(&[ARN]),
    post("/v1/tags", "TagResource").query(&[ARN]),
    delete("/v1/tags", "UntagResource").query(&[ARN, Query::texts("key", "TagsToRemove")]),
    // The catalog
    get("/v1/catalogs", "GetCatalogs").query(&[
        MAX_RESULTS,
        NEXT_TOKEN,
        Query::text("parent_catalog_id", "ParentCatalogId"),
        Query::flag("recursive", "Recursive"),
        Query::flag("include_root", "IncludeRoot"),
        Query::flag("has_databases", "HasDatabases"),
    ]),
    get("/v1/catalogs/{catalog}", "GetCatalog").members(&[("catalog", "CatalogId")]),
    get("/v1/import-status", "GetCatalogImportStatus"),
];
