//! Databases, tables and partitions: the service's operations under addresses.

use lakewarden_core::glue::{self, GlueException};
use lakewarden_core::ports::App;
use serde_json::{Map, Value};

use super::{RestAnswer, RestRequest};

/// The parameter `explain`, which is no member of the operation.
const EXPLAIN: &str = "explain";

/// Members of an operation's input, from path and query.
struct Input<'a> {
    request: &'a RestRequest,
    members: Map<String, Value>,
}

impl<'a> Input<'a> {
    fn new(request: &'a RestRequest, known_query: &[&str]) -> Result<Self, GlueException> {
        request.allow_query(known_query)?;
        Ok(Self { request, members: Map::new() })
    }

    fn path(mut self, parameter: &str, member: &str) -> Self {
        self.members.insert(member.to_owned(), self.request.path(parameter).into());
        self
    }

    fn text(mut self, parameter: &str, member: &str) -> Self {
        if let Some(value) = self.request.query(parameter) {
            self.members.insert(member.to_owned(), value.into());
        }
        self
    }

    fn number(mut self, parameter: &str, member: &str) -> Result<Self, GlueException> {
        if let Some(value) = self.request.query(parameter) {
            let number: i64 = value
                .parse()
                .map_err(|_| GlueException::invalid_input(format!("`{parameter}` should be a whole number.")))?;
            self.members.insert(member.to_owned(), number.into());
        }
        Ok(self)
    }

    /// `QueryAsOfTime` and `TransactionId`.
    fn moment(mut self) -> Result<Self, GlueException> {
        if let Some(value) = self.request.query("query_as_of_time") {
            let seconds: serde_json::Number = serde_json::from_str(value).map_err(|_| {
                GlueException::invalid_input("`query_as_of_time` should be a number of seconds since the epoch.")
            })?;
            self.members.insert("QueryAsOfTime".to_owned(), seconds.into());
        }
        Ok(self.text("transaction_id", "TransactionId"))
    }

    fn flag(mut self, parameter: &str, member: &str) -> Result<Self, GlueException> {
        let flag = match self.request.query(parameter) {
            None => return Ok(self),
            Some("" | "true") => true,
            Some("false") => false,
            Some(_) => return Err(GlueException::invalid_input(format!("`{parameter}` should be true or false."))),
        };
        self.members.insert(member.to_owned(), flag.into());
        Ok(self)
    }

    async fn call(self, app: &App, operation: &str) -> Result<RestAnswer, GlueException> {
        glue::call(app, operation, Value::Object(self.members)).await.map(RestAnswer::ok)
    }
}

pub(super) async fn list_databases(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    let input = Input::new(&request, &["max_results", "next_token"])?;
    input.number("max_results", "MaxResults")?.text("next_token", "NextToken").call(app, "GetDatabases").await
}

pub(super) async fn get_database(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    Input::new(&request, &[])?.path("database", "Name").call(app, "GetDatabase").await
}

pub(super) async fn list_tables(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    let input = Input::new(&request, &["max_results", "next_token", "expression"])?.path("database", "DatabaseName");
    let input = input.number("max_results", "MaxResults")?.text("next_token", "NextToken");
    input.text("expression", "Expression").call(app, "GetTables").await
}

pub(super) async fn get_table(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    let known = ["query_as_of_time", "transaction_id"];
    let input = Input::new(&request, &known)?.path("database", "DatabaseName").path("table", "Name");
    input.moment()?.call(app, "GetTable").await
}

pub(super) async fn list_partitions(app: &App, request: RestRequest) -> Result<RestAnswer, GlueException> {
    let known = [
        "max_results",
        "next_token",
        "expression",
        "exclude_column_schema",
        "query_as_of_time",
        "transaction_id",
        "explain",
    ];
    let input = Input::new(&request, &known)?.path("database", "DatabaseName").path("table", "TableName");
    let input = input.number("max_results", "MaxResults")?.text("next_token", "NextToken");
    let input = input.text("expression", "Expression").flag("exclude_column_schema", "ExcludeColumnSchema")?;
    let mut input = input.moment()?.flag("explain", EXPLAIN)?;
    match input.members.remove(EXPLAIN) {
        Some(Value::Bool(true)) => {
            glue::explain_partitions(app, Value::Object(input.members)).await.map(RestAnswer::ok)
        }
        _ => input.call(app, "GetPartitions").await,
    }
}
